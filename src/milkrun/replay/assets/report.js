// The report: cards of worlds, curves of training, tables that sort by a click on a column.

const night = matchMedia("(prefers-color-scheme: dark)");
const charts = [];
const LABEL = "11px system-ui, sans-serif";

// -- cards ----------------------------------------------------------------------------------------------------------

function makeCard(card) {
  const box = $("cards").appendChild(el("section", "card world"));
  if (card.picture) {
    const picture = box.appendChild(el("img"));
    picture.src = card.picture;
    picture.alt = `episodes of ${card.world}`;
  }
  const text = box.appendChild(el("div", "text"));
  text.appendChild(cutText(el("h2"), card.world));
  if (card.title) text.appendChild(cutText(el("p", "what"), card.title));
  if (card.said) text.appendChild(cutText(el("p"), card.said));
  const list = text.appendChild(el("dl")), best = Math.max(...(card.policies ?? []).map(p => p.mean ?? -Infinity));
  for (const policy of card.policies ?? []) {
    list.appendChild(cutText(el("dt"), `return, ${policy.name}`));
    const value = list.appendChild(el("dd"));
    value.appendChild(el(policy.mean === best ? "b" : "span", "", number(policy.mean ?? NaN)));
    if (policy.low !== null && policy.high !== null) {
      value.title = `95 % interval ${number(policy.low)} to ${number(policy.high)}`;
    }
  }
  if (card.speed) {
    list.appendChild(el("dt", "", "steps a second"));
    list.appendChild(el("dd", "", number(card.speed)));
  }
  if (card.page) {
    const link = text.appendChild(el("a", "", "Play its episodes"));
    link.href = card.page;
    link.setAttribute("aria-label", `${link.textContent}: ${card.world}`);
  }
}

// -- tables ---------------------------------------------------------------------------------------------------------

function makeTable(data) {
  const box = $("tables").appendChild(el("section", "card sheet"));
  box.appendChild(cutText(el("h2"), data.title));
  const table = box.appendChild(el("div", "scroll")).appendChild(el("table"));
  const head = table.appendChild(el("thead")).appendChild(el("tr")), body = table.appendChild(el("tbody"));
  const best = new Map(Object.entries(data.best));
  const columns = data.columns.map((name, k) => {
    const values = data.rows.map(row => row[k]), numbers = values.filter(v => typeof v === "number");
    const isNumber = numbers.length > 0 && values.every(v => v === null || typeof v === "number");
    const way = best.get(name), top = numbers.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
    const winner = !isNumber || !way ? null : way === "high" ? Math.max(...numbers) : Math.min(...numbers);
    const cell = head.appendChild(el("th", isNumber ? "number" : "")), button = cell.appendChild(el("button"));
    button.type = "button";
    cutText(button, name);
    return { cell, button, isNumber, top, winner };
  });
  const fill = rows => body.replaceChildren(...rows.map(row => makeRow(row, columns)));
  columns.forEach((column, k) => column.button.addEventListener("click", () => {
    const up = column.cell.ariaSort === "descending" || (!column.isNumber && column.cell.ariaSort !== "ascending");
    for (const other of columns) other.cell.removeAttribute("aria-sort");
    column.cell.ariaSort = up ? "ascending" : "descending";
    fill(data.rows.toSorted((a, b) => compareCells(a[k], b[k], up)));
  }));
  fill(data.rows);
  if (data.notes?.length) {
    const notes = box.appendChild(el("ul"));
    for (const note of data.notes) notes.appendChild(cutText(el("li"), note));
  }
}

function makeRow(row, columns) {
  const line = el("tr");
  columns.forEach(({ isNumber, top, winner }, k) => {
    const value = row[k], cell = line.appendChild(el("td", isNumber ? "number" : ""));
    if (value === null) return;
    cutText(cell, isNumber ? number(value) : `${value}`);
    if (isNumber) cell.style.setProperty("--share", top ? Math.abs(value) / top : 0);
    if (isNumber && value === winner) cell.classList.add("best");
  });
  return line;
}

// Missing values come last in either direction.
function compareCells(a, b, up) {
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === "number" && typeof b === "number" ? a - b : `${a}`.localeCompare(`${b}`, "en");
  return up ? order : -order;
}

// -- curves ---------------------------------------------------------------------------------------------------------

