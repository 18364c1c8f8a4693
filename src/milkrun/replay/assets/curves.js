// The chart of figures: one figure of all policies over the frames, each with its own colour and dash. A line marks the
// current frame; a click or a drag seeks. Axes and scales come from uPlot.

const AXIS_FONT = "11px system-ui, sans-serif";

class Curves {
  constructor(plot, episodes, seek) {
    this.plot = plot;
    this.episodes = episodes;
    this.seek = seek;
    this.frames = Math.max(1, ...episodes.map(e => e.frames));
    this.pos = 0;
    this.line = document.createElement("div");
    this.line.className = "nowline";
    new ResizeObserver(() => this.resize()).observe(plot);
  }

  resize() {
    const { width, height } = this.plot.getBoundingClientRect();
    this.chart?.setSize({ width, height });
    this.now(this.pos);
  }

  // The data of uPlot: all frames at which any policy has a value, then the values of each policy. A frame of another
  // policy is undefined (the line continues), a number that is not finite is null (a gap).
  table(name) {
    const frames = new Set(this.episodes.flatMap(e => Array.from({ length: e.steps + 1 }, (_, s) => e.frameOf(s))));
    const x = [...frames].sort((a, b) => a - b);
    return [x, ...this.episodes.map(e => {
      const values = e.series.get(name), at = new Map();
      for (let s = 0; values && s <= e.steps; s++) at.set(e.frameOf(s), Number.isFinite(values[s]) ? values[s] : null);
      return x.map(f => at.has(f) ? at.get(f) : f > e.frames ? null : undefined);
    })];
  }

  show(name) {
    this.chart?.destroy();
    this.chart = null;
    const { width, height } = this.plot.getBoundingClientRect(), { tone } = theme;
    const axis = {
      stroke: tone.muted, grid: { stroke: tone.line, width: 1 }, ticks: { show: false }, font: AXIS_FONT,
    };
    const apart = this.episodes.some(e => e.ends), { fps } = this.episodes[0]; // frames differ from steps
    const stepped = apart && name !== "return";
    const inSeconds = apart && fps ? (chart, frames) => frames.map(f => `${+(f / fps).toFixed(2)} s`) : undefined;
    try {
      this.chart = new uPlot({
        width, height, legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
        scales: { x: { time: false, range: [0, this.frames] } },
        axes: [
          {
            ...axis, size: 24, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000],
            values: inSeconds,
          },
          { ...axis, size: 54, space: 24 },
        ],
        series: [{}, ...this.episodes.map((e, k) => ({
          label: e.policy, stroke: paletteColour(k), width: 2.2, dash: DASHES[k], points: { show: e.steps < 1 },
          paths: stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
        }))],
        hooks: { ready: [chart => this.listen(chart)] },
      }, this.table(name), this.plot);
    } catch {
      this.plot.textContent = "This browser could not start the chart; everything else works.";
    }
    this.now(this.pos);
  }

  listen(chart) {
    const { over } = chart, go = e => this.seek(chart.posToVal(e.clientX - over.getBoundingClientRect().left, "x"));
    over.appendChild(this.line);
    over.addEventListener("pointerdown", e => { over.setPointerCapture(e.pointerId); go(e); });
    over.addEventListener("pointermove", e => { if (e.buttons & 1) go(e); });
  }

  now(pos) {
    this.pos = pos;
    if (this.chart) this.line.style.transform = `translateX(${this.chart.valToPos(Math.min(pos, this.frames), "x")}px)`;
  }
}
