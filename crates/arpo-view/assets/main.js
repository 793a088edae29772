// The frame around the pages: navigation, choice of runs, live updates, colours.

import { allRuns } from "./api.js";
import { current, go, link } from "./address.js";
import { h, replace } from "./dom.js";
import * as overview from "./overview.js";
import * as now from "./now.js";
import * as tasks from "./tasks.js";
import * as task from "./task.js";
import * as episodes from "./episodes.js";
import * as group from "./group.js";
import * as player from "./player.js";

const PAGES = { overview, now, tasks, task, episodes, group, player };
const TABS = [["overview", "Overview"], ["now", "Now"], ["tasks", "Tasks"], ["episodes", "Episodes"]];

// Milliseconds between two looks for new runs, and where there is none yet.
const [LOOK, FIRST_LOOK] = [10000, 2000];
// What of a run's progress a page of its numbers or episodes depends on; the rest is its live state.
const GROWTH = ["generation", "rows", "episodes", "episode_changes", "evaluations"];

const top = document.getElementById("top");
const content = document.getElementById("content");
// the same list for ever, so that pages see what is new in it
const runs = [];
let grows = false;
let shown = null;
let turn = 0;
let events = null;
let watched = "";
let look = 0;

function chosen(params) {
  const wanted = (params.get("runs") ?? "").split(",").filter((id) => runs.some((run) => run.id === id));
  return wanted.length > 0 || runs.length === 0 ? wanted : [runs[0].id];
}

// Drawn again whenever the address changes; a page that is drawn later than its successor is dropped.
async function draw() {
  const { page: asked, params } = current();
  // results of an evaluation have episodes, but neither curves nor desktops
  const results = runs.find((run) => run.id === chosen(params)[0])?.state === "results";
  const page = results && ["overview", "now"].includes(asked) ? "episodes" : asked;
  const view = PAGES[page] ?? overview;
  const mine = ++turn;
  shown?.close?.();
  shown = null;
  const selected = chosen(params);
  const focused = document.activeElement?.id;
  header(page, selected);
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  watch(selected);
  document.title = `${page} · ${selected.join(", ") || "arpo"}`;
  if (selected.length === 0) {
    return replace(content, h("p", { class: "empty" }, "There is no run here yet. A run appears as soon as it has begun."));
  }
  const context = {
    params, runs, grows, selected, run: selected[0],
    summary: runs.find((run) => run.id === selected[0]) ?? {},
    link: (to, more) => link(to, { runs: selected.join(","), ...more }),
    // a page whose numbers come after somebody has gone on leaves the page that is there now alone
    place: (...children) => mine === turn && replace(content, ...children),
  };
  try {
    const drawn = await view.show(context);
    if (mine !== turn) return drawn?.close?.();
    shown = drawn;
    // the keyboard goes on where it was, or in the new page if that is gone
    const gone = mine > 1 && document.activeElement === document.body;
    if (gone) ((focused && document.getElementById(focused)) || content).focus({ preventScroll: true });
    if (waiting) pass({});
  } catch (error) {
    if (mine === turn) replace(content, h("p", { class: "problem", role: "alert" }, error.message));
  }
}

function header(page, selected) {
  const tab = page === "task" ? "tasks" : page === "player" || page === "group" ? "episodes" : page;
  const results = runs.find((run) => run.id === selected[0])?.state === "results";
  const tabs = TABS.filter(([name]) => !results || name === "tasks" || name === "episodes");
  replace(top,
    h("a", { class: "brand", href: link("overview", { runs: selected.join(",") }) }, "arpo"),
    h("nav", { "aria-label": "Views" }, tabs.map(([name, text]) =>
      h("a", { href: link(name, { runs: selected.join(",") }), "aria-current": tab === name ? "page" : undefined }, text))),
    picker(page, selected),
    h("span", { id: "live", class: "live", role: "status" }, ""),
    h("button", { type: "button", class: "quiet", onclick: theme, "aria-label": "Dark or light colours", title: "Dark or light" }, "◐"));
  liveText(runs.find((run) => run.id === selected[0])?.state);
}

function picker(page, selected) {
  const change = (event) => {
    const id = event.target.value;
    const stays = ["overview", "now", "tasks", "episodes"].includes(page) ? page : "episodes";
    go(stays, { runs: id });
  };
  const box = h("select", { id: "run", onchange: change, "aria-label": "Run" });
  fillPicker(box);
  box.value = selected[0];
  return h("label", { class: "field runs" }, h("span", { class: "hidden" }, "Run"), box);
}

