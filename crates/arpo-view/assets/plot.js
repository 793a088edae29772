// A line plot in SVG: curves with intervals, smoothing, a logarithmic axis, hover values, zoom by dragging or by keys.
// It has no imports, so that a report can carry it as it is.

const NS = "http://www.w3.org/2000/svg";
const LEFT = 46, RIGHT = 10, TOP = 8, BOTTOM = 22, HEIGHT = 190;
const MOST_POINTS = 2000;

function svg(name, attributes, text) {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function div(name, text) {
  const element = document.createElement("div");
  element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
}

// Round numbers between two values.
export function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  return found;
}

export function tickText(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e6 || size < 1e-3) return value.toExponential(Number.isInteger(Math.log10(size)) ? 0 : 1).replace("e+", "e");
  return String(Number(value.toPrecision(4)));
}

// A mean over the last points; gaps are left out.
export function smoothed(values, window) {
  if (window <= 1) return values;
  const kept = [];
  let sum = 0;
  return values.map((value) => {
    if (value === null || value === undefined || Number.isNaN(value)) return null;
    kept.push(value);
    sum += value;
    if (kept.length > window) sum -= kept[kept.length - window - 1];
    return sum / Math.min(kept.length, window);
  });
}

function thinned(series) {
  const rows = [];
  for (let index = 0; index < series.x.length; index++) if (series.y[index] !== null && series.y[index] !== undefined) rows.push(index);
  const stride = Math.ceil(rows.length / MOST_POINTS);
  return stride <= 1 ? rows : rows.filter((_, position) => position % stride === 0 || position === rows.length - 1);
}

