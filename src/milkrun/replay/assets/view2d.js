// The picture of a flat world: points, routes, vehicles and lines of one episode, at any position between two frames.
// Marks that stand still between two frames are on cached layers, drawn when a frame is first shown; only points whose
// look changed are drawn again. Vehicles and the current leg are drawn each time, on a second canvas above, of which
// only the drawn parts are cleared.

const TURN = 2 * Math.PI;
const MOST_NAMED = 150; // points whose names are written; more would cover the picture
const LABEL_FONT = "600 10.5px system-ui, sans-serif";

class View2D {
  constructor(stage, ep, options) {
    this.ep = ep;
    this.options = options;
    this.stage = stage;
    this.canvas = stage.appendChild(document.createElement("canvas"));
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `picture of ${ep.policy}`);
    this.still = this.canvas.getContext("2d");
    this.over = stage.appendChild(el("canvas", "over"));
    this.pen = this.over.getContext("2d");
    this.box = null; // the drawn part of it: left, top, right, bottom
    this.points = ep.marks.filter(m => m.kind === "points");
    this.routes = ep.marks.filter(m => m.kind === "route").map(m => new Route(m));
    this.vehicles = ep.marks.filter(m => m.kind === "vehicle");
    this.lines = ep.marks.filter(m => m.kind === "line");
    this.looks = new Map(this.points.map(m => [m, []]));
    this.at = this.hover = null; // the position of the pointer, and the mark below it
    this.layersDrawn = this.pointsDrawn = 0;
    this.reset();
    this.listen();
    new ResizeObserver(() => this.resize()).observe(stage);
    this.resize();
  }

  reset() {
    this.zoom = 1;
    this.shift = [0, 0];
    this.options.redraw();
  }

  resize() {
    const box = this.stage.getBoundingClientRect();
    this.ratio = Math.min(2, devicePixelRatio || 1);
    this.width = box.width;
    this.height = box.height;
    this.canvas.width = this.over.width = Math.max(1, Math.round(box.width * this.ratio));
    this.canvas.height = this.over.height = Math.max(1, Math.round(box.height * this.ratio));
    this.box = null;
    this.seen = "";
    this.options.redraw();
  }

  // Maps the world's window to the screen; a side without extent does not bound the scale.
  fit() {
    const [x0, y0, x1, y1] = this.ep.window, side = Math.min(26, this.width / 12), top = 24, below = 18;
    const wide = (this.width - 2 * side) / (x1 - x0), high = (this.height - top - below) / (y1 - y0);
    const least = Math.min(wide, high), scale = Number.isFinite(least) && least > 0 ? least : 1;
    this.scale = scale * this.zoom;
    this.left = (this.width / 2 - scale * (x0 + x1) / 2) * this.zoom + this.shift[0];
    this.foot = ((this.height + top - below) / 2 + scale * (y0 + y1) / 2) * this.zoom + this.shift[1];
  }

  px(x, y) { return [this.left + this.scale * x, this.foot - this.scale * y]; }

  // -- drawing --------------------------------------------------------------------------------------------------

  draw(pos) {
    this.fit();
    const { ep } = this, t = Math.min(ep.frames, Math.floor(pos + 1e-9)), next = Math.min(ep.frames, t + 1);
    const share = Math.min(1, Math.max(0, pos - t));
    this.drawLayers(t);
    const { pen } = this;
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.lineCap = pen.lineJoin = "round";
    this.clearOver();
    for (const route of this.routes) this.drawLegUnderWay(route, t, next, share);
    for (const line of this.lines) this.drawLine(line, t, next, share);
    for (const vehicle of this.vehicles) if (vehicle.shown?.at(t) ?? true) this.drawVehicle(vehicle, t, next, share);
    this.point();
    this.drawHover();
  }

  layer() {
    const pen = new OffscreenCanvas(this.canvas.width, this.canvas.height).getContext("2d");
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.lineCap = pen.lineJoin = "round";
    return pen;
  }

  clear(pen) { pen.clearRect(0, 0, this.width, this.height); }

  // Extends the box of the upper canvas that must be cleared before the next frame.
  touch(x, y, reach) {
    const [left, top, right, bottom] = this.box ?? [x, y, x, y];
    this.box = [
      Math.min(left, x - reach), Math.min(top, y - reach), Math.max(right, x + reach), Math.max(bottom, y + reach),
    ];
  }

  clearOver() {
    if (!this.box) return;
    const [left, top] = this.box.slice(0, 2).map(Math.floor), [right, bottom] = this.box.slice(2).map(Math.ceil);
    this.pen.clearRect(left, top, right - left, bottom - top);
    this.box = null;
  }

  drawLayers(t) {
    const { masks, labels } = this.options;
    const seen = [this.zoom, ...this.shift, this.width, this.height, this.ratio, theme.dark, masks(), labels()].join();
    if (seen === this.seen && t === this.t) return;
    const restart = seen !== this.seen;
    if (restart) {
      this.thick = this.thin = this.trails = null;
      if (this.routes.length) [this.thin, this.thick] = [this.layer(), this.layer()];
      if (this.vehicles.some(v => v.trail?.at(0))) this.trails = this.layer();
      this.dots = this.layer();
      this.sprites = new Sprites(this.ratio);
    }
    const isNext = !restart && t === this.t + 1;
    this.drawRoutes(t, isNext);
    if (this.trails) {
      this.clear(this.trails);
      for (const vehicle of this.vehicles) if (vehicle.trail?.at(t)) this.drawTrail(vehicle, t);
    }
    this.drawPoints(t, restart);
    this.still.setTransform(1, 0, 0, 1, 0, 0);
    this.still.clearRect(0, 0, this.canvas.width, this.canvas.height);
    for (const layer of [this.thin, this.thick, this.trails, this.dots]) {
      if (layer) this.still.drawImage(layer.canvas, 0, 0);
    }
    this.seen = seen;
    this.t = t;
    this.layersDrawn++;
  }

  // -- routes ---------------------------------------------------------------------------------------------------

  // Legs at the depot go on the thin layer, the others on the thick one. If all routes only grew, only new legs are
  // drawn. All legs are opaque and in the order of the route, so both ways look the same.
  drawRoutes(t, isNext) {
    if (!this.routes.length) return;
    const grown = isNext && this.routes.every(r => r.mark.stops.still || r.grows(t));
    if (!grown) {
      this.clear(this.thin);
      this.clear(this.thick);
      this.owners = new Map(this.points.map(m => [m, new Int32Array(m.n).fill(-1)]));
    }
    for (const [k, route] of this.routes.entries()) {
      const { mark, cut } = route, stops = mark.stops.at(t), trips = route.trips(t), n = stops.length;
      const from = grown ? mark.stops.count(t - 1) : 0, end = route.closed && n > 2 ? n + 1 : n;
      for (let i = Math.max(1, from); i < end; i++) {
        this.leg(route, t, stops[i - 1], stops[i % n], trips[Math.min(i, n - 1)]);
      }
      if (mark.paint?.at(0) === false || mark.paint?.at(0) === 0) continue;
      const owner = this.owners.get(mark.ground);
      for (let i = from; i < n; i++) if (stops[i] !== cut) owner[stops[i]] = trips[i] + k;
    }
  }

  leg(route, t, a, b, trip) {
    if (route.open && b === route.cut) return;
    const xy = route.mark.ground.xy.at(t), home = a === route.cut || b === route.cut;
    const pen = home ? this.thin : this.thick;
    pen.beginPath();
    pen.moveTo(...this.px(xy[2 * a], xy[2 * a + 1]));
    pen.lineTo(...this.px(xy[2 * b], xy[2 * b + 1]));
    this.legStyle(pen, route, trip, home);
    pen.stroke();
  }

  legStyle(pen, route, trip, home) {
    const colour = paletteColour(trip + this.routes.indexOf(route)), small = route.mark.ground.n > 200 ? .6 : 1;
    pen.strokeStyle = home ? mixed(colour, theme.tone.card, .5) : colour;
    pen.lineWidth = (home ? 1.2 : 2.6) * small;
  }

  // The current leg up to the position shown; stores its end and direction in route.head.
  drawLegUnderWay(route, t, next, share) {
    const { mark } = route, xy = mark.ground.xy.at(t), { pen } = this;
    route.head = null;
    if (share === 0 || next === t || !route.grows(next)) return;
    if (route.open && mark.stops.at(next).at(-1) === route.cut) return;
    const stops = mark.stops.at(next), trips = route.trips(next), first = Math.max(1, mark.stops.count(t));
    const between = (a, b) => Math.hypot(xy[2 * b] - xy[2 * a], xy[2 * b + 1] - xy[2 * a + 1]);
    const length = i => between(stops[i - 1], stops[i]);
    let left = 0;
    for (let i = first; i < stops.length; i++) left += length(i);
    left *= share;
    for (let i = first; i < stops.length && left > 0; i++) {
      const a = stops[i - 1], b = stops[i], s = Math.min(1, left / length(i));
      left -= length(i);
      const x = xy[2 * a] + (xy[2 * b] - xy[2 * a]) * s, y = xy[2 * a + 1] + (xy[2 * b + 1] - xy[2 * a + 1]) * s;
      pen.beginPath();
      pen.moveTo(...this.px(xy[2 * a], xy[2 * a + 1]));
      pen.lineTo(...this.px(x, y));
      this.legStyle(pen, route, trips[i], a === route.cut || b === route.cut);
      pen.stroke();
      for (const j of [a, b]) {
        this.stamp(pen, mark.ground, j);
        this.touch(mark.ground.screen[2 * j], mark.ground.screen[2 * j + 1], this.looks.get(mark.ground)[j].half + 2);
      }
      route.head = [x, y, Math.atan2(xy[2 * b + 1] - xy[2 * a + 1], xy[2 * b] - xy[2 * a])];
    }
  }

  // -- points ---------------------------------------------------------------------------------------------------

  radius(mark, j, t) {
    const many = mark.n > 400, base = many ? 2 : mark.n > 150 ? 3 : 4.2;
    const given = mark.size ? mark.size.at(t) : .35, size = typeof given === "number" ? given : given[j];
    const small = Math.min(1, Math.max(.7, Math.min(this.width, this.height) / 420));
    return Math.round((base + (many ? 2.2 : 6) * size) * small * Math.min(2.2, Math.sqrt(this.zoom)) * 4) / 4;
  }

  // The changing look of a point as one number: colour, level, whether it is allowed and due. Few points change it in a
  // step.
  stateOf(mark, j, step, { colours, owner, levels, rings, action }) {
    const code = colours === null ? owner?.[j] >= 0 ? FIRST_OF_PALETTE + owner[j] % 10 : 0
      : typeof colours === "number" ? colours : colours[j];
    const level = levels && Number.isFinite(levels[j]) ? 1 + Math.round(Math.min(1, Math.max(0, levels[j])) * 24) : 0;
    let can = 0; // 0: not shown, 1: not allowed, 2: allowed
    if (action) {
      can = 1;
      for (let k = j; k < action.length; k += mark.n) if (action[k] >= 0 && this.ep.allowed(step, action[k])) can = 2;
    }
    return code | level << 8 | can << 16 | (rings?.[j] ? 1 : 0) << 18;
  }

  // The cached picture of a point in a state.
  look(mark, j, t, state, { shape, colours }) {
    const code = state & 255, can = state >> 16 & 3, { tone } = theme;
    const square = (Array.isArray(shape) ? shape[j] : shape) === "square", level = square ? -1 : (state >> 8 & 255) - 1;
    const outline = square ? "square" : code === LATE ? "diamond" : "disc"; // readable without colours
    const inked = square && colours === null && !code;
    const fill = code ? colourOf(code) : inked ? tone.ink : tone.card;
    return this.sprites.get(outline, this.radius(mark, j, t), fill, code || inked ? tone.card : tone.waiting, level, {
      faint: can === 1 && fill === tone.card && level < 0,
      ring: can === 2 ? (mark.n > 400 ? 1 : 2) : 0,
      due: state >> 18 === 1,
    });
  }

  drawPoints(t, restart) {
    const { ep } = this, step = ep.stepAt(t), changed = [];
    this.t = t;
    for (const mark of this.points) {
      const xy = mark.xy.at(t), looks = this.looks.get(mark);
      const shown = this.options.masks() && ep.mask && step < ep.steps;
      const now = {
        colours: mark.colour ? mark.colour.at(t) : null, owner: this.owners?.get(mark), shape: mark.shape.at(t),
        levels: mark.level?.at(t), rings: mark.ring?.at(t), action: shown ? mark.action?.at(t) : null,
      };
      const resized = mark.size && !mark.size.still;
      if (restart || !mark.xy.still || !mark.screen) {
        mark.screen = new Float32Array(2 * mark.n);
        for (let j = 0; j < mark.n; j++) mark.screen.set(this.px(xy[2 * j], xy[2 * j + 1]), 2 * j);
        mark.cells = null;
        restart ||= !mark.xy.still;
      }
      if (restart || !mark.states) mark.states = new Int32Array(mark.n).fill(-1);
      for (let j = 0; j < mark.n; j++) {
        const state = this.stateOf(mark, j, step, now), old = looks[j];
        if (state === mark.states[j] && !resized) continue;
        mark.states[j] = state;
        looks[j] = this.look(mark, j, t, state, now);
        if (looks[j] !== old) changed.push([mark, j, Math.max(looks[j].half, old?.half ?? 0)]);
      }
    }
    const all = this.points.reduce((sum, m) => sum + m.n, 0);
    const named = this.options.labels() && all <= MOST_NAMED && this.points.some(m => this.labelsOf(m));
    if (restart || (named && changed.length) || changed.length > all / 4) this.drawAllPoints(named);
    else if (changed.length) this.drawChangedPoints(changed);
  }

  drawAllPoints(named) {
    this.clear(this.dots);
    for (const mark of this.points) for (let j = 0; j < mark.n; j++) this.stamp(this.dots, mark, j);
    for (const mark of this.points) this.pointsDrawn += mark.n;
    if (named) this.drawNames();
  }

  // Clears the boxes of changed points and redraws, once and in order, all points that reach into them.
  drawChangedPoints(changed) {
    const { dots } = this, again = new Map(this.points.map(m => [m, new Set()]));
    dots.save();
    dots.beginPath();
    for (const [mark, j, half] of changed) {
      const x = mark.screen[2 * j], y = mark.screen[2 * j + 1], h = Math.ceil(half) + 1;
      dots.rect(Math.floor(x - h), Math.floor(y - h), 2 * h + 1, 2 * h + 1);
      for (const other of this.points) for (const k of this.near(other, x, y, h)) again.get(other).add(k);
    }
    dots.clip();
    this.clear(dots);
    for (const [mark, set] of again) {
      for (const j of [...set].sort((a, b) => a - b)) this.stamp(dots, mark, j);
      this.pointsDrawn += set.size;
    }
    dots.restore();
  }

  // Points whose picture may reach into a box, found by a grid of cells.
  near(mark, x, y, h) {
    const cell = 32, reach = 20, looks = this.looks.get(mark), found = [];
    const key = (a, b) => a * 65536 + b, cellOf = v => Math.floor(v / cell);
    if (!mark.cells) {
      mark.cells = new Map();
      for (let j = 0; j < mark.n; j++) {
        const k = key(cellOf(mark.screen[2 * j]), cellOf(mark.screen[2 * j + 1])), listed = mark.cells.get(k);
        if (listed) listed.push(j); else mark.cells.set(k, [j]);
      }
    }
    for (let a = cellOf(x - h - reach); a <= cellOf(x + h + reach); a++)
      for (let b = cellOf(y - h - reach); b <= cellOf(y + h + reach); b++)
        for (const j of mark.cells.get(key(a, b)) ?? []) {
          const half = looks[j].half + h + 1;
          if (Math.abs(mark.screen[2 * j] - x) < half && Math.abs(mark.screen[2 * j + 1] - y) < half) found.push(j);
        }
    return found;
  }

  stamp(pen, mark, j) {
    const look = this.looks.get(mark)[j], whole = v => Math.round((v - look.half) * this.ratio) / this.ratio;
    const size = look.wide / this.ratio, x = whole(mark.screen[2 * j]), y = whole(mark.screen[2 * j + 1]);
    pen.drawImage(look.sheet, look.x, look.y, look.wide, look.wide, x, y, size, size);
  }

  // The world's labels; else the index in the text, after the first letter if it is a square, so that "customer 4" (4)
  // and "node 4" (n4) differ.
  labelsOf(mark) {
    const shape = mark.shape.at(0), isSquare = j => (Array.isArray(shape) ? shape[j] : shape) === "square";
    const letter = (words, j) => isSquare(j) ? words[0] : "";
    const index = (words, j) => words.split(/\W/).includes(`${j}`) ? `${letter(words, j)}${j}` : "";
    mark.labels ??= mark.label?.at(0) ?? mark.text?.at(0)?.map(index) ?? null;
    return mark.labels;
  }

  // A name is written in its point if it fits, else beside it where nothing is covered, else not at all.
  drawNames() {
    const { dots: pen } = this, taken = [];
    pen.font = LABEL_FONT;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    const isFree = box => !taken.some(b => box[0] < b[2] && b[0] < box[2] && box[1] < b[3] && b[1] < box[3]);
    for (const mark of this.points) for (let j = 0; j < mark.n; j++) {
      const r = this.radius(mark, j, this.t) - 1, x = mark.screen[2 * j], y = mark.screen[2 * j + 1];
      taken.push([x - r, y - r, x + r, y + r]);
    }
    for (const mark of this.points) {
      const labels = this.labelsOf(mark), looks = this.looks.get(mark);
      for (let j = 0; labels && j < mark.n; j++) {
        if (!labels[j]) continue;
        const label = shorten(labels[j], 24), w = pen.measureText(label).width, r = this.radius(mark, j, this.t);
        const x = mark.screen[2 * j], y = mark.screen[2 * j + 1];
        if (w < 2 * r - 3 && r > 6.5 && looks[j].level < 0) {
          pen.fillStyle = textOn(looks[j].fill);
          pen.fillText(label, x, y + .5);
          continue;
        }
        const away = r + 8, aside = r + w / 2 + 4;
        for (const [dx, dy] of [[0, -away], [aside, 0], [-aside, 0], [0, away], [aside, -r], [-aside, -r]]) {
          const box = [x + dx - w / 2, y + dy - 5, x + dx + w / 2, y + dy + 5];
          if (!isFree(box)) continue;
          taken.push(box);
          pen.lineWidth = 3;
          pen.strokeStyle = theme.tone.card;
          pen.strokeText(label, x + dx, y + dy);
          pen.fillStyle = theme.tone.muted;
          pen.fillText(label, x + dx, y + dy);
          break;
        }
      }
    }
  }

  // -- vehicles -------------------------------------------------------------------------------------------------

  // The path of a vehicle, older parts paler; the whole path once the episode has ended.
  drawTrail(vehicle, t) {
    const from = t >= this.ep.frames ? 0 : Math.max(0, t - 60), per = Math.max(1, Math.ceil((t - from) / 6));
    const { trails: pen } = this, colour = colourOf(vehicle.colour.at(t));
    const isShown = k => vehicle.shown?.at(k) ?? true;
    pen.lineWidth = vehicle.shape.at(0) === "truck" ? 2.4 : 1.5;
    for (let p = from; p < t; p += per) {
      pen.beginPath();
      let down = false;
      for (let k = p; k <= Math.min(t, p + per); k++) {
        const [x, y] = this.px(...vehicle.xy.at(k));
        if (!isShown(k)) down = false;
        else if (down) pen.lineTo(x, y);
        else { pen.moveTo(x, y); down = true; }
      }
      pen.strokeStyle = mixed(colour, theme.tone.card, .15 + .5 * (p - from + per) / (t - from + per));
      pen.stroke();
    }
  }

  drawLine(line, t, next, share) {
    if (!(line.shown?.at(t) ?? true)) return;
    const { pen } = this, later = (line.shown?.at(next) ?? true) ? next : t;
    const mix = (key, k) => line[key].at(t)[k] + (line[key].at(later)[k] - line[key].at(t)[k]) * share;
    const ends = [this.px(mix("start", 0), mix("start", 1)), this.px(...line.end.at(t))];
    for (const [x, y] of ends) this.touch(x, y, 2);
    pen.beginPath();
    pen.moveTo(...ends[0]);
    pen.lineTo(...ends[1]);
    pen.strokeStyle = mixed(colourOf(line.colour.at(t)), theme.tone.card, .7);
    pen.lineWidth = 1.3;
    pen.setLineDash([2, 5]);
    pen.stroke();
    pen.setLineDash([]);
  }

  // The route of a vehicle: the one that ends at the vehicle, now and at the next frame.
  routeOf(vehicle, t, next) {
    const [x0, y0, x1, y1] = this.ep.window, near = Math.max(x1 - x0, y1 - y0) / 1000;
    const isAtEnd = (route, k) => {
      const stops = route.mark.stops.at(k), xy = route.mark.ground.xy.at(k), last = stops[stops.length - 1];
      const [x, y] = vehicle.xy.at(k);
      return stops.length > 0 && Math.abs(xy[2 * last] - x) < near && Math.abs(xy[2 * last + 1] - y) < near;
    };
    return this.routes.find(route => !route.closed && isAtEnd(route, t) && isAtEnd(route, next));
  }

  drawVehicle(vehicle, t, next, share) {
    const { pen } = this, [ax, ay] = vehicle.xy.at(t), [bx, by] = vehicle.xy.at(next);
    const head = this.routeOf(vehicle, t, next)?.head;
    const [x, y] = head ?? [ax + (bx - ax) * share, ay + (by - ay) * share], [px, py] = this.px(x, y);
    const colour = colourOf(vehicle.colour.at(t));
    this.touch(px, py, 18);
    pen.save();
    pen.translate(px, py);
    const shape = vehicle.shape.at(t), crashed = shape === "drone" && vehicle.colour.at(t) === LATE;
    VEHICLES.get(crashed ? "wreck" : shape)(pen, colour, head ? head[2] : this.heading(vehicle, t));
    pen.restore();
    const label = vehicle.label?.at(t), gauge = vehicle.gauge?.at(t);
    if (label && this.options.labels()) {
      pen.font = "600 11px system-ui, sans-serif";
      this.touch(px + 15 + pen.measureText(shorten(label, 24)).width, py - 9, 12);
      pen.textAlign = "left";
      pen.textBaseline = "middle";
      pen.lineWidth = 3.5;
      pen.strokeStyle = theme.tone.card;
      pen.strokeText(shorten(label, 24), px + 15, py - 9);
      pen.fillStyle = theme.tone.ink;
      pen.fillText(shorten(label, 24), px + 15, py - 9);
    }
    if (gauge !== undefined && this.options.labels()) {
      this.touch(px + 45, py + 2, 4);
      pen.fillStyle = theme.tone.grid;
      pen.fillRect(px + 15, py, 30, 4);
      pen.fillStyle = gauge < .25 ? theme.tone.late : colour;
      pen.fillRect(px + 15, py, 30 * Math.min(1, Math.max(0, gauge)), 4);
    }
  }

  // The direction of a vehicle: to its next position, else from its last one.
  heading(vehicle, t) {
    for (let k = t; k >= Math.max(0, t - 200); k--) {
      const a = vehicle.xy.at(k), b = vehicle.xy.at(Math.min(this.ep.frames, k + 1));
      if (a[0] !== b[0] || a[1] !== b[1]) return Math.atan2(b[1] - a[1], b[0] - a[0]);
    }
    return 0;
  }

  // -- pointing -------------------------------------------------------------------------------------------------

  listen() {
    const { canvas } = this, { redraw, tip } = this.options;
    canvas.addEventListener("pointermove", e => this.pointer(e));
    canvas.addEventListener("pointerdown", e => e.pointerType === "mouse" && canvas.setPointerCapture(e.pointerId));
    canvas.addEventListener("pointerleave", () => { this.at = null; tip(null); redraw(); });
    canvas.addEventListener("dblclick", () => this.reset());
    canvas.addEventListener("wheel", e => {
      e.preventDefault();
      const zoom = Math.min(40, Math.max(1, this.zoom * Math.exp(-e.deltaY / 400))), k = zoom / this.zoom;
      this.shift = zoom === 1 ? [0, 0] : [e.offsetX, e.offsetY].map((v, a) => v - (v - this.shift[a]) * k);
      this.zoom = zoom;
      redraw();
    }, { passive: false });
  }

  pointer(e) {
    this.at = null;
    if (e.pointerType === "mouse" && e.buttons & 1) {
      this.shift = [this.shift[0] + e.movementX, this.shift[1] + e.movementY];
      this.options.tip(null);
      this.options.redraw();
      return;
    }
    this.at = { x: e.offsetX, y: e.offsetY, page: [e.clientX, e.clientY] };
    const { mark, j } = this.hover ?? {};
    this.point();
    if (this.hover?.mark !== mark || this.hover?.j !== j) this.options.redraw();
  }

  // Shows the tooltip of the mark below the pointer. Called in every frame, since marks move below a resting pointer.
  point() {
    this.hover = null;
    if (!this.at) return;
    const { x, y, page } = this.at;
    let nearest = 18 ** 2;
    for (const mark of this.points) for (let j = 0; j < mark.n && mark.screen; j++) {
      const away = (mark.screen[2 * j] - x) ** 2 + (mark.screen[2 * j + 1] - y) ** 2;
      if (away < nearest) [nearest, this.hover] = [away, { mark, j }];
    }
    this.options.tip(this.hover && describe(this.ep, this.hover.mark, this.hover.j, this.options.pos()), ...page);
  }

  drawHover() {
    if (!this.hover) return;
    const { pen } = this, { mark, j } = this.hover, { half } = this.looks.get(mark)[j];
    this.touch(mark.screen[2 * j], mark.screen[2 * j + 1], half + 2);
    pen.beginPath();
    pen.arc(mark.screen[2 * j], mark.screen[2 * j + 1], half, 0, TURN);
    pen.strokeStyle = theme.tone.ink;
    pen.lineWidth = 2;
    pen.stroke();
  }
}