// In place, because somebody may be choosing.
function fillPicker(box) {
  const before = box.value;
  runs.forEach((run, index) => {
    const option = box.options[index] ?? box.appendChild(h("option", {}));
    option.value = run.id;
    const text = `${run.id} · ${run.state ?? "unreadable"}`;
    if (option.textContent !== text) option.textContent = text;
  });
  box.length = runs.length;
  if (before && box.value !== before) box.value = before;
}

function liveText(state) {
  const live = document.getElementById("live");
  if (!live) return;
  live.textContent = state === "running" ? "live" : (state ?? "");
  live.dataset.state = state ?? "";
}

// One stream of events for the runs on the page. The browser opens it again when it breaks.
function watch(selected) {
  const wanted = selected.join(",");
  if (wanted === watched) return;
  unwatch();
  // a hidden page opens its stream when it is seen
  if (!wanted || document.hidden) return;
  watched = wanted;
  const last = {};
  events = new EventSource(`/api/events?runs=${encodeURIComponent(wanted)}`);
  events.onmessage = (message) => {
    const news = JSON.parse(message.data);
    for (const [id, progress] of Object.entries(news)) {
      const run = runs.find((one) => one.id === id);
      if (run) run.state = progress.state;
      progress.grown = GROWTH.some((name) => progress[name] !== last[id]?.[name]);
      last[id] = progress;
    }
    liveText(runs.find((run) => run.id === selected[0])?.state);
    pass(news);
  };
  events.onopen = () => liveText(runs.find((run) => run.id === selected[0])?.state);
  events.onerror = () => liveText("no answer");
}

// One update of a page at a time: what comes while it is drawn or updated waits.
let [updating, waiting] = [false, null];

async function pass(news) {
  for (const [id, progress] of Object.entries(news)) progress.grown ||= waiting?.[id]?.grown ?? false;
  waiting = { ...waiting, ...news };
  if (updating || !shown) return;
  updating = true;
  while (waiting && shown) {
    const all = waiting;
    waiting = null;
    try { await shown.update?.(all); } catch { /* the next event tries again */ }
  }
  updating = false;
}

function unwatch() {
  events?.close();
  [events, watched] = [null, ""];
}

// A page that nobody sees holds no connection: a browser has six for a server, over all its tabs and the pages it keeps to go back to.
function resume() {
  if (document.hidden) {
    unwatch();
    clearTimeout(look);
    return;
  }
  if (runs.length) watch(chosen(current().params));
  lookForRuns();
}

// Looks for runs that have begun. They come into the lists that are there; nothing on the page moves.
async function lookForRuns() {
  clearTimeout(look);
  if (document.hidden) return;
  try {
    await readRuns();
  } catch { /* the server is away, and may come back */ }
  clearTimeout(look);
  look = setTimeout(lookForRuns, runs.length ? LOOK : FIRST_LOOK);
}

async function readRuns() {
  const answer = await allRuns();
  const first = runs.length === 0;
  runs.splice(0, runs.length, ...answer.runs);
  grows = answer.grows;
  if (first) return draw();
  const box = document.getElementById("run");
  if (box) fillPicker(box);
  shown?.runs?.();
}

function theme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("arpo-theme", root.dataset.theme); } catch { /* not remembered */ }
}

async function start() {
  try {
    await readRuns();
  } catch (error) {
    replace(content, h("p", { class: "problem", role: "alert" }, error.message));
  }
  look = setTimeout(lookForRuns, runs.length ? LOOK : FIRST_LOOK);
}

try {
  const remembered = localStorage.getItem("arpo-theme");
  if (remembered) document.documentElement.dataset.theme = remembered;
} catch { /* the browser's own choice */ }
document.getElementById("skip").addEventListener("click", () => content.focus());
addEventListener("hashchange", (event) => {
  const pageOf = (address) => new URL(address).hash.split("?")[0];
  if (pageOf(event.oldURL) !== pageOf(event.newURL)) scrollTo(0, 0);
  draw();
});
addEventListener("pagehide", unwatch);
addEventListener("pageshow", (event) => event.persisted && resume());
document.addEventListener("visibilitychange", resume);
addEventListener("keydown", (event) => {
  const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
  if (!typing && !event.ctrlKey && !event.metaKey && !event.altKey) shown?.key?.(event);
});
await start();
