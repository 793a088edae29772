// Episodes: a list of any length that is loaded where it is looked at, with filters.

import { ofRun, screen } from "./api.js";
import { update } from "./address.js";
import { episodeName, h, number, OUTCOMES, replace, select } from "./dom.js";

const ROW = 56;
const PAGE = 100;
const FILTERS = ["search", "outcome", "origin", "score", "from", "to", "sort", "task"];
const HEADS = ["", "Episode", "Iteration", "Outcome", "Turns", "Score", "Advantage"];

export async function show(context) {
  const { params, run } = context;
  const state = Object.fromEntries(FILTERS.map((name) => [name, params.get(name) ?? ""]));
  const count = h("span", { class: "hint", role: "status" });
  const fresh = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => { known = latest; reload(); } }, "");
  const space = h("div", { class: "rows" });
  const list = h("div", { class: "list", tabindex: 0, role: "region", "aria-label": "Episodes", onscroll: () => { paint(); remember(); } }, space);
  context.place(h("h1", { class: "hidden" }, "Episodes"), filters(), h("div", { class: "list-head", "aria-hidden": "true" }, HEADS.map((text) => h("span", {}, text))), list);
  let pages = new Map();
  let total = 0;
  let version = 0;
  let [known, latest] = [null, 0];
  let remembering = 0;

  // Where the list is goes into the address, so that the way back from an episode leads to the same place.
  function remember() {
    clearTimeout(remembering);
    remembering = setTimeout(() => update({ at: Math.floor(list.scrollTop / ROW) || "" }), 300);
  }

  function filters() {
    const text = (label, name, more) => h("label", { class: "field" }, h("span", {}, label),
      h("input", { value: state[name], "aria-label": label, onchange: (event) => change(name, event.target.value), ...more }));
    const pick = (label, name, options) => select(label, [["", "any"], ...options], state[name], (value) => change(name, value));
    return h("form", { class: "controls", onsubmit: (event) => event.preventDefault() },
      h("label", { class: "field" }, h("span", {}, "Task"), h("input", { type: "search", value: state.search || state.task, "aria-label": "Task", placeholder: "name or words",
        oninput: (event) => { state.task = ""; change("search", event.target.value); } })),
      pick("Outcome", "outcome", Object.entries(OUTCOMES)),
      pick("Origin", "origin", [["fresh", "fresh"], ["replayed", "replayed"], ["evaluation", "evaluation"]]),
      pick("Score", "score", [["solved", "solved"], ["failed", "not solved"]]),
      text("From iteration", "from", { type: "number", min: 0, class: "short" }), text("to", "to", { type: "number", min: 0, class: "short" }),
      select("Order", [["", "newest first"], ["oldest", "oldest first"], ["score", "score"], ["turns", "turns"], ["advantage", "largest advantage"]], state.sort, (value) => change("sort", value)),
      count, fresh);
  }

  function change(name, value) {
    state[name] = value;
    update(state);
    reload();
  }

  async function reload() {
    version++;
    pages = new Map();
    fresh.hidden = true;
    list.scrollTop = 0;
    await load(0);
  }

  async function load(page) {
    if (pages.has(page)) return;
    const mine = version;
    pages.set(page, null);
    try {
      const answer = await ofRun(run, "episodes", { ...state, offset: page * PAGE, limit: PAGE });
      if (mine !== version) return;
      pages.set(page, answer.rows);
      total = answer.total;
      known ??= answer.all;
      count.textContent = `${number(total)} episodes`;
      space.style.setProperty("height", `${Math.max(1, total) * ROW}px`);
      paint();
    } catch (error) {
      if (mine === version) replace(space, h("p", { class: "problem" }, error.message));
    }
  }

  // Only the rows in sight are in the page.
  function paint() {
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 5);
    const last = Math.min(total, first + Math.ceil(list.clientHeight / ROW) + 10);
    const rows = [];
    for (let index = first; index < last; index++) {
      const page = Math.floor(index / PAGE);
      const row = pages.get(page)?.[index % PAGE];
      if (!pages.has(page)) load(page);
      rows.push(line(context, row, index));
    }
    const focused = document.activeElement?.dataset?.index;
    replace(space, total === 0 && [...pages.values()].some(Boolean) ? h("p", { class: "empty" }, "No episode fits, or none has been kept yet.") : rows);
    if (focused) space.querySelector(`[data-index="${focused}"]`)?.focus();
  }

  const at = Number(params.get("at") ?? 0);
  await load(Math.floor(at / PAGE));
  list.scrollTop = at * ROW;
  const size = new ResizeObserver(() => paint());
  size.observe(list);
  return {
    close: () => { size.disconnect(); clearTimeout(remembering); },
    // rows do not move under the reader: new ones come when they are asked for
    update(news) {
      latest = news[run]?.episodes ?? known;
      if (latest === known) return;
      fresh.hidden = false;
      fresh.textContent = latest > known ? `${number(latest - known)} new: show` : "changed: show again";
      if (total === 0) fresh.click();
    },
    key(event) {
      const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
      if (!step) return;
      const index = Number(document.activeElement?.dataset?.index ?? -1) + step;
      list.scrollTop = Math.max(0, Math.min(list.scrollTop, index * ROW), index * ROW - list.clientHeight + 2 * ROW);
      paint();
      space.querySelector(`[data-index="${index}"]`)?.focus();
      event.preventDefault();
    },
  };
}

function line(context, row, index) {
  const place = { top: `${index * ROW}px` };
  if (!row) return h("div", { class: "row empty-row", style: place });
  return h("a", { class: "row", "data-index": index, style: place, href: context.link("player", { file: row.file, id: row.id }), "data-kept": String(row.kept) }, cells(context, row));
}

function cells(context, row) {
  const thumbnail = row.first_screen && row.kept ? h("img", { src: screen(context.run, row.first_screen, 160), alt: "", loading: "lazy", width: 72, height: 45 }) : h("span", { class: "no-shot" });
  return [thumbnail, h("span", { class: "what" }, h("b", {}, row.task), h("small", { class: "muted" }, row.instruction ?? episodeName(row.id, row))),
    h("span", { class: "when" }, number(row.iteration), row.origin !== "fresh" && h("span", { class: "tag", "data-origin": row.origin }, row.set ?? row.origin)),
    h("span", { class: "tag", "data-outcome": row.outcome, title: row.reason ?? "" }, row.kept ? OUTCOMES[row.outcome] : "removed"),
    h("span", { class: "number" }, row.turns), h("span", { class: "number", "data-solved": String(row.solved) }, number(row.score)),
    h("span", { class: "number" }, row.advantage === null ? "–" : number(row.advantage))];
}

// A short list of episodes, for other pages.
export function episodeTable(context, rows) {
  return h("div", { class: "list short-list" }, rows.map((row) =>
    h("a", { class: "row in-flow", href: context.link("player", { file: row.file, id: row.id }), "data-kept": String(row.kept) }, cells(context, row))));
}