export class Plot {
  // options: title, zoomed(range or null), xText(value)
  constructor(parent, options) {
    this.options = options;
    this.series = [];
    this.state = { smooth: 1, log: false, range: null, yRange: null };
    this.box = div("plot");
    this.box.tabIndex = 0;
    this.box.setAttribute("role", "group");
    this.head = div("plot-head");
    this.title = document.createElement("h3");
    this.title.textContent = options.title;
    this.legend = div("legend");
    this.head.append(this.title, this.legend);
    this.area = div("plot-area");
    this.svg = svg("svg", { height: HEIGHT, role: "img", "aria-label": options.title });
    this.tip = div("tip");
    this.tip.hidden = true;
    this.area.append(this.svg, this.tip);
    this.box.append(this.head, this.area);
    parent.append(this.box);
    this.cursor = null;
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.area);
    this.listen();
  }

  close() {
    this.observer.disconnect();
  }

  // series: name, colour (a CSS variable), dash, x, y, low, high
  set(series, state) {
    this.series = series;
    Object.assign(this.state, state);
    this.draw();
  }

  draw() {
    const width = Math.floor(this.area.clientWidth);
    if (width < 60) return;
    this.width = width;
    const root = this.svg;
    root.setAttribute("width", width);
    root.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    root.replaceChildren();
    this.prepare();
    this.drawLegend();
    this.box.setAttribute("aria-label", `${this.options.title}: ${this.lines.map((line) => `${line.name} ${tickText(line.last ?? NaN)}`).join(", ")}`);
    if (!this.lines.some((line) => line.rows.length)) {
      root.append(svg("text", { x: width / 2, y: HEIGHT / 2, class: "no-data" }, "no values yet"));
      return;
    }
    this.axes(root);
    const clip = `clip-${Plot.number++}`;
    const hole = svg("clipPath", { id: clip });
    hole.append(svg("rect", { x: LEFT - 3, y: TOP - 3, width: width - LEFT - RIGHT + 6, height: HEIGHT - TOP - BOTTOM + 6 }));
    const inside = svg("g", { "clip-path": `url(#${clip})` });
    root.append(hole, inside);
    for (const line of this.lines) this.drawLine(inside, line);
    this.hair = svg("line", { class: "hair", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    this.dots = svg("g", {});
    this.brush = svg("rect", { class: "brush", y: TOP, height: HEIGHT - TOP - BOTTOM, visibility: "hidden" });
    root.append(this.hair, this.dots, this.brush);
    if (this.cursor !== null) this.point(this.cursor);
  }

  // Rows to draw, and the ranges of both axes.
  prepare() {
    const { smooth, log, range } = this.state;
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    this.lines = this.series.map((series) => {
      const rows = thinned(series);
      const mean = smoothed(series.y, smooth);
      const last = rows.length ? mean[rows[rows.length - 1]] : null;
      for (const row of rows) {
        const x = series.x[row];
        if (!range) { x0 = Math.min(x0, x); x1 = Math.max(x1, x); }
      }
      return { ...series, rows, mean, last };
    });
    if (range) [x0, x1] = range;
    if (!(x1 > x0)) { x0 -= 0.5; x1 += 0.5; }
    for (const line of this.lines) {
      for (const row of line.rows) {
        if (line.x[row] < x0 || line.x[row] > x1) continue;
        const values = [line.y[row]];
        if (line.low?.[row] != null) values.push(line.low[row], line.high[row]);
        for (const value of values) {
          if (log && !(value > 0)) continue;
          y0 = Math.min(y0, value);
          y1 = Math.max(y1, value);
        }
      }
    }
    if (this.options.yRange && !log) [y0, y1] = this.options.yRange;
    else if (!Number.isFinite(y0)) [y0, y1] = [log ? 0.1 : 0, 1];
    else if (y0 === y1) { const pad = Math.abs(y0) * 0.1 || 1; y0 = log ? y0 / 2 : y0 - pad; y1 = log ? y1 * 2 : y1 + pad; }
    else if (!log) { const pad = (y1 - y0) * 0.06; if (y0 >= 0 && y0 < (y1 - y0) * 0.5) y0 = 0; else y0 -= pad; y1 += pad; }
    this.domain = { x0, x1, y0, y1 };
  }

  px(x) {
    const { x0, x1 } = this.domain;
    return LEFT + ((x - x0) / (x1 - x0)) * (this.width - LEFT - RIGHT);
  }

  py(y) {
    const { y0, y1 } = this.domain;
    const part = this.state.log ? (Math.log(y) - Math.log(y0)) / (Math.log(y1) - Math.log(y0)) : (y - y0) / (y1 - y0);
    return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
  }

  axes(root) {
    const { x0, x1, y0, y1 } = this.domain;
    let marks = ticks(y0, y1, 4);
    if (this.state.log) {
      marks = [];
      for (let power = Math.floor(Math.log10(y0)); power <= Math.ceil(Math.log10(y1)); power++) marks.push(10 ** power);
      marks = marks.filter((value) => value >= y0 && value <= y1);
      if (marks.length < 2) marks = [y0, y1];
    }
    for (const value of marks) {
      const y = this.py(value);
      root.append(svg("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y }));
      root.append(svg("text", { class: "tick", x: LEFT - 6, y: y + 4, "text-anchor": "end" }, tickText(value)));
    }
    const text = this.options.xText ?? tickText;
    for (const value of ticks(x0, x1, Math.max(2, Math.floor(this.width / 110)))) {
      const x = this.px(value);
      root.append(svg("line", { class: "grid", x1: x, x2: x, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4 }));
      root.append(svg("text", { class: "tick", x, y: HEIGHT - 5, "text-anchor": x > this.width - 40 ? "end" : "middle" }, text(value)));
    }
  }

  drawLine(root, line) {
    const { smooth, log } = this.state;
    const good = (value) => value !== null && value !== undefined && (!log || value > 0);
    const at = (row, value) => `${this.px(line.x[row]).toFixed(1)},${this.py(value).toFixed(1)}`;
    const path = (values) => line.rows.filter((row) => good(values[row])).map((row, index) => `${index ? "L" : "M"}${at(row, values[row])}`).join("");
    const banded = line.rows.filter((row) => good(line.low?.[row]) && good(line.high?.[row]));
    if (banded.length > 1 && smooth <= 1) {
      const upper = banded.map((row) => at(row, line.high[row]));
      const lower = banded.map((row) => at(row, line.low[row])).reverse();
      root.append(this.coloured("path", { d: `M${[...upper, ...lower].join("L")}Z`, class: "band" }, line));
    }
    if (smooth > 1) root.append(this.coloured("path", { d: path(line.y), class: "raw" }, line));
    const drawn = this.coloured("path", { d: path(line.mean), class: "line" }, line);
    if (line.dash) drawn.setAttribute("stroke-dasharray", line.dash);
    root.append(drawn);
    if (line.rows.length <= 40) {
      for (const row of line.rows) {
        if (good(line.mean[row])) root.append(this.coloured("circle", { cx: this.px(line.x[row]), cy: this.py(line.mean[row]), r: 2.2, class: "dot" }, line));
      }
    }
  }

  coloured(name, attributes, line) {
    const element = svg(name, attributes);
    element.style.setProperty("--series", line.colour);
    return element;
  }

  drawLegend() {
    this.legend.replaceChildren();
    for (const line of this.lines) {
      const item = div("key");
      const swatch = svg("svg", { width: 18, height: 8, "aria-hidden": "true" });
      const stroke = svg("line", { x1: 0, x2: 18, y1: 4, y2: 4, class: "line" });
      if (line.dash) stroke.setAttribute("stroke-dasharray", line.dash);
      swatch.append(stroke);
      swatch.style.setProperty("--series", line.colour);
      const value = document.createElement("b");
      value.textContent = line.last === null || line.last === undefined ? "–" : tickText(Number(line.last.toPrecision(3)));
      item.append(swatch, line.name, value);
      this.legend.append(item);
    }
  }

  // Shows the values nearest to an x.
  point(x) {
    this.cursor = x;
    const found = [];
    for (const line of this.lines ?? []) {
      let best = null;
      for (const row of line.rows) if (best === null || Math.abs(line.x[row] - x) < Math.abs(line.x[best] - x)) best = row;
      if (best !== null) found.push([line, best]);
    }
    if (!found.length) return;
    const { x0, x1 } = this.domain;
    const nearest = found.map(([line, row]) => line.x[row]).reduce((a, b) => (Math.abs(b - x) < Math.abs(a - x) ? b : a));
    const left = this.px(Math.min(x1, Math.max(x0, nearest)));
    this.hair.setAttribute("x1", left);
    this.hair.setAttribute("x2", left);
    this.hair.setAttribute("visibility", "visible");
    this.dots.replaceChildren();
    this.tip.replaceChildren(div("tip-x", `${this.options.xName?.() ?? ""} ${(this.options.xText ?? tickText)(nearest)}`));
    for (const [line, row] of found) {
      const value = line.mean[row];
      if (value === null || value === undefined) continue;
      this.dots.append(this.coloured("circle", { cx: this.px(line.x[row]), cy: this.py(value), r: 3.5, class: "dot" }, line));
      const text = div("tip-line");
      text.style.setProperty("--series", line.colour);
      const range = line.low?.[row] != null ? ` [${tickText(Number(line.low[row].toPrecision(3)))}, ${tickText(Number(line.high[row].toPrecision(3)))}]` : "";
      text.textContent = `${line.name} ${tickText(Number(value.toPrecision(4)))}${range}`;
      this.tip.append(text);
    }
    this.tip.hidden = false;
    const width = this.tip.offsetWidth;
    this.tip.style.setProperty("left", `${left + 12 + width > this.width ? Math.max(0, left - 12 - width) : left + 12}px`);
  }

  unpoint() {
    this.cursor = null;
    this.tip.hidden = true;
    this.hair?.setAttribute("visibility", "hidden");
    this.dots?.replaceChildren();
  }

  zoom(range) {
    this.options.zoomed?.(range);
  }

  listen() {
    const valueAt = (event) => {
      const { x0, x1 } = this.domain;
      const left = event.clientX - this.svg.getBoundingClientRect().left;
      const part = (left - LEFT) / (this.width - LEFT - RIGHT);
      return x0 + Math.min(1, Math.max(0, part)) * (x1 - x0);
    };
    let from = null;
    this.svg.addEventListener("pointermove", (event) => {
      if (!this.hair) return;
      const x = valueAt(event);
      if (from === null) return this.point(x);
      const [a, b] = [this.px(from), this.px(x)].sort((one, two) => one - two);
      this.brush.setAttribute("x", a);
      this.brush.setAttribute("width", b - a);
      this.brush.setAttribute("visibility", "visible");
    });
    this.svg.addEventListener("pointerleave", () => from === null && this.unpoint());
    this.svg.addEventListener("pointerdown", (event) => {
      if (!this.hair || event.button !== 0) return;
      from = valueAt(event);
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointerup", (event) => {
      if (from === null) return;
      const range = [from, valueAt(event)].sort((a, b) => a - b);
      from = null;
      this.brush.setAttribute("visibility", "hidden");
      if (this.px(range[1]) - this.px(range[0]) > 6) this.zoom(range);
    });
    this.svg.addEventListener("dblclick", () => this.zoom(null));
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("blur", () => this.unpoint());
  }

  key(event) {
    if (!this.hair) return;
    const { x0, x1 } = this.domain;
    const span = x1 - x0;
    const centre = this.cursor ?? (x0 + x1) / 2;
    const move = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
    if (move) this.point(Math.min(x1, Math.max(x0, centre + move * span)));
    else if (event.key === "+") this.zoom([centre - span / 4, centre + span / 4]);
    else if (event.key === "-") this.zoom([x0 - span / 2, x1 + span / 2]);
    else if (event.key === "0" || event.key === "Escape") this.zoom(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

Plot.number = 0;
