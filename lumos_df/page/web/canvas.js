// A chart on a canvas: sharp at any zoom, redrawn when its size or the theme changes, read by mouse, touch and keys.

const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const SMALL = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", "DejaVu Sans", sans-serif';

/**
 * spec: height, label (for readers of the screen), count of things to point at,
 * draw(ctx, width, height), find(x, y) gives the number of a thing or -1, place(number) gives its [x, y],
 * mark(ctx, number) draws its outline, tip(number) gives {title, rows}; stride: things of a row, for the up and down keys.
 */
function chart(host, spec) {
  const base = el("canvas", { "aria-hidden": "true" });
  const top = el("canvas", { tabindex: "0", role: "img", "aria-label": `${spec.label}. Arrow keys go from value to value; the numbers are below.` });
  const box = el("div", { class: "chart" }, base, top);
  let focus = -1;
  host.append(box);

  const prepare = (canvas) => {
    const ratio = window.devicePixelRatio || 1;
    const width = Math.max(120, box.clientWidth);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(spec.height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${spec.height}px`;
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = SMALL;
    return [context, width];
  };
  const redraw = () => {
    if (!box.clientWidth) return;
    const [context, width] = prepare(base);
    spec.draw(context, width, spec.height);
    outline();
  };
  const outline = () => {
    const [context] = prepare(top);
    if (focus < 0 || focus >= spec.count) return;
    context.strokeStyle = colourOf("--text");
    context.lineWidth = 1.5;
    spec.mark(context, focus);
  };
  const point = (number, x, y) => {
    if (number !== focus) {
      focus = number;
      outline();
    }
    if (number < 0) return tip.hide();
    tip.show(spec.tip(number), x, y);
  };
  top.addEventListener("pointermove", (event) => {
    const area = top.getBoundingClientRect();
    point(spec.find(event.clientX - area.left, event.clientY - area.top), event.clientX, event.clientY);
  });
  top.addEventListener("pointerleave", () => point(-1));
  top.addEventListener("blur", () => point(-1));
  top.addEventListener("keydown", (event) => {
    const stride = spec.stride || 1;
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: stride, ArrowUp: -stride }[event.key];
    if (event.key === "Escape") return point(-1);
    if (!by || !spec.count || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const next = focus < 0 ? 0 : Math.min(spec.count - 1, Math.max(0, focus + by));
    const area = top.getBoundingClientRect();
    const [x, y] = spec.place(next);
    point(next, area.left + x, area.top + y);
  });
  let drawn = 0;
  new ResizeObserver(() => {
    if (box.clientWidth === drawn) return;
    drawn = box.clientWidth;
    requestAnimationFrame(redraw);
  }).observe(box);
  box.style.height = `${spec.height}px`;
  redraw();
  document.addEventListener("theme", redraw);
  return { box, top, redraw };
}

/** Horizontal lines and their values, left of the plot. */
function yAxis(context, area, most, write, wanted = 4) {
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const value of ticks(most, wanted, write)) {
    const y = area.bottom - (value / (most || 1)) * (area.bottom - area.top);
    context.fillStyle = colourOf("--grid");
    context.fillRect(area.left, Math.round(y), area.right - area.left, 1);
    context.fillStyle = colourOf("--soft");
    context.fillText(value === 0 ? "0" : tickText(value, most, write), area.left - 6, y);
  }
}

/** Values below the plot; the first and the last stay inside it. */
function xAxis(context, area, from, to, write) {
  context.textBaseline = "top";
  context.fillStyle = colourOf("--soft");
  const span = to - from;
  const step = ticks(span, Math.max(2, (area.right - area.left) / 110), write)[1] || span || 1;
  for (let value = Math.ceil(from / step) * step; value <= to + step * 1e-6; value += step) {
    const x = area.left + ((value - from) / (span || 1)) * (area.right - area.left);
    context.textAlign = x > area.right - 30 ? "right" : x < area.left + 16 ? "left" : "center";
    context.fillText(Math.abs(value) < step * 1e-6 ? "0" : tickText(value, Math.max(Math.abs(to), step), write), x, area.bottom + 6);
    context.fillRect(Math.round(x), area.bottom, 1, 4);
  }
}

/** Labels of equal places in a row: every one if there is room, else every nth. */
function placeLabels(context, labels, at, y, room) {
  context.fillStyle = colourOf("--soft");
  context.textAlign = "center";
  context.textBaseline = "top";
  const widest = Math.max(...labels.map((label) => context.measureText(label).width)) + 8;
  const every = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024].find((n) => n * room >= widest) || labels.length;
  labels.forEach((label, place) => place % every === 0 && context.fillText(label, at(place), y));
}
