// Elements, numbers and names of the page. Text from the data is always inserted as text, never as markup.

const $ = id => document.getElementById(id);

function el(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

const shorten = (text, most = 200) => text.length > most ? `${text.slice(0, most - 1)}…` : text;

// A name of any length: shortened, with the full text in the tooltip.
function cutText(element, text) {
  element.textContent = shorten(text);
  if (text.length > 200) element.title = text;
  return element;
}

function number(x) {
  const size = Math.abs(x);
  if (!Number.isFinite(x)) return "not finite";
  if (size >= 1e9 || (size > 0 && size < 5e-4)) return x.toExponential(2);
  if (size >= 1000) return x.toLocaleString("en", { maximumFractionDigits: size < 1e4 ? 1 : 0 });
  return `${+x.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 3)}`;
}
