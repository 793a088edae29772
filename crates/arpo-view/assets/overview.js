// Overview: the curves of one or several runs, live.

import { metrics, ofRun } from "./api.js";
import { current, link, update } from "./address.js";
import { plots, seriesOf, COLOURS } from "./curves.js";
import { Plot, tickText } from "./plot.js";
import { duration, h, number, replace } from "./dom.js";

export async function show(context) {
  const { params, selected } = context;
  const state = {
    smooth: Number(params.get("smooth") ?? 1), log: params.get("log") === "1", time: params.get("x") === "time",
    range: params.get("from") ? [Number(params.get("from")), Number(params.get("to"))] : null,
  };
  const runs = await Promise.all(selected.map(async (id) => ({ id, metrics: await metrics(id), status: await ofRun(id, "status") })));
  const drawn = [];
  const cards = h("section", { class: "cards", "aria-label": "In short" });
  const zoomReset = h("button", { type: "button", class: "quiet", onclick: () => zoomed(null), disabled: true }, "Reset zoom");
  const body = h("div", {});
  const list = runList(context);
  context.place(h("h1", { class: "hidden" }, "Overview"), list?.root, cards, controls(), body);

  function controls() {
    const smooth = h("input", { type: "range", min: 1, max: 50, value: state.smooth, "aria-label": "Smoothing in points",
      oninput: (event) => { state.smooth = Number(event.target.value); said.textContent = state.smooth; changed(); } });
    const said = h("output", {}, String(state.smooth));
    const box = (text, key) => h("label", { class: "check" },
      h("input", { type: "checkbox", checked: state[key], onchange: (event) => { state[key] = event.target.checked; if (key === "time") state.range = null; changed(); } }), text);
    return h("div", { class: "controls" }, h("label", { class: "field" }, h("span", {}, "Smoothing"), smooth, said),
      box("Logarithmic", "log"), box("Wall time", "time"), zoomReset,
      h("span", { class: "hint" }, "Drag over a plot to zoom, double-click to reset; with the keyboard: arrows, +, −, 0"));
  }

  function changed() {
    const range = state.range ?? ["", ""];
    update({ smooth: state.smooth > 1 ? state.smooth : "", log: state.log ? 1 : "", x: state.time ? "time" : "", from: range[0], to: range[1] });
    curves();
  }

  function zoomed(range) {
    state.range = range?.map((value) => Number(value.toPrecision(6))) ?? null;
    changed();
  }

  // Plots are made once for a metric and then only change: nothing on the page moves when values arrive.
  function curves() {
    zoomReset.disabled = !state.range;
    const xText = (value) => (state.time ? `${tickText(value)} h` : tickText(value));
    const groups = plots(runs);
    const layout = JSON.stringify(groups.map(([title, list]) => [title, list.map((plot) => plot.title)]));
    if (body.dataset.layout !== layout) {
      body.dataset.layout = layout;
      drawn.splice(0).forEach(({ plot }) => plot.close());
      replace(body, groups.map(([title, list]) => {
        const grid = h("div", { class: "plots" });
        for (const one of list) {
          const plot = new Plot(grid, { title: one.title, yRange: one.range, zoomed, xText, xName: () => (state.time ? "after" : "iteration") });
          drawn.push({ plot, title: one.title });
        }
        return title === "More" ? h("details", { class: "more" }, h("summary", {}, `${list.length} more metrics`), grid)
          : h("section", {}, h("h2", {}, title), grid);
      }));
      body.querySelectorAll("details").forEach((more) => more.addEventListener("toggle", () => curves()));
    }
    const all = groups.flatMap(([, list]) => list);
    drawn.forEach(({ plot, title }) => {
      const one = all.find((other) => other.title === title);
      plot.options.xText = xText;
      plot.set(seriesOf(one, runs, state.time), { smooth: state.smooth, log: state.log, range: state.range });
    });
  }

  function head() {
    replace(cards, runs.map((run, position) => summaryCard(run, position, runs.length > 1)));
  }

  head();
  curves();
  return {
    close: () => drawn.forEach(({ plot }) => plot.close()),
    runs: () => list?.add(),
    async update(news) {
      const changed = runs.filter((one) => news[one.id]);
      const grown = changed.filter((one) => news[one.id].grown);
      await Promise.all([...changed.map(async (run) => { run.status = await ofRun(run.id, "status"); }),
        ...grown.map(async (run) => { run.metrics = await metrics(run.id); })]);
      head();
      if (grown.length) curves();
    },
  };
}

function summaryCard(run, position, coloured) {
  const { summary, status, state, progress } = run.status;
  const done = summary.iteration ?? 0;
  const seconds = run.metrics.columns["time/iteration"]?.filter((value) => value !== null).slice(-20) ?? [];
  const each = seconds.reduce((a, b) => a + b, 0) / (seconds.length || 1);
  const left = summary.iterations ? (summary.iterations - done) * each : NaN;
  const value = (name, text, more) => h("div", { class: "value" }, h("dt", {}, name), h("dd", {}, text, more && h("small", {}, more)));
  return h("article", { class: "card summary", style: { "--series": coloured ? COLOURS[position % COLOURS.length] : "transparent" } },
    h("header", {}, h("h2", {}, run.id), h("span", { class: "state", "data-state": state }, state),
      h("span", { class: "muted" }, [summary.method, summary.seed !== null && `seed ${summary.seed}`].filter(Boolean).join(", "))),
    summary.ending && h("p", { class: "problem" }, summary.ending),
    h("dl", {},
      value("Success", number(summary.last), ` best ${number(summary.best)} on ${summary.measure.replace("reward/score", "collected").replace("_", " ")}`),
      value("Iteration", number(done), summary.iterations ? ` of ${number(summary.iterations)}` : ""),
      value("Left", state === "running" ? duration(left) : "–", state === "running" && status?.phase ? ` now: ${status.phase}` : ""),
      value("Episodes kept", number(summary.episodes), progress.bad_lines ? ` ${progress.bad_lines} bad lines skipped` : "")));
}

// Which runs are drawn over each other. A run that begins later is added to the list, which keeps its height.
function runList({ runs, grows, selected }) {
  const choosable = () => runs.filter((run) => run.state !== "results");
  if (choosable().length < 2 && !grows) return null;
  const toggle = (id, input) => {
    // one stays
    if (selected.length === 1 && selected[0] === id) { input.checked = true; return; }
    const chosen = selected.includes(id) ? selected.filter((one) => one !== id) : [...selected, id];
    const { page, params } = current();
    location.hash = link(page, { ...Object.fromEntries(params), runs: chosen.join(",") }).slice(1);
  };
  const box = (run) => h("label", { class: "check" }, h("input", { type: "checkbox", id: `run-${run.id}`, checked: selected.includes(run.id), onchange: (event) => toggle(run.id, event.target) }), run.id,
    h("small", { class: "muted" }, ` ${number(run.best)}`));
  const listed = choosable().map((run) => run.id);
  const root = h("fieldset", { class: "run-list" }, h("legend", {}, "Runs in these plots"), choosable().map(box));
  return {
    root,
    add() {
      const fresh = choosable().filter((run) => !listed.includes(run.id));
      if (!fresh.length) return;
      root.style.setProperty("height", `${root.offsetHeight}px`);
      listed.push(...fresh.map((run) => run.id));
      root.append(...fresh.map(box));
    },
  };
}
