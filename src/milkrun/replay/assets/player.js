// The player: one clock, a panel for each policy, charts below. Buttons, keys, charts and the address move the clock.

const calm = matchMedia("(prefers-reduced-motion: reduce)");
const night = matchMedia("(prefers-color-scheme: dark)");
const state = {
  pos: 0, frames: 0, playing: false, rate: 1, group: 0, masks: true, labels: true, alone: -1, dirty: false, last: null,
};
let page = null, episodes = [], panels = [], curves = null, lanes = [], tipped = null;
const decoded = new Map(); // the episodes of each instance shown so far

// -- the clock ------------------------------------------------------------------------------------------------------

const baseRate = () => episodes[0].fps || Math.min(20, Math.max(1.5, state.frames / 22));

function redraw() {
  if (state.dirty) return;
  state.dirty = true;
  requestAnimationFrame(drawFrame);
}

function seek(pos) {
  const at = Math.min(state.frames, Math.max(0, Number.isFinite(pos) ? pos : 0));
  state.pos = state.playing ? at : Math.round(at);
  remember();
  announce();
  redraw();
}

function play(on) {
  if (on && state.pos >= state.frames) state.pos = 0;
  state.playing = on;
  state.last = null;
  $("play").classList.toggle("on", on);
  $("play").setAttribute("aria-label", on ? "pause" : "play");
  if (!on) seek(state.pos);
  redraw();
}

// Moves by whole steps of the longest episode.
function stepBy(n) {
  play(false);
  const longest = episodes.reduce((a, b) => b.frames > a.frames ? b : a), s = longest.stepAt(state.pos) + n;
  seek(longest.frameOf(Math.min(longest.steps, Math.max(0, s))));
}

function drawFrame(time) {
  state.dirty = false;
  if (state.playing) {
    const passed = Math.min(.1, (time - (state.last ?? time)) / 1000);
    state.last = time;
    state.pos += passed * baseRate() * state.rate;
    if (state.pos >= state.frames) {
      state.pos = state.frames;
      play(false);
    }
    redraw();
  }
  show(calm.matches ? Math.floor(state.pos + 1e-6) : state.pos);
}

function show(pos) {
  if (!panels.length) return; // not started yet, or failed
  for (const panel of panels) {
    if (panel.card.hidden) continue;
    panel.view?.draw(Math.min(pos, panel.ep.frames));
    panel.images.draw(Math.min(pos, panel.ep.frames));
    updatePanel(panel);
  }
  curves.now(pos);
  for (const chart of lanes) chart.now(pos);
  const steps = Math.max(...episodes.map(e => e.steps));
  updateClock(Math.max(...episodes.map(e => e.stepAt(Math.min(pos, e.frames)))), steps);
  moveScrubber(pos);
}

// Skips unchanged text: every write triggers layout and painting in the browser.
function updateClock(step, steps) {
  const text = `step ${step} of ${steps}`, scrubber = $("seek");
  if (scrubber.getAttribute("aria-valuetext") === text) return;
  scrubber.setAttribute("aria-valuetext", text);
  $("step").textContent = step;
  $("steps").textContent = ` / ${steps}`;
}

// While playing, moves by at least a thousandth of its length, about a pixel.
function moveScrubber(pos) {
  const scrubber = $("seek"), least = state.playing ? state.frames / 1000 : 0;
  if (Math.abs(scrubber.value - pos) > least) scrubber.value = pos;
}

// -- panels ---------------------------------------------------------------------------------------------------------

async function showGroup(k) {
  if (state.playing) play(false);
  if (!decoded.has(k)) decoded.set(k, await Promise.all(page.groups[k].episodes.map(readEpisode)));
  episodes = decoded.get(k);
  must(episodes.length > 0, "this instance has no episode");
  state.group = k;
  state.alone = -1;
  state.frames = Math.max(...episodes.map(e => e.frames));
  $("instance").selectedIndex = k;
  $("seek").max = state.frames;
  for (const panel of panels) panel.view?.dispose?.();
  tip(null);
  $("panels").replaceChildren();
  $("panels").style.setProperty("--panels", episodes.length);
  panels = episodes.map(makePanel);
  makeCharts();
  makeTicks();
  seek(Math.min(state.pos, state.frames));
  restyle();
}

