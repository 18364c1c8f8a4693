// Parses the page's JSON into episodes with values by frame. Invalid data raises a DataError.

const ARRAYS = new Map([
  ["uint8", Uint8Array], ["int16", Int16Array], ["int32", Int32Array], ["float32", Float32Array],
  ["float64", Float64Array],
]);
const MOST_BYTES = 64 * 2 ** 20;

class DataError extends Error {}

function must(holds, sentence) {
  if (!holds) throw new DataError(sentence);
}

const product = shape => shape.reduce((a, b) => a * b, 1);

function bytesOf(text) {
  let raw;
  try { raw = atob(text); } catch { throw new DataError("a column is not base64"); }
  return Uint8Array.from(raw, c => c.charCodeAt(0));
}

// zlib, read in chunks: stops as soon as a column inflates beyond the size of its shape.
async function inflate(text, want) {
  must(typeof text === "string" && want <= MOST_BYTES, `a column of ${want} bytes is above ${MOST_BYTES}`);
  const reader = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate")).getReader();
  const out = new Uint8Array(want);
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read().catch(() => { throw new DataError("a column cannot be inflated"); });
    if (done) break;
    if (length + value.length > want) {
      reader.cancel().catch(() => {});
      throw new DataError(`a column has more than the ${want} bytes of its shape`);
    }
    out.set(value, length);
    length += value.length;
  }
  must(length === want, `a column has ${length} bytes, its shape says ${want}`);
  return out;
}

// {shape, data}: numbers in C order. A null among plain values is a number that is not finite.
async function column(c) {
  must(c && Array.isArray(c.shape) && c.shape.every(n => Number.isInteger(n) && n >= 0), "a column has no shape");
  if (c.values) {
    must(Array.isArray(c.values) && c.values.length === product(c.shape), `a column of ${c.shape} has other values`);
    return { shape: c.shape, data: Float64Array.from(c.values, v => v === null ? NaN : v) };
  }
  const Type = ARRAYS.get(c.dtype);
  must(Type, `a column has the type ${c.dtype}`);
  const bytes = await inflate(c.data, product(c.shape) * Type.BYTES_PER_ELEMENT);
  const wide = product(c.shape.slice(1));
  if (c.xor) for (let k = wide; k < bytes.length; k++) bytes[k] ^= bytes[k - wide];
  let data = new Type(bytes.buffer), shape = c.shape;
  if (c.delta) for (let k = wide; k < data.length; k++) data[k] += data[k - wide]; // wraps, as typed arrays do
  if (c.bits !== undefined) [data, shape] = unpackBits(data, shape, c.bits);
  if (c.scale !== undefined) data = Float64Array.from(data, x => c.scale * x + (c.offset ?? 0));
  return { shape, data };
}

function unpackBits(packed, shape, bits) {
  const wide = shape[shape.length - 1], rows = product(shape.slice(0, -1));
  must(Number.isInteger(bits) && bits >= 0 && wide === Math.ceil(bits / 8), `${bits} bits are not in ${wide} bytes`);
  must(rows * bits <= MOST_BYTES, `a column of ${rows * bits} flags is above ${MOST_BYTES}`);
  const data = new Uint8Array(rows * bits);
  for (let r = 0; r < rows; r++)
    for (let k = 0; k < bits; k++) data[r * bits + k] = (packed[r * wide + (k >> 3)] >> (k & 7)) & 1;
  return [data, [...shape.slice(0, -1), bits]];
}