// The text of a point or body, and whether its action is allowed now, a line per agent.
function describe(ep, mark, j, pos) {
  const step = ep.stepAt(pos), lines = [mark.text ? mark.text.at(0)[j] : `${mark.name} ${j}`];
  if (!mark.action || !ep.mask || step >= ep.steps) return lines;
  const action = mark.action.at(Math.floor(pos));
  for (let k = j; k < action.length; k += mark.n) {
    if (action[k] < 0) continue;
    const prefix = action.length > mark.n ? `${ep.agents[locate(ep, action[k])[0]]}: ` : "";
    lines.push(prefix + permission(ep, step, action[k]));
  }
  return lines;
}

function permission(ep, step, index) {
  if (ep.allowed(step, index)) return "allowed";
  const why = ep.why(step, index);
  return why ? `not allowed: ${why}` : "not allowed";
}

// A route and its trips: a trip ends at the node `cut`.
class Route {
  constructor(mark) {
    this.mark = mark;
    this.cut = mark.cut?.at(0) ?? null;
    this.closed = Boolean(mark.closed?.at(0));
    this.open = Boolean(mark.open?.at(0));
    this.known = [-1, null];
  }

  grows(t) { return !this.closed && Boolean(this.mark.stops.grows?.(t)); }

  // The number of the trip that leads to each stop.
  trips(t) {
    if (this.known[0] === t) return this.known[1];
    const stops = this.mark.stops.at(t), trips = new Int32Array(stops.length);
    let trip = 0;
    for (let i = 0; i < stops.length; i++) {
      if (i > 1 && stops[i - 1] === this.cut && stops[i] !== this.cut) trip++;
      trips[i] = trip;
    }
    this.known = [t, trips];
    return trips;
  }
}

