// Camera images of the current frame, beside the scene, or in its place where a world has no scene.

class Images {
  constructor(stage, ep, large) {
    this.boxes = ep.images.map(image => {
      const box = stage.appendChild(el("figure", large ? "camera large" : "camera"));
      const canvas = box.appendChild(el("canvas"));
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", image.name);
      box.appendChild(cutText(el("figcaption"), image.name));
      return { image, canvas, wanted: -1 };
    });
  }

  // Decoding may take longer than a frame: the image appears once it is decoded, unless another one is requested.
  draw(pos) {
    for (const box of this.boxes) {
      const k = Math.min(box.image.frames.length - 1, Math.floor((pos + 1e-6) / (box.image.every || 1)));
      if (k === box.wanted || k < 0) continue;
      box.wanted = k;
      createImageBitmap(new Blob([bytesOf(box.image.frames[k])])).then(bitmap => {
        if (box.wanted !== k) return;
        if (box.canvas.width !== bitmap.width) box.canvas.width = bitmap.width;
        if (box.canvas.height !== bitmap.height) box.canvas.height = bitmap.height;
        box.canvas.getContext("2d").drawImage(bitmap, 0, 0);
        box.canvas.dataset.shown = k;
      }, () => box.canvas.setAttribute("aria-label", `${box.image.name}: this picture is damaged`));
    }
  }
}