// An attribute of a mark: at(t) is its value at frame t, a number, a text or an array; `still` if it never changes.
async function attribute(v, frames) {
  if (v === null || typeof v !== "object" || Array.isArray(v)) return { still: true, at: () => v };
  if (v.ragged) return raggedAttribute(await column(v.keep), await column(v.add), await column(v.flat), frames);
  if (v.const) {
    const c = await column(v.const), value = c.shape.length ? c.data : c.data[0];
    return { still: true, shape: c.shape, at: () => value };
  }
  if (v.texts) {
    const index = (await column(v.index)).data;
    must(index.length === frames + 1 && index.every(k => k < v.texts.length), "texts in time do not fit");
    return { still: false, at: t => v.texts[index[t]] };
  }
  const c = await column(v), wide = product(c.shape.slice(1));
  must(c.shape[0] === frames + 1, `an attribute has ${c.shape[0]} moments, the episode ${frames + 1}`);
  const at = c.shape.length === 1 ? t => c.data[t] : t => c.data.subarray(t * wide, (t + 1) * wide);
  return { still: false, shape: c.shape.slice(1), at };
}

// Lists over time: at frame t the first keep[t] entries of the list before, then add[t] new ones. Every 64th list is
// stored in full, so that seeking backwards is fast; `grows(t)`: no entry was removed at t.
function raggedAttribute(keep, add, flat, frames) {
  const every = 64, stored = [], starts = [], counts = [];
  must(keep.data.length === frames + 1 && add.data.length === frames + 1, "a list has other moments than the episode");
  let list = [], from = 0;
  const next = (before, t, start) => before.slice(0, keep.data[t]).concat(
    Array.from(flat.data.subarray(start, start + add.data[t])));
  for (let t = 0; t <= frames; t++) {
    must(keep.data[t] <= list.length, `at moment ${t} a list keeps ${keep.data[t]} of ${list.length}`);
    must(from + add.data[t] <= flat.data.length, `at moment ${t} a list has no more entries to add`);
    starts.push(from);
    // Most lists only grow: copying each of them would take quadratic time.
    if (keep.data[t] === list.length) for (let k = 0; k < add.data[t]; k++) list.push(flat.data[from + k]);
    else list = next(list, t, from);
    from += add.data[t];
    counts.push(list.length);
    if (t % every === 0) stored.push(list.slice());
  }
  const recent = new Map();
  const at = t => {
    if (recent.has(t)) return recent.get(t);
    let found = stored[Math.floor(t / every)];
    for (let k = Math.floor(t / every) * every + 1; k <= t; k++) found = next(found, k, starts[k]);
    if (recent.size > 3) recent.clear();
    recent.set(t, found);
    return found;
  };
  return { still: false, at, count: t => counts[t], grows: t => t > 0 && keep.data[t] === counts[t - 1] };
}

async function readMarks(raw, frames) {
  const marks = [];
  for (const item of raw) {
    const mark = { name: item.name, kind: item.kind };
    for (const [key, v] of Object.entries(item)) {
      if (key !== "name" && key !== "kind" && key !== "__proto__") mark[key] = await attribute(v, frames);
    }
    marks.push(mark);
  }
  for (const mark of marks) {
    if (mark.kind === "points") mark.n = mark.xy.at(0).length / 2;
    if (mark.kind === "bodies") mark.n = mark.pos.at(0).length / 3;
    if (mark.kind === "route") {
      mark.ground = marks.find(m => m.kind === "points" && m.name === mark.on.at(0));
      must(mark.ground, `the route ${mark.name} is on points that are not there`);
    }
  }
  return marks;
}

// Columns by name. A Map, since a name may be any text, even "__proto__".
async function readNamed(raw, length) {
  const found = new Map();
  for (const [name, c] of Object.entries(raw ?? {})) {
    const read = await column(c);
    must(read.shape[0] === length, `the figure ${name} has ${read.shape[0]} values, not ${length}`);
    found.set(name, read.data);
  }
  return found;
}

// The agent and its action of an index in the flat mask.
function locate(ep, index) {
  let left = index;
  for (let g = 0; g < ep.names.length; g++) {
    if (left < ep.names[g].length) return [g, left];
    left -= ep.names[g].length;
  }
  return [0, index];
}