// Sprites: each look of a point is drawn once on a sheet and copied from there, which is fast for thousands of points.
class Sprites {
  constructor(ratio) {
    this.ratio = ratio;
    this.known = new Map();
    this.sheet = null;
  }

  get(shape, r, fill, edge, level, { faint, ring, due }) {
    const key = `${shape} ${r} ${fill} ${edge} ${level} ${faint} ${ring} ${due}`;
    if (!this.known.has(key)) this.known.set(key, this.make(shape, r, fill, edge, level, { faint, ring, due }));
    return this.known.get(key);
  }

  make(shape, r, fill, edge, level, { faint, ring, due }) {
    const far = shape === "diamond" ? 1.3 : 1, room = due ? 7.5 : ring === 2 ? 6.5 : 3.5;
    const wide = Math.ceil(2 * far * (r + room) * this.ratio);
    const look = { ...this.place(wide), wide, half: wide / this.ratio / 2, fill, level }, { tone } = theme;
    const pen = this.sheet.getContext("2d");
    pen.setTransform(this.ratio, 0, 0, this.ratio, look.x + wide / 2, look.y + wide / 2);
    const outline = more => {
      pen.beginPath();
      if (shape === "square") pen.roundRect(-r - more, -r - more, 2 * (r + more), 2 * (r + more), 3 + more / 2);
      else outlineStop(pen, 0, 0, shape === "diamond", far * (r + more), r + more);
    };
    outline(0);
    // A visited point is not hollow, even if it is empty: hollow rings mark allowed points.
    pen.fillStyle = level < 0 || fill === tone.card ? fill : mixed(fill, tone.card, .4);
    pen.fill();
    if (level > 0) {
      pen.save();
      pen.clip();
      pen.fillStyle = fill === tone.card ? tone.muted : fill;
      pen.fillRect(-r, r - 2 * r * level / 24, 2 * r, 2 * r);
      pen.restore();
      outline(0);
    }
    pen.lineWidth = 1.4;
    pen.strokeStyle = faint ? mixed(edge, tone.card, .55) : level < 0 ? edge : fill === tone.card ? tone.muted : fill;
    pen.stroke();
    if (ring) {
      outline(ring === 2 ? 3.6 : 1.8);
      pen.strokeStyle = tone.accent;
      pen.lineWidth = ring === 2 ? 1.6 : 1;
      pen.stroke();
    }
    if (due) {
      outline(5.8);
      pen.strokeStyle = tone.ink;
      pen.lineWidth = 1.6;
      pen.stroke();
    }
    return look;
  }

