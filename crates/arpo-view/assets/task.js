// A task: its curve, its replay buffer, its episodes.

import { ofRun } from "./api.js";
import { COLOURS } from "./curves.js";
import { Plot } from "./plot.js";
import { episodeName, h, number, replace } from "./dom.js";
import { episodeTable } from "./episodes.js";

export async function show(context) {
  const { params, run } = context;
  const task = params.get("task");
  const answer = await ofRun(run, "task", { task, limit: 100 });
  const area = h("div", { class: "plots one" });
  const list = h("section", {});
  const replay = h("section", {});
  context.place(h("p", {}, h("a", { href: context.link("tasks") }, "← all tasks")),
    h("h1", {}, task), h("p", { class: "instruction" }, answer.instruction ?? "", answer.application ? h("span", { class: "muted" }, ` ${answer.application}`) : null),
    area, replay, list);
  const plot = new Plot(area, { title: "Success on this task", yRange: [0, 1], xName: () => "iteration" });

  function draw({ curves, episodes, replay: stored }) {
    plot.set(Object.entries(curves).map(([name, points], index) => ({
      name: name.replace("_", " "), colour: COLOURS[index % COLOURS.length], dash: "", x: points.map(([x]) => x), y: points.map(([, y]) => y),
    })), { smooth: 1 });
    replace(replay, h("h2", {}, "Replay buffer"), stored === null ? h("p", { class: "muted" }, "No checkpoint says what is stored.")
      : stored.successes.length === 0 ? h("p", { class: "muted" }, `Empty at iteration ${stored.iteration}.`)
      : h("ul", { class: "tags" }, stored.successes.map((one) => h("li", { title: one.id }, episodeName(one.id), h("small", { class: "muted" }, ` of version ${one.policy_version}, score ${number(one.score)}`)))));
    replace(list, h("h2", {}, `${number(episodes.total)} episodes`),
      episodes.total > episodes.rows.length && h("p", {}, h("a", { href: context.link("episodes", { task }) }, "All of them, with filters")),
      episodeTable(context, episodes.rows));
  }

  draw(answer);
  return {
    close: () => plot.close(),
    // the list stays as it is while somebody moves through it
    update: async (news) => news[run]?.grown && !list.contains(document.activeElement) && draw(await ofRun(run, "task", { task, limit: 100 })),
  };
}