function gapOf(ep) {
  const best = Math.max(...episodes.map(e => e.objective).filter(Number.isFinite)), behind = best - ep.objective;
  if (!Number.isFinite(behind)) return ["chip", "not finite"];
  if (behind <= 1e-9 * Math.abs(best)) return ["chip best", "best of these"];
  // Costs differ by a percentage; for returns around 0 a percentage has no meaning.
  const gap = ep.isCost && best < 0 ? `${(behind / -best * 100).toFixed(1)} %` : number(behind);
  return ["chip worse", `${gap} behind`];
}

function makePanel(ep, n) {
  const card = $("panels").appendChild(el("section", "card panel"));
  card.setAttribute("aria-label", `policy ${shorten(ep.policy)}`);
  const head = card.appendChild(el("div", "head")), badge = head.appendChild(el("span", "badge", "ABC"[n]));
  head.appendChild(cutText(el("h2"), ep.policy));
  if (episodes.length > 1) head.appendChild(el("span", ...gapOf(ep))).title = "by the returns at the end";
  const value = head.appendChild(el("span", "value"));
  head.appendChild(el("span", "unit", `return so far,\n${number(ep.objective)} at the end`));
  const stage = card.appendChild(el("div", "stage"));
  const options = {
    redraw, tip, masks: () => state.masks, labels: () => state.labels, pos: () => Math.min(state.pos, ep.frames),
  };
  const isDeep = ep.marks.some(m => m.kind === "bodies");
  const isFlat = !isDeep && ep.marks.some(m => m.kind === "points" || m.kind === "vehicle");
  const view = isDeep ? new View3D(stage, ep, options) : isFlat ? new View2D(stage, ep, options) : null;
  const images = new Images(stage, ep, !view);
  if (!view && !ep.images.length) {
    stage.appendChild(el("p", "notice", "This world has no picture; its figures are below."));
  }
  makeLegend(card, ep, isFlat);
  const foot = card.appendChild(el("div", "foot"));
  const now = foot.appendChild(el("p", ep.agentCount > 1 ? "now long" : "now"));
  const gauges = makeGauges(foot, ep);
  const choices = card.appendChild(el("details", "choices"));
  choices.appendChild(el("summary", "", "Choices at this step"));
  const list = choices.appendChild(el("ol"));
  list.tabIndex = list.start = 0;
  choices.hidden = !ep.mask;
  const panel = { ep, n, card, badge, value, view, images, now, gauges, choices, list, step: -1 };
  choices.addEventListener("toggle", () => { panel.step = -1; redraw(); });
  return panel;
}

function makeLegend(card, ep, isFlat) {
  const legend = card.appendChild(el("div", "legend"));
  for (const [text, colour, shape] of ep.legend) {
    const late = colour !== LATE ? "" : shape === "drone" ? "cross" : "diamond"; // readable without colours
    const entry = legend.appendChild(cutText(el("span", ["square", "ring"].includes(shape) ? shape : late), text));
    entry.dataset.colour = colour;
  }
  if (ep.mask && isFlat && ep.marks.some(m => m.action)) {
    legend.appendChild(el("span", "ring", "allowed now")).dataset.colour = "allowed";
  }
  legend.hidden = !legend.childElementCount;
}

function makeGauges(foot, ep) {
  const box = foot.appendChild(el("div", "gauges"));
  return [...ep.gauges].map(([name, values]) => {
    const gauge = box.appendChild(el("div", "gauge")), label = gauge.appendChild(el("span"));
    const bar = gauge.appendChild(el("div", "bar")).appendChild(el("i"));
    return { name: shorten(name), values, label, bar };
  });
}

// -- words ----------------------------------------------------------------------------------------------------------

const actionName = (ep, agent, action) => ep.names[agent]?.[action] ?? `action ${action}`;

