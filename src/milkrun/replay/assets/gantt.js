// The chart of an episode: a lane for each machine, the windows of customers below, and a heat map if there is one. All
// charts of a page share one time axis. A line marks the current frame; a click or a drag seeks.

const LANE = 21, WINDOW_ROW = 11, HEAT = 124, AXIS = 18, GAP = 8;

// The time axis that all charts of a page share: its margins and its end.
function sharedAxis(charts) {
  const pen = new OffscreenCanvas(1, 1).getContext("2d");
  pen.font = AXIS_FONT;
  const names = charts.flatMap(c => [...c.lanes, ...c.windows.map(w => w[0])]);
  const times = charts.flatMap(c => [
    ...c.bars.map(b => b[3]), ...c.marks.map(m => m[2]), ...c.windows.map(w => w[3] ?? 0),
    c.clock ? c.clock[c.clock.length - 1] : 0,
  ]);
  const wide = names.reduce((most, name) => Math.max(most, pen.measureText(shorten(name, 22)).width), 0);
  const end = times.reduce((a, b) => Math.max(a, b), 0) || 1;
  return { left: Math.min(130, Math.max(36, wide + 14)), right: 12, end };
}

// A disc of this radius, or a diamond with half diagonals `far` for late: readable without colours.
function outlineStop(pen, x, y, late, far, radius) {
  pen.beginPath();
  if (late) {
    pen.moveTo(x, y - far);
    pen.lineTo(x + far, y);
    pen.lineTo(x, y + far);
    pen.lineTo(x - far, y);
    pen.closePath();
  } else pen.arc(x, y, radius, 0, TURN);
}

// The sign of a crash: a cross with an outline.
function cross(pen, x, y, far, colour) {
  pen.lineCap = "round";
  pen.beginPath();
  for (const turn of [-1, 1]) {
    pen.moveTo(x - far, y - far * turn);
    pen.lineTo(x + far, y + far * turn);
  }
  for (const [wide, tone] of [[7, theme.tone.card], [4, colour]]) {
    pen.lineWidth = wide;
    pen.strokeStyle = tone;
    pen.stroke();
  }
}

