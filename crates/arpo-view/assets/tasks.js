// Tasks: a matrix of tasks by iteration, coloured by success.

import { ofRun } from "./api.js";
import { update } from "./address.js";
import { h, number, replace, select } from "./dom.js";

const SORTS = [["task", "name"], ["difficulty", "hardest first"], ["gain", "largest gain first"], ["application", "application"]];

export async function show(context) {
  const { params, run } = context;
  const state = { source: params.get("source") ?? "", sort: params.get("sort") ?? "task", search: params.get("search") ?? "" };
  const hint = h("span", { class: "hint" });
  const sources = h("span", {});
  const table = h("div", { class: "scroll matrix-box" });
  context.place(h("h1", { class: "hidden" }, "Tasks"), h("div", { class: "controls" }, sources,
    select("Order", SORTS, state.sort, (sort) => change({ sort })),
    h("label", { class: "field" }, h("span", {}, "Search"), h("input", { type: "search", value: state.search, placeholder: "task, application, words",
      "aria-label": "Search", oninput: (event) => change({ search: event.target.value }) })), hint, scale()), table);
  let [asked, drawn, offered] = [0, "", ""];

  function change(changes) {
    Object.assign(state, changes);
    update(state);
    refresh().catch(() => {});
  }

  async function refresh() {
    const mine = ++asked;
    const columns = Math.max(8, Math.min(80, Math.floor((table.clientWidth - (table.clientWidth > 760 ? 410 : 200)) / 15)));
    const matrix = await ofRun(run, "tasks", { ...state, columns });
    const wanted = JSON.stringify(matrix);
    if (mine !== asked || wanted === drawn) return;
    drawn = wanted;
    const focused = table.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    draw(matrix);
    if (focused) [...table.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus({ preventScroll: true });
  }

  function draw(matrix) {
    if (offered !== String(matrix.sources)) {
      offered = String(matrix.sources);
      const names = matrix.sources.map((name) => [name, name === "collected" ? "collected episodes" : `evaluation: ${name.replace("_", " ")}`]);
      replace(sources, select("Scores of", names, matrix.source, (source) => change({ source })));
    }
    hint.textContent = `${number(matrix.total)} tasks${matrix.rows.length < matrix.total ? `, the first ${matrix.rows.length} shown` : ""}`;
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
  return { update: (news) => news[run]?.grown && refresh() };
}

function scale() {
  return h("span", { class: "scale", role: "img", "aria-label": "Colours from 0, never solved, to 1, always solved" }, "0 ",
    Array.from({ length: 11 }, (_, level) => h("span", { class: `cell level-${level}` })), " 1");
}