// The actions of a step. Of several agents only those with a choice are listed.
function actionsOf(ep, s) {
  const all = Array.from({ length: ep.agentCount }, (_, g) => ep.action.data[s * ep.agentCount + g]);
  if (!ep.names.some(names => names.length)) return `→ ${all.map(number).join(", ")}`;
  if (all.length === 1) return `→ ${shorten(actionName(ep, 0, all[0]))}`;
  let from = 0;
  const moves = all.map((action, g) => {
    const count = ep.names[g].length, start = from;
    from += count;
    let free = 0;
    for (let k = 0; k < count; k++) free += ep.allowed(s, start + k);
    return { free: free > 1, words: `${shorten(ep.agents[g])} → ${shorten(actionName(ep, g, action))}` };
  });
  const chosen = moves.filter(t => t.free);
  return chosen.length ? chosen.map(t => t.words).join(" · ") : "no agent has a choice";
}

function updatePanel(panel) {
  const { ep } = panel, s = ep.stepAt(Math.min(state.pos, ep.frames));
  if (s === panel.step) return;
  panel.step = s;
  panel.value.textContent = number(ep.series.get("return")?.[s] ?? NaN);
  panel.now.replaceChildren(...(s < ep.steps ? stepWords(ep, s) : endWords(ep)));
  // More than two narrow lines scroll, by keys too. Measured by length, to avoid a layout.
  if (panel.now.textContent.length > 80) panel.now.tabIndex = 0;
  else panel.now.removeAttribute("tabindex");
  for (const { name, values, label, bar } of panel.gauges) {
    const value = values[2 * s], high = values[2 * s + 1], share = Math.min(1, Math.max(0, value / high)) || 0;
    const text = high === 1 ? `${Math.round(value * 100)} %` : `${number(value)} / ${number(high)}`;
    label.textContent = `${name} ${text}`;
    bar.style.transform = `scaleX(${share})`;
  }
  if (panel.choices.open) listChoices(panel, s);
}

function stepWords(ep, s) {
  const words = [el("b", "", `Step ${s + 1}: `), `${actionsOf(ep, s)}. `];
  if (ep.mask) {
    let allowed = 0;
    for (let k = 0; k < ep.actions; k++) allowed += ep.allowed(s, k);
    words.push(`${allowed} of ${ep.actions} allowed, `);
  }
  words.push(`reward ${number(ep.reward[s])}`);
  if (ep.illegal[s]) {
    const why = ep.illegalReasons.get(s) ?? [];
    const reason = why.map(([agent, text]) => ep.agents.length > 1 ? `${ep.agents[agent]}: ${text}` : text).join("; ");
    words.push(el("span", "why", ` illegal${reason ? `: ${shorten(reason)}` : ""}`));
  }
  return words;
}

function endWords(ep) {
  const how = ep.end === "terminated" ? "Done" : ep.end === "truncated" ? "Cut off" : "So far";
  return [el("b", "", how), ` after ${ep.steps} steps, return ${number(ep.objective)}.`];
}

function listChoices({ ep, list }, s) {
  if (s >= ep.steps) return list.replaceChildren(el("li", "", "The episode has ended."));
  const most = 300, items = [], own = ep.scores?.subarray(s * ep.actions, (s + 1) * ep.actions);
  const scores = own ? Array.from(own).filter(Number.isFinite) : [];
  const top = Math.max(...scores), low = Math.min(...scores);
  for (let k = 0; k < Math.min(ep.actions, most); k++) {
    const [agent, action] = locate(ep, k), may = ep.allowed(s, k), name = actionName(ep, agent, action);
    const prefix = ep.agents.length > 1 ? `${ep.agents[agent]}: ` : "";
    const taken = ep.agentCount === Math.max(1, ep.names.length)
      && ep.action.data[s * ep.agentCount + agent] === action;
    const item = el("li", `${may ? "" : "no"}${taken ? " taken" : ""}`);
    item.appendChild(cutText(el("span"), `${prefix}${name}: ${permission(ep, s, k)}${taken ? " (taken)" : ""}`));
    if (own && Number.isFinite(own[k])) {
      item.appendChild(el("span", "score", number(own[k])));
      item.style.setProperty("--share", top > low ? (own[k] - low) / (top - low) : 1);
    }
    items.push(item);
  }
  if (ep.actions > most) items.push(el("li", "no", `and ${ep.actions - most} more`));
  list.replaceChildren(...items);
}

// Text for screen readers, updated while the clock stands.
function announce() {
  if (state.playing) return;
  panels.forEach(updatePanel);
  $("say").textContent = panels.map(p => `${shorten(p.ep.policy)}: ${p.now.textContent}`).join(" ");
}