async function readEpisode(raw) {
  must(raw && raw.format === "milkrun-episode" && raw.version === 1,
    `this reads milkrun-episode 1, not ${raw?.format} ${raw?.version}`);
  const steps = raw.steps, frames = raw.frames ?? steps;
  must(Number.isInteger(steps) && Number.isInteger(frames) && steps >= 0 && frames >= steps, "steps are not counted");
  const ep = {
    world: raw.world, policy: raw.policy, end: raw.end, objective: raw.objective ?? NaN, steps, frames,
    fps: raw.fps ?? 0, isCost: raw.is_cost === true, window: raw.window, camera: raw.camera ?? null,
    legend: raw.legend ?? [], chart: null,
    agents: raw.agents ?? [], names: raw.names ?? [], images: raw.images ?? [], actions: 0, mask: null,
    reasons: null, scores: null, illegalReasons: new Map(),
  };
  ep.ends = raw.ends ? Array.from((await column(raw.ends)).data) : null;
  must(!ep.ends || (ep.ends.length === steps && ep.ends.every((e, k) => e <= frames && (!k || e >= ep.ends[k - 1]))),
    "the ends of the steps do not fit the frames");
  ep.marks = await readMarks(raw.marks ?? [], frames);
  ep.action = await column(raw.action);
  ep.agentCount = ep.action.shape[1] ?? 1;
  ep.reward = (await column(raw.reward)).data;
  ep.illegal = (await column(raw.illegal)).data;
  must(ep.action.shape[0] === steps && ep.reward.length === steps, "actions and rewards do not fit the steps");
  ep.series = await readNamed(raw.series, steps + 1);
  ep.gauges = await readNamed(raw.gauges, steps + 1);
  if (raw.mask) {
    const mask = await column(raw.mask);
    ep.mask = mask.data;
    ep.actions = mask.shape[1];
    must(ep.mask.length === ep.actions * (steps + 1), "the mask does not fit the steps");
  }
  if (raw.why) {
    ep.reasons = { texts: raw.why.texts, index: (await column(raw.why.index)).data };
    must(ep.reasons.index.length === ep.actions * (steps + 1), "the reasons do not fit the mask");
  }
  if (raw.scores) ep.scores = (await column(raw.scores)).data;
  for (const [step, agent, text] of raw.illegal_reasons ?? []) {
    const at = ep.illegalReasons.get(step) ?? [];
    ep.illegalReasons.set(step, [...at, [agent, text]]);
  }
  if (raw.chart) ep.chart = await readChart(raw.chart, frames);
  ep.allowed = (s, index) => ep.mask ? ep.mask[s * ep.actions + index] === 1 : true;
  ep.why = (s, index) => ep.reasons?.texts[ep.reasons.index[s * ep.actions + index]] ?? "";
  ep.stepAt = f => stepAt(ep, f);
  ep.frameOf = s => ep.ends ? (s <= 0 ? 0 : ep.ends[Math.min(s, steps) - 1]) : Math.min(Math.max(0, s), steps);
  return ep;
}

// The number of steps done at frame f. A step takes one frame, or as many as its simulator showed.
function stepAt(ep, f) {
  if (!ep.ends) return Math.min(ep.steps, Math.floor(f + 1e-6));
  let low = 0, high = ep.steps;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ep.ends[middle] <= f + 1e-6) low = middle + 1; else high = middle;
  }
  return low;
}

async function readChart(raw, frames) {
  const chart = {
    lanes: raw.lanes, unit: raw.unit ?? "step", bars: raw.bars ?? [], marks: raw.marks ?? [],
    windows: raw.windows ?? [], kinds: new Map(Object.entries(raw.kinds ?? {})), clock: null, heat: null,
  };
  if (raw.clock) {
    chart.clock = (await column(raw.clock)).data;
    must(chart.clock.length === frames + 1, "the chart's clock does not fit the frames");
  }
  if (raw.heat) {
    const { title, at } = raw.heat, { shape: [rows, columns], data: values } = await column(raw.heat.values);
    must(Array.isArray(at) && at.length === columns, "the heat's columns have no frames");
    chart.heat = { title, rows, columns, values, at };
  }
  return chart;
}
