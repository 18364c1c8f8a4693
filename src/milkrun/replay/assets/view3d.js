// The picture of a world of solid bodies, with light, shadow and a grid on the ground. Drag turns, the wheel zooms, F
// follows the body that the camera names. Drawing, shadows, picking and orbiting come from three.js.

class View3D {
  constructor(stage, ep, options) {
    this.ep = ep;
    this.options = options;
    this.stage = stage;
    this.layersDrawn = this.pointsDrawn = 0;
    this.following = Boolean(ep.camera?.follow);
    this.started = this.start();
    if (!this.started) {
      const notice = "This browser has no WebGL, so bodies are not shown; everything else works.";
      stage.appendChild(el("p", "notice", notice));
    }
  }

  start() {
    try {
      this.renderer = new THREE.WebGLRenderer({ antialias: true, powerPreference: "low-power" });
    } catch {
      return false;
    }
    this.renderer.shadowMap.enabled = true;
    this.renderer.shadowMap.type = THREE.PCFShadowMap;
    this.canvas = this.stage.appendChild(this.renderer.domElement);
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `picture of ${this.ep.policy}`);
    const name = this.ep.camera?.follow;
    this.followedMark = this.ep.marks.find(m => m.kind === "bodies" && m.name === name);
    this.scene = new THREE.Scene();
    this.at = null; // the position of the pointer
    this.caster = new THREE.Raycaster();
    this.makeCamera();
    this.makeGround();
    this.makeBodies();
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.stage);
    this.resize();
    return true;
  }

  // -- setup ----------------------------------------------------------------------------------------------------

  makeCamera() {
    const [x0, y0, z0, x1, y1, z1] = this.ep.window, { camera } = this.ep;
    this.far = Math.hypot(x1 - x0, y1 - y0, z1 - z0) || 1;
    this.middle = [(x0 + x1) / 2, (y0 + y1) / 2, z0 + (z1 - z0) * .22];
    const [x, y, z] = this.middle, { far } = this;
    this.home = camera?.position ?? [x - far * .16, y - far * .98, z + far * .74];
    this.lookAt = camera?.look_at ?? this.middle;
    const away = this.away = Math.hypot(...this.home.map((v, k) => v - this.lookAt[k]));
    this.camera = new THREE.PerspectiveCamera(camera ? 46 : 34, 1, Math.max(far, away) / 500, Math.max(far, away) * 20);
    this.camera.up.set(0, 0, 1);
    this.controls = new THREE.OrbitControls(this.camera, this.canvas);
    this.controls.maxPolarAngle = 1.52; // never below the ground
    this.controls.addEventListener("change", () => this.options.redraw());
    this.reset();
  }

  reset() {
    if (!this.camera) return;
    this.camera.position.set(...this.home);
    this.controls.target.set(...this.lookAt);
    // The camera starts relative to the first frame, whichever is shown, and follows from there.
    this.followed = this.followedMark ? Array.from(this.followedMark.pos.at(0).slice(0, 3)) : null;
    this.controls.update();
    this.options.redraw();
  }

  // Browsers limit the number of WebGL contexts: a view that is no longer shown releases its own.
  dispose() {
    if (!this.started) return;
    this.started = false;
    this.controls.dispose();
    this.renderer.dispose();
    this.renderer.forceContextLoss();
  }

  follow() {
    this.following = !this.following && Boolean(this.ep.camera?.follow);
    this.followed = null;
    this.options.redraw();
  }

  makeGround() {
    const { far, middle: [x, y, z], scene } = this, z0 = this.ep.window[2];
    scene.add(new THREE.HemisphereLight(0xffffff, 0x8d99a8, 1.7));
    const sun = new THREE.DirectionalLight(0xffffff, 2.1), { shadow } = sun;
    sun.position.set(x - far * .5, y - far * .35, z + far * 1.3);
    sun.target.position.set(x, y, z);
    sun.castShadow = true;
    shadow.mapSize.set(2048, 2048);
    shadow.camera.left = shadow.camera.bottom = -far * .75;
    shadow.camera.right = shadow.camera.top = far * .75;
    shadow.camera.near = far * .05;
    shadow.camera.far = far * 4;
    shadow.bias = -.0006;
    shadow.normalBias = far * .004;
    scene.add(sun, sun.target);
    this.ground = new THREE.Mesh(new THREE.PlaneGeometry(far * 12, far * 12), new THREE.MeshLambertMaterial());
    this.ground.receiveShadow = true;
    this.ground.position.set(x, y, z0 - far * .0005);
    scene.add(this.ground);
    const cell = 10 ** Math.round(Math.log10(far / 12)), ends = [], count = 40;
    // In short pieces: a line that reaches behind the camera may disappear.
    for (let k = -count; k <= count; k++) {
      for (let j = -count; j < count; j += 2) {
        const [at, from, to] = [k * cell, j * cell, (j + 2) * cell];
        ends.push(at, from, 0, at, to, 0, from, at, 0, to, at, 0);
      }
    }
    const net = new THREE.BufferGeometry();
    net.setAttribute("position", new THREE.Float32BufferAttribute(ends, 3));
    this.net = new THREE.LineSegments(net, new THREE.LineBasicMaterial());
    this.net.position.set(Math.round(x / cell) * cell, Math.round(y / cell) * cell, z0 + far * .001);
    scene.add(this.net);
    scene.fog = new THREE.Fog(0xffffff, far * 1.8, far * 4.5);
    scene.background = new THREE.Color();
  }

  // Bodies of a mark with the same shape are drawn as instances.
  makeBodies() {
    const cylinder = new THREE.CylinderGeometry(.5, .5, 1, 40).rotateX(Math.PI / 2); // its axis is z
    const shapes = new Map([
      ["box", new THREE.BoxGeometry(1, 1, 1)], ["cylinder", cylinder], ["sphere", new THREE.SphereGeometry(.5, 32, 20)],
    ]);
    this.groups = [];
    for (const mark of this.ep.marks) {
      if (mark.kind !== "bodies") continue;
      const kinds = mark.shape.at(0), kindOf = i => Array.isArray(kinds) ? kinds[i] : kinds;
      const all = Array.from({ length: mark.n }, (_, i) => i), glass = Boolean(mark.transparent?.at(0));
      for (const kind of new Set(all.map(kindOf))) {
        const which = all.filter(i => kindOf(i) === kind);
        const material = new THREE.MeshStandardMaterial({
          roughness: .72, transparent: glass, opacity: glass ? .25 : 1, depthWrite: !glass,
        });
        const mesh = new THREE.InstancedMesh(shapes.get(kind), material, which.length);
        mesh.castShadow = !glass;
        mesh.receiveShadow = true;
        mesh.frustumCulled = false;
        this.scene.add(mesh);
        this.groups.push({ mark, which, mesh });
      }
    }
    this.lines = this.ep.marks.filter(mark => mark.kind === "line").map(mark => {
      const mesh = new THREE.Mesh(shapes.get("box"), new THREE.MeshLambertMaterial());
      this.scene.add(mesh);
      return { mark, mesh };
    });
    // The target's outline is visible through bodies on top of it.
    this.outline = new THREE.LineSegments(
      new THREE.EdgesGeometry(shapes.get("box")), new THREE.LineBasicMaterial({ depthTest: false }));
    this.outline.renderOrder = 1;
    this.scene.add(this.outline);
  }

  resize() {
    const { width, height } = this.stage.getBoundingClientRect();
    this.renderer.setPixelRatio(Math.min(2, devicePixelRatio || 1));
    this.renderer.setSize(width, height, false);
    this.camera.aspect = width / Math.max(1, height);
    this.camera.updateProjectionMatrix();
    this.options.redraw();
  }

  // -- drawing --------------------------------------------------------------------------------------------------

  draw(pos) {
    if (!this.started) return;
    const { ep, scene } = this, t = Math.min(ep.frames, Math.floor(pos + 1e-9)), next = Math.min(ep.frames, t + 1);
    const share = Math.min(1, Math.max(0, pos - t));
    scene.background.set(theme.tone.soft);
    scene.fog.color.set(theme.tone.soft);
    this.ground.material.color.set(theme.tone.soft);
    this.net.material.color.set(theme.tone.net);
    this.outline.visible = false;
    for (const group of this.groups) this.place(group, t, next, share);
    for (const line of this.lines) this.lay(line, t, next, share);
    if (this.following) this.followTo(t, next, share);
    this.renderer.render(scene, this.camera);
    this.point();
  }

  place({ mark, which, mesh }, t, next, share) {
    const pos = mark.pos.at(t), later = mark.pos.at(next), quat = mark.quat.at(t), turned = mark.quat.at(next);
    const sizes = mark.size.at(t), colours = mark.colour ? mark.colour.at(t) : FIRST_OF_PALETTE;
    const faint = mark.faint?.at(t), target = mark.target?.at(t) ?? -1;
    const matrix = new THREE.Matrix4(), colour = new THREE.Color();
    const at = new THREE.Vector3(), to = new THREE.Vector3(), size = new THREE.Vector3();
    const q = new THREE.Quaternion(), r = new THREE.Quaternion();
    which.forEach((i, k) => {
      at.set(pos[3 * i], pos[3 * i + 1], pos[3 * i + 2]);
      to.set(later[3 * i], later[3 * i + 1], later[3 * i + 2]);
      q.set(quat[4 * i + 1], quat[4 * i + 2], quat[4 * i + 3], quat[4 * i]);
      r.set(turned[4 * i + 1], turned[4 * i + 2], turned[4 * i + 3], turned[4 * i]);
      if (at.distanceTo(to) < this.far / 4) { // a longer move within a frame is a jump
        at.lerp(to, share);
        q.slerp(r, share);
      }
      q.normalize();
      size.set(sizes[3 * i], sizes[3 * i + 1], sizes[3 * i + 2]);
      mesh.setMatrixAt(k, matrix.compose(at, q, size));
      colour.set(colourOf(typeof colours === "number" ? colours : colours[i]));
      if (faint?.[i]) colour.lerp(new THREE.Color(0xffffff), .5);
      if (i === target) {
        colour.lerp(new THREE.Color(0xffffff), .2);
        this.outline.visible = true;
        this.outline.position.copy(at);
        this.outline.quaternion.copy(q);
        this.outline.scale.copy(size).multiplyScalar(1.05);
        this.outline.material.color.set(theme.tone.outline);
      }
      mesh.setColorAt(k, colour);
    });
    mesh.instanceMatrix.needsUpdate = mesh.instanceColor.needsUpdate = true;
    mesh.computeBoundingSphere();
  }

  // A line is a strip on the ground, wide enough to be visible from the camera's start.
  lay({ mark, mesh }, t, next, share) {
    const between = (value, k) => value.at(t)[k] + (value.at(next)[k] - value.at(t)[k]) * share;
    const [x0, y0, x1, y1] = [mark.start, mark.end].flatMap(value => [between(value, 0), between(value, 1)]);
    mesh.visible = Boolean(mark.shown?.at(t) ?? true);
    mesh.position.set((x0 + x1) / 2, (y0 + y1) / 2, this.ep.window[2] + this.away / 300);
    mesh.rotation.z = Math.atan2(y1 - y0, x1 - x0);
    mesh.scale.set(Math.hypot(x1 - x0, y1 - y0) || 1e-9, this.away / 120, this.away / 300);
    mesh.material.color.set(colourOf(mark.colour.at(t)));
  }

  // The camera keeps its position relative to the followed body.
  followTo(t, next, share) {
    const mark = this.followedMark;
    if (!mark) return;
    const a = mark.pos.at(t), b = mark.pos.at(next), here = [0, 1, 2].map(k => a[k] + (b[k] - a[k]) * share);
    if (this.followed) {
      const moved = new THREE.Vector3(...here.map((v, k) => v - this.followed[k]));
      this.camera.position.add(moved);
      this.controls.target.add(moved);
      this.camera.lookAt(this.controls.target);
    }
    this.followed = here;
  }

  // -- pointing -------------------------------------------------------------------------------------------------

  listen() {
    const { canvas } = this, { tip } = this.options;
    canvas.addEventListener("dblclick", () => this.reset());
    canvas.addEventListener("pointerleave", () => { this.at = null; tip(null); });
    canvas.addEventListener("webglcontextrestored", () => this.options.redraw());
    canvas.addEventListener("pointermove", e => {
      this.at = e.buttons ? null : { x: e.offsetX, y: e.offsetY, page: [e.clientX, e.clientY] };
      if (this.at) this.point();
      else tip(null);
    });
  }

  // Shows the tooltip of the body below the pointer. Called in every frame, since bodies move below a resting pointer.
  point() {
    if (!this.at) return;
    const { canvas, caster } = this, { x, y, page } = this.at;
    const across = x / canvas.clientWidth * 2 - 1, up = 1 - y / canvas.clientHeight * 2;
    caster.setFromCamera(new THREE.Vector2(across, up), this.camera);
    let best = null;
    for (const { mark, which, mesh } of this.groups) {
      if (!mark.text) continue;
      const [hit] = caster.intersectObject(mesh);
      if (hit && !(best?.distance < hit.distance)) best = { mark, i: which[hit.instanceId], distance: hit.distance };
    }
    this.options.tip(best && describe(this.ep, best.mark, best.i, this.options.pos()), ...page);
  }
}
