// Now: a cell for every desktop, the phase of the run, failures as they happen.

import { ofRun } from "./api.js";
import { duration, episodeName, h, number, replace } from "./dom.js";

const STATES = {
  idle: "idle", resetting: "resetting", waiting: "waiting", acting: "acting", evaluating: "evaluating",
  failed: "failed", quarantined: "quarantined",
};

export async function show(context) {
  const phase = h("section", { class: "card phase", "aria-label": "Phase" });
  const counts = h("p", { class: "counts" });
  const grid = h("div", { class: "desktops" });
  const failures = h("section", { "aria-label": "Failures" });
  context.place(h("h1", { class: "hidden" }, "Now"), phase, counts, grid, failures);
  const cells = new Map();
  let closed = false;
  let failuresShown = "";

  async function refresh() {
    const answer = await ofRun(context.run, "status");
    if (closed) return;
    drawPhase(answer);
    const desktops = answer.status?.desktops ?? [];
    const by = new Map();
    desktops.forEach((one) => by.set(one.state, (by.get(one.state) ?? 0) + 1));
    replace(counts, desktops.length ? `${desktops.length} desktops: ` : "No desktops are reported. ",
      [...by].map(([state, count], index) => [index ? ", " : "", h("span", { class: "state", "data-state": state }, STATES[state] ?? state), ` ${count}`]));
    desktops.forEach((one) => drawCell(one, answer.now));
    for (const [number, cell] of cells) if (!desktops.some((one) => one.desktop === number)) { cell.root.remove(); cells.delete(number); }
    drawFailures(answer);
  }

  function drawPhase({ status, state, now, summary }) {
    const live = status && state === "running";
    const done = live && status.total ? status.finished / status.total : 0;
    replace(phase,
      h("h2", {}, live ? `Iteration ${number(status.iteration)} of ${number(status.of)}: ${status.phase}` : `This run is ${state}.`),
      live && h("progress", { max: 1, value: done, "aria-label": "Episodes of this phase" }),
      h("p", { class: "muted" }, live ? `${number(status.finished)} of ${number(status.total)} episodes, ${number(status.successes)} solved; state of ${duration(now - status.time)} ago`
        : `Last change ${duration(summary.age)} ago.`));
  }

  function drawCell(desktop, now) {
    let cell = cells.get(desktop.desktop);
    if (!cell) {
      const image = h("img", { alt: "", loading: "lazy", width: 240, height: 150 });
      image.addEventListener("error", () => image.classList.add("gone"));
      image.addEventListener("load", () => image.classList.remove("gone"));
      const text = { state: h("span", { class: "state" }), task: h("div", { class: "task" }), turn: h("div", { class: "muted" }) };
      cell = { image, text, root: h("article", { class: "desktop" }, h("div", { class: "shot" }, image),
        h("header", {}, h("b", {}, `Desktop ${desktop.desktop}`), text.state), text.task, text.turn) };
      cells.set(desktop.desktop, cell);
      grid.append(cell.root);
    }
    cell.root.dataset.state = desktop.state;
    cell.text.state.textContent = STATES[desktop.state] ?? desktop.state;
    cell.text.state.dataset.state = desktop.state;
    cell.text.state.title = desktop.state === "waiting" ? "waits for the policy" : "";
    cell.text.task.textContent = desktop.task || "–";
    cell.text.task.title = desktop.episode ? episodeName(desktop.episode) : "";
    cell.text.turn.textContent = `${desktop.turn ? `turn ${desktop.turn}, ` : ""}for ${duration(now - desktop.since)}${desktop.host ? ` on ${desktop.host}` : ""}`;
    const shown = desktop.screen ?? `${desktop.state}-${desktop.turn}`;
    if (cell.shown !== shown) {
      cell.shown = shown;
      cell.image.src = `/live/${encodeURIComponent(context.run)}/${desktop.desktop}.png?${encodeURIComponent(shown)}`;
    }
  }

  function drawFailures({ failures: list, failure_count: count }) {
    const wanted = JSON.stringify([count, list]);
    // text that somebody may be copying stays
    if (wanted === failuresShown) return;
    failuresShown = wanted;
    replace(failures, h("h2", {}, count ? `${number(count)} ${count === 1 ? "failure" : "failures"}` : "No failures"),
      list.length > 0 && h("div", { class: "scroll" }, h("table", {},
        h("thead", {}, h("tr", {}, ["When", "Iteration", "Desktop", "Task", "What", "Done about it"].map((text) => h("th", {}, text)))),
        h("tbody", {}, list.map((one) => h("tr", {},
          h("td", {}, one.time ? new Date(one.time * 1000).toLocaleTimeString("en-GB") : "–"), h("td", {}, number(one.iteration)),
          h("td", {}, number(one.desktop), one.host ? ` on ${one.host}` : ""), h("td", {}, one.task ?? "–"),
          h("td", {}, h("b", {}, one.kind), ` ${one.message ?? ""}`), h("td", {}, one.action ?? "")))))));
  }

  await refresh();
  // durations go on between events; nobody sees them on a hidden page
  const timer = setInterval(() => document.hidden || refresh().catch(() => {}), 2000);
  return { close: () => { closed = true; clearInterval(timer); }, update: refresh };
}
