// A group side by side: the rollouts of one task in one batch, with their advantages.

import { ofRun, screen } from "./api.js";
import { attemptName, h, number, OUTCOMES, replace, when } from "./dom.js";

const MOST_FRAMES = 12;

export async function show(context) {
  const { params, run } = context;
  const [file, id] = [params.get("file"), params.get("id")];
  const { row, group } = await ofRun(run, "episode", { file, id });
  const columns = h("div", { class: "group" });
  context.place(h("p", {}, h("a", { href: context.link("episodes", { task: row.task }) }, "← episodes of this task")),
    h("h1", {}, row.task), h("p", { class: "instruction" }, row.instruction ?? ""),
    h("p", { class: "muted" }, `${group.length} rollouts of the ${row.origin === "evaluation" ? "" : "batch of "}${when(row)}, mean score ${number(group.reduce((sum, one) => sum + one.score, 0) / group.length)}`),
    columns);
  const largest = Math.max(1e-9, ...group.map((one) => Math.abs(one.advantage ?? 0)));
  for (const member of group) {
    const frames = h("div", { class: "frames" });
    const size = Math.abs(member.advantage ?? 0) / largest;
    columns.append(h("article", { class: "member", "aria-current": member.id === id ? "true" : undefined },
      h("header", {}, h("a", { href: context.link("player", { file, id: member.id }) }, attemptName(member.id)),
        h("span", { class: "tag", "data-origin": member.origin }, member.origin), h("span", { class: "tag", "data-outcome": member.outcome }, OUTCOMES[member.outcome])),
      h("div", { class: "score" }, h("b", {}, number(member.score)), " score"),
      h("div", { class: "advantage" }, h("div", { class: "bar", "data-sign": (member.advantage ?? 0) < 0 ? "minus" : "plus", style: { width: `${50 * size}%` } }),
        h("span", {}, member.advantage === null ? "no advantage recorded" : `advantage ${number(member.advantage)}`)),
      frames));
    if (member.kept) load(member, frames);
  }

  async function load(member, frames) {
    try {
      const { episode } = await ofRun(run, "episode", { file, id: member.id });
      replace(frames, episode.steps.slice(0, MOST_FRAMES).map((step, turn) => h("a", { class: "frame", href: context.link("player", { file, id: member.id, turn: turn + 1 }) },
        step.screen && h("img", { src: screen(run, step.screen.digest, 240), alt: `turn ${turn + 1}`, loading: "lazy", width: 160, height: 100 }),
        h("span", {}, `${turn + 1}. ${step.actions.map((action) => action.text).join("; ") || "no action"}`))),
      episode.steps.length > MOST_FRAMES && h("p", { class: "muted" }, `and ${episode.steps.length - MOST_FRAMES} more turns`));
    } catch (error) {
      replace(frames, h("p", { class: "problem" }, error.message));
    }
  }
  return {};
}
