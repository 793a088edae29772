// Tasks: a matrix of tasks by iteration, coloured by success.

import { ofRun } from "./api.js";
import { update } from "./address.js";
import { h, number, replace, select } from "./dom.js";

const SORTS = [["task", "name"], ["difficulty", "hardest first"], ["gain", "largest gain first"], ["application", "application"]];

export async function show(root, context) {
  const { params, run } = context;
  const state = { source: params.get("source") ?? "", sort: params.get("sort") ?? "task", search: params.get("search") ?? "" };
  const controls = h("div", { class: "controls" });
  const table = h("div", { class: "scroll matrix-box" });
  replace(root, h("h1", { class: "hidden" }, "Tasks"), controls, table);
  let asked = 0;

  const search = h("input", { type: "search", value: state.search, placeholder: "task, application, words", "aria-label": "Search",
    oninput: (event) => change({ search: event.target.value }) });

  function change(changes) {
    Object.assign(state, changes);
    update(state);
    refresh().catch(() => {});
  }

  async function refresh() {
    const mine = ++asked;
    const columns = Math.max(8, Math.min(80, Math.floor((root.clientWidth - (root.clientWidth > 800 ? 460 : 220)) / 15)));
    const matrix = await ofRun(run, "tasks", { ...state, columns });
    if (mine === asked) draw(matrix);
  }

  function draw(matrix) {
    const sources = matrix.sources.map((name) => [name, name === "collected" ? "collected episodes" : `evaluation: ${name.replace("_", " ")}`]);
    replace(controls, select("Scores of", sources, matrix.source, (source) => change({ source })),
      select("Order", SORTS, state.sort, (sort) => change({ sort })),
      h("label", { class: "field" }, h("span", {}, "Search"), search),
      h("span", { class: "hint" }, `${number(matrix.total)} tasks${matrix.rows.length < matrix.total ? `, the first ${matrix.rows.length} shown` : ""}`), scale());
    if (document.activeElement === document.body && state.search) search.focus();
    if (!matrix.rows.length) return replace(table, h("p", { class: "empty" }, "No task fits, or nothing has been played yet."));
    const text = (column) => (column.from === column.to ? `${column.from}` : `${column.from}–${column.to}`);
    const every = Math.ceil(matrix.columns.length / 8);
    replace(table, h("table", { class: "matrix" },
      h("thead", {}, h("tr", {}, h("th", {}, "Task"), h("th", {}, "Application"), h("th", { class: "number" }, "Mean"), h("th", { class: "number" }, "Gain"),
        h("th", {}, `By iteration, ${matrix.columns.length ? `${text(matrix.columns[0])} to ${text(matrix.columns[matrix.columns.length - 1])}` : ""}`))),
      h("tbody", {}, matrix.rows.map((row) => h("tr", {},
        h("th", { scope: "row" }, h("a", { href: context.link("task", { task: row.task }), title: row.instruction ?? row.task }, row.task)),
        h("td", { class: "muted" }, row.application || "–"), h("td", { class: "number" }, number(row.mean)),
        h("td", { class: "number" }, row.last - row.first > 0 ? "+" : "", number(row.last - row.first)),
        h("td", { class: "cells" }, h("div", { class: "cell-row", role: "img", "aria-label": `from ${number(row.first)} to ${number(row.last)}` },
          row.cells.map((cell, index) => h("span", { class: cell === null ? "cell none" : `cell level-${Math.round(cell * 10)}`,
            title: `iteration ${text(matrix.columns[index])}: ${cell === null ? "not played" : number(cell)}` })))))),
        h("tr", { class: "axis" }, h("td", { colspan: 4 }), h("td", { class: "cells" }, h("div", { class: "cell-row" },
          matrix.columns.map((column, index) => h("span", { class: "cell mark" }, index % every === 0 ? column.from : ""))))))));
  }

  await refresh();
  return { update: () => refresh().catch(() => {}) };
}

function scale() {
  return h("span", { class: "scale", role: "img", "aria-label": "Colours from 0, never solved, to 1, always solved" }, "0 ",
    Array.from({ length: 11 }, (_, level) => h("span", { class: `cell level-${level}` })), " 1");
}
