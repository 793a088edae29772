// The curves and pictures of a report. All of the page code is in one script there: nothing is imported by name.

import { h, number, OUTCOMES, when } from "./dom.js";
import { Plot, tickText } from "./plot.js";
import { COLOURS, meanSeries, plots, seriesOf } from "./curves.js";
import { overlay } from "./marks.js";

const report = JSON.parse(document.getElementById("data").textContent);

function drawCurves() {
  const root = document.getElementById("curves");
  const trained = report.runs.filter((run) => run.metrics.rows > 0);
  if (!trained.length) return;
  const several = report.experiments.some((experiment) => experiment.runs.length > 1);
  const drawn = [];
  const state = { smooth: 1, log: false, range: null };
  const redraw = () => drawn.forEach(({ plot, one }) => plot.set(curves(one), state));
  const zoomed = (range) => { state.range = range; redraw(); };
  // seeds of an experiment become one curve with its interval
  const curves = (one) => !several ? seriesOf(one, trained, false) : report.experiments.flatMap((experiment, position) => one.metrics.map(([name, legend], index) => {
    const each = experiment.runs.map((number) => report.runs[number]).filter((run) => run.metrics.columns[name])
      .flatMap((run) => seriesOf({ ...one, metrics: [[name, legend]] }, [run], false));
    if (!each.length) return null;
    const series = each.length > 1 ? meanSeries(experiment.name, "", each) : { ...each[0] };
    series.name = one.metrics.length > 1 ? `${experiment.name} ${legend}` : experiment.name;
    series.colour = COLOURS[position % COLOURS.length];
    series.dash = ["", "6 3", "2 3", "8 3 2 3"][index % 4];
    return series;
  }).filter((series) => series !== null));
  for (const [title, list] of plots(trained).filter(([name]) => name !== "More")) {
    const grid = h("div", { class: "plots" });
    root.append(h("h2", {}, title), grid);
    for (const one of list) drawn.push({ one, plot: new Plot(grid, { title: one.title, yRange: one.range, zoomed, xText: tickText, xName: () => "iteration" }) });
  }
  redraw();
}

function drawTrajectories() {
  const root = document.getElementById("trajectories");
  const chosen = report.runs.flatMap((run) => run.trajectories.map((one) => ({ ...one, run: run.id })));
  if (chosen.length) root.append(h("h2", {}, "Episodes"));
  for (const one of chosen) {
    root.append(h("h3", {}, `${one.run}: ${one.task}`), h("p", {}, one.instruction ?? "", h("span", { class: "muted" }, ` ${when(one)}, ${OUTCOMES[one.outcome]}, score ${number(one.score)}`)),
      h("div", { class: "trajectory" }, one.steps.map((step, turn) => {
        const size = step.screen?.width ? step.screen : { width: 16, height: 10 };
        const stage = h("div", { class: "stage", style: { "aspect-ratio": `${size.width} / ${size.height}` } }, step.image && h("img", { src: step.image, alt: `turn ${turn + 1}`, class: "shot-image" }));
        if (step.image) stage.append(overlay(step, size.width, size.height));
        return h("figure", {}, stage, h("figcaption", {}, h("b", {}, `${turn + 1}. ${step.actions.map((action) => action.text).join("; ") || "no action"}`), step.thought && h("div", { class: "muted" }, step.thought)));
      })));
  }
}

drawCurves();
drawTrajectories();
