// Elements from plain data. Text is always text: nothing here ever parses HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

export function h(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function s(name, attributes, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

// A select with [value, text] options.
export function select(label, options, value, change) {
  const box = h("select", { onchange: (event) => change(event.target.value), "aria-label": label },
    options.map(([one, text]) => h("option", { value: one, selected: one === value }, text)));
  return h("label", { class: "field" }, h("span", {}, label), box);
}

export function number(value, digits = 2) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e6)) return value.toExponential(1).replace("-", "−");
  if (Number.isInteger(value)) return value.toLocaleString("en").replace("-", "−");
  return value.toFixed(size < 0.1 ? Math.max(digits, 3) : digits).replace("-", "−");
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const whole = Math.max(0, Math.round(seconds));
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
}

// The names of evaluation episodes begin with a number from here on, which only keeps them apart.
const EVALUATIONS = 2 ** 40;

// When an episode was in a batch, or evaluated.
export function when({ origin, set, iteration }) {
  if (origin !== "evaluation") return `iteration ${number(iteration)}`;
  // results that were not of a run
  if (!set) return "evaluation";
  return iteration ? `evaluation after iteration ${number(iteration)}` : "evaluation before training";
}

// An episode's name for people. What its name does not tell is in its row of the index, if there is one.
export function episodeName(id, row) {
  const parts = /^(\d+):(.*):(\d+)$/s.exec(id);
  if (!parts) return id;
  const [step, task, attempt] = [Number(parts[1]), parts[2], parts[3]];
  const evaluation = row ? `${when(row)}${row.set ? ` (${row.set.replace("_", " ")})` : ""}` : "evaluation";
  return `${step < EVALUATIONS ? `iteration ${number(step + 1)}` : evaluation}, ${task}, attempt ${attempt}`;
}

// The same among the episodes of one group.
export function attemptName(id) {
  return /:\d+$/.test(id) ? `attempt ${id.split(":").pop()}` : id;
}

export const OUTCOMES = {
  finished: "finished", step_limit: "step limit", unparsable: "unparsable", environment_error: "desktop failed",
};
