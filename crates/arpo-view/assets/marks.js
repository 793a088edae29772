// What is drawn over a screenshot for the actions of a turn, in pixels of the screen.

import { s } from "./dom.js";

const GLYPHS = { up: "↑", down: "↓", left: "←", right: "→" };

export function overlay(step, width, height) {
  const unit = Math.max(width, height) / 100;
  const root = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "overlay", "aria-hidden": "true", style: { "--unit": String(unit) } });
  const captions = [];
  for (const action of step.actions) for (const mark of action.marks) draw(root, mark, unit, captions, [width, height]);
  captions.forEach((text, index) => caption(root, text, width / 2, height - unit * (4 + 6 * (captions.length - 1 - index)), unit, width));
  return root;
}

function twice(root, name, attributes, className) {
  // a dark line below a bright one can be seen on any background
  root.append(s(name, { ...attributes, class: `${className} under` }), s(name, { ...attributes, class: `${className} over` }));
}

function draw(root, mark, unit, captions, size) {
  switch (mark.type) {
    case "click": {
      for (let ring = 0; ring < mark.times; ring++) twice(root, "circle", { cx: mark.x, cy: mark.y, r: unit * (2 + 1.1 * ring) }, `ring ${mark.button}`);
      root.append(s("circle", { cx: mark.x, cy: mark.y, r: unit * 0.6, class: "spot" }));
      if (mark.button !== "left") label(root, mark.button, mark.x, mark.y - unit * 3.5, unit);
      break;
    }
    case "hover":
      twice(root, "path", { d: `M${mark.x - unit * 2} ${mark.y}h${unit * 4}M${mark.x} ${mark.y - unit * 2}v${unit * 4}` }, "ring");
      break;
    case "drag": {
      const [x, y] = mark.to;
      const from = mark.from ?? [x - unit * 8, y - unit * 8];
      twice(root, "line", { x1: from[0], y1: from[1], x2: x, y2: y }, "ring");
      const angle = Math.atan2(y - from[1], x - from[0]);
      const wing = (turn) => `${x - unit * 3 * Math.cos(angle + turn)} ${y - unit * 3 * Math.sin(angle + turn)}`;
      twice(root, "path", { d: `M${wing(0.5)}L${x} ${y}L${wing(-0.5)}` }, "ring");
      if (mark.from) root.append(s("circle", { cx: from[0], cy: from[1], r: unit * 0.9, class: "spot" }));
      break;
    }
    case "scroll": {
      const [x, y] = mark.at ?? [size[0] / 2, size[1] / 2];
      label(root, `scroll ${GLYPHS[mark.direction] ?? ""}`, x, y, unit);
      break;
    }
    case "text": captions.push(`⌨ ${mark.text.replaceAll("\n", "⏎")}`); break;
    case "keys": captions.push(mark.keys.map((key) => `[${key}]`).join(" + ")); break;
    case "end": captions.push(mark.text); break;
  }
}

function label(root, text, x, y, unit) {
  caption(root, text, x, y, unit, Infinity);
}

// Text on a dark plate, cut where it would leave the screen.
function caption(root, text, x, y, unit, width) {
  const size = unit * 2.6;
  const most = Math.max(8, Math.floor(Math.min(width, unit * 90) / (size * 0.56)) - 4);
  const shown = text.length > most ? `${text.slice(0, most)}…` : text;
  const wide = (shown.length * 0.56 + 1.6) * size;
  root.append(s("rect", { x: x - wide / 2, y: y - size * 0.95, width: wide, height: size * 1.6, rx: size * 0.35, class: "plate" }),
    s("text", { x, y: y + size * 0.22, "font-size": size, "text-anchor": "middle", class: "caption" }, shown));
}