class Gantt {
  constructor(plot, ep, axis, options) {
    this.ep = ep;
    this.chart = ep.chart;
    this.axis = axis;
    this.options = options;
    this.pos = 0;
    this.canvas = plot.appendChild(document.createElement("canvas"));
    this.canvas.className = "lanes";
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `lanes of ${ep.policy}`);
    this.line = plot.appendChild(document.createElement("div"));
    this.line.className = "nowline";
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", `chart of ${ep.policy}`);
    this.late = new Set(this.chart.windows.filter(w => w[3] !== null && w[3] > w[2]).map(w => w[0]));
    this.plot = plot;
    this.listen();
    new ResizeObserver(() => this.render()).observe(plot);
  }

  // -- time -----------------------------------------------------------------------------------------------------

  // The chart's time at a position of the player; null if the chart has a time of its own.
  timeAt(pos) {
    const { clock, unit } = this.chart, f = Math.min(pos, this.ep.frames), t = Math.floor(f);
    if (clock) return clock[t] + ((clock[t + 1] ?? clock[t]) - clock[t]) * (f - t);
    return unit === "step" && !this.ep.ends ? f : null;
  }

  frameAt(time) {
    const { clock } = this.chart;
    if (!clock) return this.timeAt(0) === null ? null : time;
    let low = 0, high = clock.length - 1; // finds the last frame whose time is not later
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (clock[middle] <= time) low = middle; else high = middle - 1;
    }
    return low + (clock[low + 1] - time < time - clock[low]);
  }

  x(time) { return this.axis.left + time / this.axis.end * (this.width - this.axis.left - this.axis.right); }

  timeOf(x) { return (x - this.axis.left) / (this.width - this.axis.left - this.axis.right) * this.axis.end; }

  // -- drawing --------------------------------------------------------------------------------------------------

  get laneTop() { return this.chart.lanes.length || this.chart.windows.length ? AXIS : 2; }
  get windowTop() { return this.laneTop + this.chart.lanes.length * LANE + (this.chart.windows.length ? GAP : 0); }
  get heatTop() { return this.windowTop + this.chart.windows.length * WINDOW_ROW + (this.chart.heat ? GAP : 0); }
  get bottom() { return this.heatTop + (this.chart.heat ? this.chart.heat.rows * this.heatRow : 0) + 2; }
  get heatRow() { return Math.max(4, Math.min(14, HEAT / this.chart.heat.rows)); }

  render() {
    const ratio = Math.min(2, devicePixelRatio || 1), pen = this.canvas.getContext("2d");
    this.width = this.plot.clientWidth;
    const height = this.bottom + (this.chart.heat ? AXIS : 0);
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.max(1, this.width * ratio);
    this.canvas.height = height * ratio;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = AXIS_FONT;
    pen.textBaseline = "middle";
    this.targets = [];
    const { chart } = this;
    if (chart.lanes.length || chart.windows.length) this.drawAxis(pen);
    chart.lanes.forEach((name, k) => this.write(pen, name, this.axis.left - 8, this.laneTop + (k + .5) * LANE, "ink"));
    for (const bar of chart.bars) this.drawBar(pen, bar);
    for (const mark of chart.marks) this.drawMark(pen, mark);
    chart.windows.forEach((w, k) => this.drawWindow(pen, w, this.windowTop + k * WINDOW_ROW));
    if (chart.heat) this.drawHeat(pen, chart.heat);
    this.now(this.pos);
    this.hint();
  }

  // Fades the last visible lanes if more follow below.
  hint() {
    const { plot } = this;
    plot.classList.toggle("more", plot.scrollHeight - plot.scrollTop - plot.clientHeight > 4);
    if (plot.scrollHeight > plot.clientHeight) plot.tabIndex = 0; // lets keys scroll it
    else plot.removeAttribute("tabindex");
  }

  write(pen, text, x, y, tone) {
    pen.textAlign = "right";
    pen.fillStyle = theme.tone[tone];
    pen.fillText(shorten(text, 22), x, y);
  }

  drawAxis(pen) {
    pen.strokeStyle = theme.tone.line;
    pen.lineWidth = 1;
    pen.textAlign = "center";
    const least = this.chart.unit === "step" ? 1 : 0;
    for (const v of roundSteps(this.axis.end, Math.max(3, this.width / 70), least)) {
      pen.beginPath();
      pen.moveTo(this.x(v), AXIS);
      pen.lineTo(this.x(v), this.heatTop);
      pen.stroke();
      pen.fillStyle = theme.tone.muted;
      pen.fillText(number(v), this.x(v), AXIS / 2);
    }
  }

  look(kind) {
    const style = this.chart.kinds.get(kind);
    return style ? { words: style.words, colour: colourOf(style.colour), hatched: style.hatched }
      : { words: kind, colour: theme.tone.muted, hatched: false };
  }

  describe(lane, words, label) { return `${this.chart.lanes[lane]} ${words}${label ? `: ${label}` : ""}`; }

  // Entries that become known only later are faint.
  isKnown(at) { return at === null || at === undefined || at <= this.pos + 1e-6; }

  drawBar(pen, [lane, kind, t0, t1, label, at]) {
    const { words, colour, hatched } = this.look(kind), x = this.x(t0), w = Math.max(1, this.x(t1) - x - 1);
    const y = this.laneTop + lane * LANE + 2, h = LANE - 5, known = this.isKnown(at);
    const fill = known ? hatched ? mixed(colour, theme.tone.card, .35) : colour : mixed(colour, theme.tone.card, .18);
    pen.fillStyle = fill;
    pen.beginPath();
    pen.roundRect(x + .5, y, w, h, 2);
    pen.fill();
    if (hatched) {
      pen.save();
      pen.clip();
      pen.strokeStyle = known ? colour : mixed(colour, theme.tone.card, .35);
      pen.lineWidth = 1;
      pen.beginPath();
      for (let k = x - h; k < x + w; k += 6) {
        pen.moveTo(k, y + h);
        pen.lineTo(k + h, y);
      }
      pen.stroke();
      pen.restore();
    }
    if (label && !hatched && pen.measureText(label).width + 6 < w) {
      pen.textAlign = "center";
      pen.fillStyle = textOn(fill);
      pen.fillText(label, x + w / 2, y + h / 2 + .5);
    }
    const lines = [this.describe(lane, words, label), `${number(t0)} to ${number(t1)}`];
    this.targets.push({ box: [x, y, x + w, y + h], lines });
  }

  drawMark(pen, [lane, kind, t, label, at]) {
    const look = this.look(kind), late = this.late.has(label), words = look.words + (late ? ", late" : "");
    const base = late && kind === "served" ? theme.tone.late : look.colour, x = this.x(t);
    const colour = this.isKnown(at) ? base : mixed(base, theme.tone.card, .25);
    const y = this.laneTop + (lane + .5) * LANE - .5;
    if (this.chart.kinds.get(kind)?.colour === LATE) cross(pen, x, y, 5, colour); // a crash
    else {
      outlineStop(pen, x, y, late, 9, 7);
      pen.fillStyle = colour;
      pen.strokeStyle = theme.tone.card;
      pen.lineWidth = 1.5;
      pen.fill();
      pen.stroke();
    }
    if (label.length < 3) {
      pen.fillStyle = textOn(colour);
      pen.textAlign = "center";
      pen.font = "700 9px system-ui, sans-serif";
      pen.fillText(label, x, y + .5);
      pen.font = AXIS_FONT;
    }
    const lines = [this.describe(lane, words, label), `at ${number(t)}`];
    this.targets.push({ box: [x - 8, y - 8, x + 8, y + 8], lines });
  }

  drawWindow(pen, [name, opens, closes, arrival, by], top) {
    const y = top + WINDOW_ROW / 2, cut = t => this.x(Math.min(t, this.axis.end)), a = cut(opens), b = cut(closes);
    pen.font = "9.5px system-ui, sans-serif";
    this.write(pen, name, this.axis.left - 8, y, "muted");
    pen.font = AXIS_FONT;
    pen.fillStyle = mixed(theme.tone.open, theme.tone.card, .45);
    pen.fillRect(a, top + 2, Math.max(1.5, b - a), WINDOW_ROW - 4);
    const late = arrival !== null && arrival > closes;
    if (arrival !== null) {
      const x = this.x(arrival);
      outlineStop(pen, x, y, late, 5, 3.6);
      pen.fillStyle = late ? theme.tone.late : theme.tone.served;
      pen.fill();
    }
    const done = arrival === null ? "never served"
      : `served at ${number(arrival)}${by ? ` by ${by}` : ""}${late ? ", late" : ""}`;
    const lines = [name, `open ${number(opens)} to ${number(closes)}`, done];
    this.targets.push({ box: [this.axis.left, top, this.width, top + WINDOW_ROW], lines });
  }

  // A row per bin, a column per point in time; darker is fuller. The current column is framed.
  drawHeat(pen, { title, rows, columns, values, at }) {
    const left = this.axis.left, w = (this.width - left - this.axis.right) / columns, h = this.heatRow;
    let now = 0;
    for (let c = 0; c < columns; c++) if (at[c] <= this.pos + 1e-6) now = c;
    for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) {
      const v = values[r * columns + c], x = left + c * w, y = this.heatTop + r * h;
      pen.fillStyle = mixed(v >= 1 ? theme.tone.late : paletteColour(0), theme.tone.soft, Math.min(1, Math.max(0, v)));
      pen.fillRect(x + .5, y + .5, w - 1, h - 1);
      const lines = [`${title}: row ${r + 1}, column ${c + 1}`, number(v)];
      this.targets.push({ box: [x, y, x + w, y + h], lines, frame: at[c] });
    }
    for (let r = 0; r < rows; r++) {
      if (rows > 12 && (r + 1) % 5 && r) continue;
      this.write(pen, `${r + 1}`, left - 8, this.heatTop + (r + .5) * h, "muted");
    }
    pen.textAlign = "center";
    pen.fillStyle = theme.tone.muted;
    for (let c = 0; c < columns; c++) pen.fillText(`${c + 1}`, left + (c + .5) * w, this.bottom + AXIS / 2);
    pen.strokeStyle = theme.tone.ink;
    pen.lineWidth = 2;
    pen.strokeRect(left + now * w, this.heatTop, w, rows * h);
  }

  // -- current frame and pointer --------------------------------------------------------------------------------

  now(pos) {
    const before = this.known();
    this.pos = pos;
    const time = this.timeAt(pos);
    this.line.hidden = time === null || !this.chart.lanes.length;
    this.line.style.transform = `translateX(${this.x(Math.min(time ?? 0, this.axis.end))}px)`;
    this.line.style.height = `${this.heatTop - AXIS}px`;
    if (this.known() !== before) this.render();
  }

  // The number of known entries, which changes when the chart must be drawn again.
  known() {
    const of = list => list.reduce((sum, entry) => sum + this.isKnown(entry[entry.length - 1]), 0);
    return of(this.chart.bars) + of(this.chart.marks) + (this.chart.heat ? of(this.chart.heat.at.map(f => [f])) : 0);
  }

  targetAt(e) {
    const isIn = ([x0, y0, x1, y1]) => e.offsetX >= x0 && e.offsetX < x1 && e.offsetY >= y0 && e.offsetY < y1;
    return this.targets?.findLast(target => isIn(target.box));
  }

  listen() {
    const { canvas } = this, { seek, tip } = this.options;
    this.plot.addEventListener("scroll", () => this.hint(), { passive: true });
    const go = e => {
      const time = Math.min(this.axis.end, Math.max(0, this.timeOf(e.offsetX)));
      const frame = this.targetAt(e)?.frame ?? this.frameAt(time);
      if (frame !== null) seek(frame);
    };
    canvas.addEventListener("pointerdown", e => { canvas.setPointerCapture(e.pointerId); go(e); });
    canvas.addEventListener("pointermove", e => {
      if (e.buttons & 1) return go(e);
      tip(this.targetAt(e)?.lines ?? null, e.clientX, e.clientY);
    });
    canvas.addEventListener("pointerleave", () => tip(null));
  }
}

// Round numbers from 0 to `end`, at most `most` of them, and not closer than `least`.
function roundSteps(end, most, least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(end / most, 1e-9)));
  const step = Math.max(least, [1, 2, 5, 10].map(k => k * power).find(s => end / s <= most));
  return Array.from({ length: Math.floor(end / step + 1e-9) + 1 }, (_, k) => k * step);
}