function tip(lines, x, y) {
  const box = $("tip"), content = lines && [x, y, ...lines].join("\n");
  if (content === tipped) return; // the views call this in every frame
  tipped = content;
  box.hidden = !lines;
  if (!lines) return;
  box.replaceChildren(...lines.map((line, k) => el("div", k ? "" : "first", shorten(line))));
  box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - box.offsetHeight - 8))}px`;
}

// -- below the panels -----------------------------------------------------------------------------------------------

function makeCharts() {
  const below = $("below"), pane = el("section", "card pane"), title = pane.appendChild(el("div", "title"));
  below.replaceChildren(pane);
  const pick = title.appendChild(el("select")), key = title.appendChild(el("div", "policies"));
  pick.setAttribute("aria-label", "figure over time");
  for (const name of new Set(episodes.flatMap(e => [...e.series.keys()]))) {
    pick.appendChild(cutText(el("option"), name)).value = name;
  }
  episodes.forEach((e, k) => key.appendChild(el("span", `dash${k}`, `${"ABC"[k]} ${shorten(e.policy, 40)}`)));
  curves = new Curves(pane.appendChild(el("div", "plot")), episodes, seek);
  curves.pick = pick;
  pick.addEventListener("change", () => curves.show(pick.value));
  const charted = episodes.filter(e => e.chart), axis = sharedAxis(charted.map(e => e.chart));
  lanes = charted.map(ep => makeLanes(below, ep, axis));
  makeKinds(below, charted.map(e => e.chart));
  below.classList.toggle("charted", charted.length > 0);
  below.style.setProperty("--charts", charted.length);
}

function makeLanes(below, ep, axis) {
  const pane = below.appendChild(el("section", "card pane")), title = pane.appendChild(el("div", "title"));
  const { chart } = ep, name = `${"ABC"[episodes.indexOf(ep)]} ${shorten(ep.policy, 40)}`;
  title.appendChild(el("span", "", chart.heat && !chart.lanes.length ? `${name}: ${shorten(chart.heat.title)}` : name));
  const unit = chart.unit === "step" ? "time in steps" : shorten(chart.unit, 40);
  if (chart.lanes.length) title.appendChild(el("span", "unit", unit));
  return new Gantt(pane.appendChild(el("div", "plot lanes")), ep, axis, { seek, tip });
}

// The legend of bars, once for all charts.
function makeKinds(below, charts) {
  const legend = el("div", "kinds"), kinds = new Map();
  for (const chart of charts) for (const bar of chart.bars) kinds.set(bar[1], chart.kinds.get(bar[1]));
  for (const [kind, look] of kinds) {
    const entry = legend.appendChild(cutText(el("span", look?.hatched ? "hatched" : ""), look?.words ?? kind));
    entry.dataset.colour = look?.colour ?? 5;
  }
  if (charts.some(chart => chart.windows.length)) {
    legend.appendChild(el("span", "", "window")).dataset.colour = 1;
    legend.appendChild(el("span", "disc", "served in time")).dataset.colour = 3;
    legend.appendChild(el("span", "diamond", "late")).dataset.colour = 2;
  }
  if (charts.some(chart => chart.bars.some(bar => bar[5] > 0))) {
    legend.appendChild(el("span", "faint", "faint: not yet planned")).dataset.colour = 5;
  }
  if (charts.some(chart => chart.heat)) {
    legend.appendChild(el("span", "", "bluer: fuller")).dataset.colour = 16;
    legend.appendChild(el("span", "", "full")).dataset.colour = 2;
  }
  if (legend.childElementCount) below.appendChild(legend);
}

function makeTicks() {
  const ticks = $("ticks");
  ticks.replaceChildren();
  const put = (frame, kind, words) => {
    const tick = ticks.appendChild(el("i", kind));
    tick.style.left = `${100 * frame / Math.max(1, state.frames)}%`;
    tick.title = words;
  };
  const longest = episodes.reduce((a, b) => b.frames > a.frames ? b : a);
  if (longest.ends && longest.steps <= 400) {
    for (let s = 1; s <= longest.steps; s++) put(longest.frameOf(s), "", `step ${s}`);
  }
  for (const ep of episodes) {
    const illegal = Array.from(ep.illegal.keys()).filter(s => ep.illegal[s]).slice(0, 400);
    for (const s of illegal) put(ep.frameOf(s), "bad", `illegal action in step ${s + 1}`);
  }
  const differs = firstDifference();
  if (differs >= 0) put(episodes[0].frameOf(differs), "part", `the policies differ from step ${differs + 1}`);
}

// The first step in which the actions of the policies differ, or -1.
function firstDifference() {
  const [first, ...others] = episodes, wide = first.agentCount;
  for (let s = 0; s < Math.min(...episodes.map(e => e.steps)); s++) {
    for (let k = s * wide; k < (s + 1) * wide; k++) {
      if (others.some(e => e.action.data[k] !== first.action.data[k])) return s;
    }
  }
  return -1;
}

// -- looks ----------------------------------------------------------------------------------------------------------

function restyle() {
  setTheme(theme.dark);
  for (const { badge, n } of panels) {
    badge.style.background = paletteColour(n);
    badge.style.color = textOn(paletteColour(n));
  }
  document.querySelectorAll("[data-colour]").forEach(entry => {
    const code = entry.dataset.colour, edge = code === "allowed" ? theme.tone.accent : colourOf(+code);
    entry.style.setProperty("--fill", code === "0" ? "transparent" : edge);
    entry.style.setProperty("--edge", edge);
  });
  document.querySelectorAll(".policies span").forEach((s, k) => s.style.setProperty("--edge", paletteColour(k)));
  curves.show(curves.pick.value);
  lanes.forEach(chart => chart.render());
  redraw();
}

function toggle(key) {
  state[key] = !state[key];
  $(key).setAttribute("aria-pressed", state[key]);
  redraw();
}

function showAlone(k) {
  if (k >= panels.length) return;
  state.alone = k;
  panels.forEach(({ card }, n) => { card.hidden = k >= 0 && n !== k; });
  $("panels").style.setProperty("--panels", k >= 0 ? 1 : panels.length);
  redraw();
}

// -- address, keys and buttons --------------------------------------------------------------------------------------

let written = 0;
function remember() {
  if (written) return; // at most every 150 ms
  written = setTimeout(() => {
    written = 0;
    history.replaceState(null, "", `#frame=${Math.round(state.pos)}&instance=${state.group}`);
  }, 150);
}

