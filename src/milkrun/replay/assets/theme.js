// Colours in a light and a dark set of the same hues; the light ones equal those of the library's pictures. Colours
// with a meaning have names and are defined in the style sheet; codes from 16 on are colours of the palette.

const MEANINGS = ["waiting", "open", "late", "served", "ink", "muted", "grid"];
const LATE = MEANINGS.indexOf("late"), FIRST_OF_PALETTE = 16;
const LIGHT = [
  "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#332288", "#882255", "#808040", "#80c060",
];
const DARK = [
  "#4aa3df", "#f0803c", "#2fc79a", "#e39cc5", "#f2b830", "#8fd0f5", "#a79df7", "#e07fb0", "#c4c474", "#a6dc80",
];
const DASHES = [[], [7, 4], [2, 3]];
const theme = { dark: false, tone: {} };

function setTheme(dark) {
  theme.dark = dark;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  const style = getComputedStyle(document.documentElement);
  for (const name of [...MEANINGS, "card", "soft", "line", "accent", "net", "outline"]) {
    theme.tone[name] = style.getPropertyValue("--" + name).trim();
  }
}

const paletteColour = k => (theme.dark ? DARK : LIGHT)[((k % 10) + 10) % 10];
const colourOf = code => code >= FIRST_OF_PALETTE ? paletteColour(code - FIRST_OF_PALETTE)
  : theme.tone[MEANINGS[code]] ?? theme.tone.ink;

const channels = hex => [1, 3, 5].map(k => parseInt(hex.slice(k, k + 2), 16));

function luminance(hex) {
  const [r, g, b] = channels(hex).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
}

// Black or white text on a colour: one of them always has a contrast above 4.5.
const textOn = hex => luminance(hex) > .1791 ? "#000000" : "#ffffff";

// A paler opaque colour: lines look the same where they cross or are drawn twice.
function mixed(hex, other, share) {
  const a = channels(hex), b = channels(other);
  return "#" + a.map((v, k) => Math.round(v * share + b[k] * (1 - share)).toString(16).padStart(2, "0")).join("");
}