async function makeCurve(curve) {
  const read = async c => c ? Array.from((await column(c)).data) : null, lines = [];
  for (const line of curve.lines) {
    const [x, y, low, high, seconds] = await Promise.all(["x", "y", "low", "high", "seconds"].map(k => read(line[k])));
    lines.push({ name: line.name, step: x, seconds, y, low, high });
  }
  const box = $("curves").appendChild(el("section", "card pane")), title = box.appendChild(el("div", "title"));
  title.appendChild(cutText(el("h2"), curve.title));
  const chart = { box, lines, axis: "step", log: false, drawn: null };
  if (lines.some(line => line.seconds)) {
    const pick = title.appendChild(el("select"));
    pick.setAttribute("aria-label", "x axis");
    for (const name of ["step", "seconds"]) pick.appendChild(el("option", "", name)).value = name;
    pick.addEventListener("change", () => { chart.axis = pick.value; drawCurve(chart); });
  }
  const label = title.appendChild(el("label")), check = label.appendChild(el("input"));
  check.type = "checkbox";
  label.append(" log axis");
  check.addEventListener("change", () => { chart.log = check.checked; drawCurve(chart); });
  const key = title.appendChild(el("div", "policies"));
  lines.forEach((line, k) => key.appendChild(cutText(el("span", `dash${k % 3}`), line.name)).dataset.line = k);
  chart.plot = box.appendChild(el("div", "plot"));
  new ResizeObserver(() => {
    const { width, height } = chart.plot.getBoundingClientRect();
    chart.drawn?.setSize({ width, height });
  }).observe(chart.plot);
  charts.push(chart);
}

// All runs on one axis; a gap where a value is not finite, or not positive on a log axis.
function tableOf({ lines, axis, log }) {
  const used = lines.filter(line => line[axis]), xs = new Set(used.flatMap(line => line[axis].filter(Number.isFinite)));
  const x = [...xs].sort((a, b) => a - b), place = new Map(x.map((v, k) => [v, k]));
  const spread = (line, values) => {
    const out = new Array(x.length).fill(undefined);
    values?.forEach((v, k) => {
      const at = place.get(line[axis][k]);
      if (at !== undefined) out[at] = Number.isFinite(v) && (!log || v > 0) ? v : null;
    });
    return out;
  };
  return { used, data: [x, ...used.flatMap(l => [spread(l, l.y), spread(l, l.low), spread(l, l.high)])] };
}

function drawCurve(chart) {
  chart.drawn?.destroy();
  chart.drawn = null;
  const { width, height } = chart.plot.getBoundingClientRect(), { tone } = theme, { used, data } = tableOf(chart);
  const axis = { stroke: tone.muted, grid: { stroke: tone.line, width: 1 }, ticks: { show: false }, font: LABEL };
  const edge = { width: 0, points: { show: false } };
  try {
    chart.drawn = new uPlot({
      width, height, legend: { show: false }, cursor: { y: false, drag: { x: true, y: false } },
      scales: { x: { time: false }, y: { distr: chart.log ? 3 : 1 } },
      axes: [{ ...axis, size: 26 }, { ...axis, size: 56 }],
      series: [{}, ...used.flatMap(line => {
        const k = chart.lines.indexOf(line), colour = paletteColour(k);
        const points = { show: line.y.length < 3 };
        const own = { label: line.name, stroke: colour, width: 2, dash: DASHES[k % 3], points };
        return [own, { ...edge, stroke: colour }, { ...edge, stroke: colour }];
      })],
      bands: used.flatMap((line, k) => line.low && line.high
        ? [{ series: [3 * k + 3, 3 * k + 2], fill: `${paletteColour(chart.lines.indexOf(line))}33` }] : []),
    }, data, chart.plot);
  } catch {
    chart.plot.textContent = "This browser could not start the chart; the tables work.";
  }
}

// -- start ----------------------------------------------------------------------------------------------------------

function restyle(dark) {
  setTheme(dark);
  document.querySelectorAll("[data-line]").forEach(e => e.style.setProperty("--edge", paletteColour(+e.dataset.line)));
  charts.forEach(drawCurve);
}

async function start() {
  let report;
  try { report = JSON.parse($("data").textContent); } catch { throw new DataError("it is not JSON"); }
  must(report?.format === "milkrun-report" && report.version === 1,
    `this reads milkrun-report 1, not ${report?.format} ${report?.version}`);
  cutText($("title"), report.title);
  if (report.cards.some(card => card.policies)) {
    const note = "A return is the mean over the episodes: higher is better, the best is bold.";
    $("cards").appendChild(el("p", "note", note));
  }
  report.cards.forEach(makeCard);
  for (const curve of report.curves) await makeCurve(curve);
  report.tables.forEach(makeTable);
  if (report.ignored.length) {
    const box = $("ignored").appendChild(el("section", "ignored")), list = el("ul");
    box.append(el("h2", "", "Files that are not shown"), list);
    for (const [name, reason] of report.ignored) list.appendChild(cutText(el("li"), `${name}: ${reason}`));
  }
  if (!report.cards.length && !report.curves.length && !report.tables.length) {
    $("cards").appendChild(el("p", "notice", "This folder has no file that a report can show."));
  }
  $("theme").addEventListener("click", () => restyle(!theme.dark));
  night.addEventListener("change", e => restyle(e.matches));
  restyle(night.matches);
  window.milkrun = { charts: charts.map(c => ({ get data() { return tableOf(c).data; } })) };
  document.documentElement.dataset.ready = "1";
}

start().catch(error => {
  const sentence = `The data of this page cannot be shown: ${shorten(`${error.message}`)}.`;
  $("cards").replaceChildren(el("p", "notice", sentence));
  document.documentElement.dataset.ready = "error";
});