  // The next free square of a sheet, row by row; a new sheet when one is full.
  place(wide) {
    const side = Math.max(1024, wide);
    if (!this.sheet || this.x + wide > side) [this.x, this.y, this.high] = [0, (this.y ?? 0) + (this.high ?? 0) + 1, 0];
    if (!this.sheet || this.y + wide > side) {
      this.sheet = new OffscreenCanvas(side, side);
      [this.x, this.y, this.high] = [0, 0, 0];
    }
    const found = { sheet: this.sheet, x: this.x, y: this.y };
    this.x += wide + 1;
    this.high = Math.max(this.high, wide);
    return found;
  }
}

function roadVehicle(pen, colour, turn, cab) {
  pen.rotate(-turn);
  if (Math.abs(turn) > Math.PI / 2) pen.scale(1, -1);
  pen.fillStyle = colour;
  pen.strokeStyle = theme.tone.card;
  pen.lineWidth = 2.5;
  pen.beginPath();
  if (cab) {
    pen.roundRect(-13, -6.5, 17, 13, 2.5);
    pen.roundRect(5, -5.5, 8, 11, 2.5);
  } else pen.roundRect(-10, -5.5, 20, 11, 4.5);
  pen.stroke();
  pen.fill();
  pen.beginPath();
  pen.roundRect(cab ? 8.2 : 2.5, -4, 3, 8, 1);
  pen.fillStyle = theme.tone.card;
  pen.fill();
}

const VEHICLES = new Map([
  ["truck", (pen, colour, turn) => roadVehicle(pen, colour, turn, true)],
  ["car", (pen, colour, turn) => roadVehicle(pen, colour, turn, false)],
  ["drone", (pen, colour) => {
    pen.strokeStyle = theme.tone.card;
    pen.fillStyle = colour;
    pen.lineWidth = 2;
    for (const [x, y] of [[-6, -6], [6, -6], [-6, 6], [6, 6]]) {
      pen.beginPath();
      pen.arc(x, y, 4.2, 0, TURN);
      pen.stroke();
      pen.fill();
    }
    pen.beginPath();
    pen.roundRect(-4.5, -4.5, 9, 9, 2.5);
    pen.stroke();
    pen.fill();
  }],
  ["wreck", (pen, colour) => cross(pen, 0, 0, 7, colour)],
  ["disc", (pen, colour) => {
    pen.beginPath();
    pen.arc(0, 0, 6, 0, TURN);
    pen.fillStyle = colour;
    pen.strokeStyle = theme.tone.card;
    pen.lineWidth = 2.5;
    pen.stroke();
    pen.fill();
  }],
]);