function readAddress() {
  const hash = new URLSearchParams(location.hash.slice(1)), frame = hash.get("frame"), group = hash.get("instance");
  const whole = text => /^\d{1,9}$/.test(text ?? "") ? +text : 0;
  return [frame === "end" ? Infinity : whole(frame), whole(group) < page.groups.length ? whole(group) : 0];
}

function speed(k) {
  const list = $("speed");
  list.selectedIndex = Math.min(list.options.length - 1, Math.max(0, list.selectedIndex + k));
  state.rate = +list.value;
}

function otherGroup(k) {
  const count = page.groups.length;
  if (count > 1) showGroup((state.group + k + count) % count).catch(fail);
}

function go(frame) {
  play(false);
  seek(frame);
}

const KEYS = new Map([
  [" ", () => play(!state.playing)], ["k", () => play(!state.playing)],
  ["arrowright", e => stepBy(e.shiftKey ? 10 : 1)], ["arrowleft", e => stepBy(e.shiftKey ? -10 : -1)],
  [".", () => stepBy(1)], [",", () => stepBy(-1)],
  ["home", () => go(0)], ["end", () => go(state.frames)],
  ["[", () => speed(-1)], ["]", () => speed(1)],
  ["n", () => otherGroup(1)], ["p", () => otherGroup(-1)],
  ["0", () => showAlone(-1)], ["1", () => showAlone(0)], ["2", () => showAlone(1)], ["3", () => showAlone(2)],
  ["m", () => toggle("masks")], ["l", () => toggle("labels")],
  ["r", () => panels.forEach(p => p.view?.reset())], ["f", () => panels.forEach(p => p.view?.follow?.())],
  ["d", () => { theme.dark = !theme.dark; restyle(); }], ["?", () => $("help").showModal()],
]);

function pressed(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || $("help").open || e.target.tagName === "SELECT") return;
  if (e.key === " " && ["BUTTON", "SUMMARY"].includes(e.target.tagName)) return;
  const act = KEYS.get(e.key.toLowerCase());
  if (!act) return;
  e.preventDefault();
  act(e);
}

function listen() {
  const click = (id, act) => $(id).addEventListener("click", act);
  click("first", () => go(0));
  click("back", () => stepBy(-1));
  click("play", () => play(!state.playing));
  click("fwd", () => stepBy(1));
  click("last", () => go(state.frames));
  click("masks", () => toggle("masks"));
  click("labels", () => toggle("labels"));
  click("theme", () => KEYS.get("d")());
  click("keys", () => $("help").showModal());
  $("seek").addEventListener("input", e => { state.pos = +e.target.value; redraw(); });
  $("seek").addEventListener("change", e => seek(+e.target.value));
  $("speed").addEventListener("change", e => { state.rate = +e.target.value; });
  $("instance").addEventListener("change", e => showGroup(e.target.selectedIndex).catch(fail));
  document.addEventListener("keydown", pressed);
  night.addEventListener("change", e => { theme.dark = e.matches; restyle(); });
}

// -- start ----------------------------------------------------------------------------------------------------------

async function start() {
  try { page = JSON.parse($("data").textContent); } catch { throw new DataError("it is not JSON"); }
  must(page?.format === "milkrun-page" && page.version === 1,
    `this reads milkrun-page 1, not ${page?.format} ${page?.version}`);
  must(Array.isArray(page.groups) && page.groups.length > 0, "there is no instance in it");
  theme.dark = night.matches;
  setTheme(theme.dark);
  document.title = shorten(page.title);
  cutText($("title"), page.title);
  cutText($("sub"), page.subtitle);
  for (const group of page.groups) $("instance").appendChild(cutText(el("option"), group.label));
  $("instance").hidden = page.groups.length < 2;
  const [frame, group] = readAddress();
  state.pos = frame;
  await showGroup(group);
  listen();
  show(state.pos);
  document.documentElement.dataset.ready = "1";
}

// Invalid data: shows an error message in place of the page.
function fail(error) {
  const sentence = `The data of this page cannot be shown: ${shorten(`${error.message}`)}.`;
  $("panels").replaceChildren(el("p", "notice", sentence));
  $("below").replaceChildren();
  document.querySelectorAll("footer button, footer input, footer select").forEach(e => { e.disabled = true; });
  panels = [];
  document.documentElement.dataset.ready = "error";
}

// The API for tests and the console.
const summary = ep => ({
  policy: ep.policy, steps: ep.steps, frames: ep.frames, objective: ep.objective,
  action: s => {
    const all = Array.from(ep.action.data.slice(s * ep.agentCount, (s + 1) * ep.agentCount));
    return ep.action.shape.length > 1 ? all : all[0];
  },
  reward: s => ep.reward[s],
  allowed: s => Array.from(ep.mask.slice(s * ep.actions, (s + 1) * ep.actions)),
  why: (s, index) => ep.why(s, index),
  figure: (name, s) => ep.series.get(name)[s],
  xy: (mark, f) => Array.from(ep.marks.find(m => m.name === mark).xy.at(f)),
  stops: (mark, f) => Array.from(ep.marks.find(m => m.name === mark).stops.at(f)),
});
window.milkrun = {
  get version() { return page.version; },
  get frame() { return state.pos; },
  get frames() { return state.frames; },
  seek: go,
  show, // draws a position between two frames without moving the clock
  play,
  get episodes() { return episodes.map(summary); },
  get layers_drawn() { return panels.map(p => p.view?.layersDrawn ?? 0); },
  get points_drawn() { return panels.map(p => p.view?.pointsDrawn ?? 0); },
  // The position of point j of a mark on the screen.
  pixel: (k, name, j) => {
    const { view } = panels[k], { left, top } = view.canvas.getBoundingClientRect();
    const { screen } = view.points.find(m => m.name === name);
    return [left + screen[2 * j], top + screen[2 * j + 1]];
  },
  decode: async c => { const { shape, data } = await column(c); return { shape, data: Array.from(data) }; },
  decodeList: async (v, frames) => {
    const list = await attribute(v, frames);
    return Array.from({ length: frames + 1 }, (_, t) => Array.from(list.at(t)));
  },
};
start().catch(fail);
