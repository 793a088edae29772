// The player: an episode turn by turn, beside another one of its group if asked.

import { ofRun, screen } from "./api.js";
import { update } from "./address.js";
import { attemptName, episodeName, h, number, OUTCOMES, replace, select, when } from "./dom.js";
import { overlay } from "./marks.js";

const SPEEDS = [["2000", "slow"], ["1000", "normal"], ["400", "fast"], ["150", "very fast"]];

export async function show(context) {
  const { params, run } = context;
  const [file, id] = [params.get("file"), params.get("id")];
  const first = await ofRun(run, "episode", { file, id });
  const state = { turn: Math.max(0, Number(params.get("turn") ?? 1) - 1), other: params.get("other") ?? "", shade: params.get("shade") ?? "logp", speed: "1000" };
  const panes = [pane(run, first)];
  let timer = null;
  const stages = h("div", { class: "stages" });
  const strip = h("div", { class: "strip", role: "group", "aria-label": "Turns" });
  const slider = h("input", { type: "range", min: 1, "aria-label": "Turn", oninput: (event) => go(Number(event.target.value) - 1) });
  const said = h("output", { class: "turn" });
  const play = h("button", { type: "button", onclick: () => toggle(), "aria-label": "Play or pause" }, "▶ Play");
  const message = h("span", { class: "hint", role: "status" });
  const others = first.group.filter((one) => one.id !== id);
  const jump = h("button", { type: "button", class: "quiet", disabled: !state.other, onclick: () => diverge() }, "First divergence");
  context.place(head(context, first), h("div", { class: "controls player-controls" },
    h("button", { type: "button", class: "quiet", onclick: () => go(0), "aria-label": "First turn" }, "|◀"),
    h("button", { type: "button", class: "quiet", onclick: () => go(state.turn - 1), "aria-label": "Previous turn" }, "◀"), play,
    h("button", { type: "button", class: "quiet", onclick: () => go(state.turn + 1), "aria-label": "Next turn" }, "▶"),
    h("button", { type: "button", class: "quiet", onclick: () => go(length() - 1), "aria-label": "Last turn" }, "▶|"), slider, said,
    select("Speed", SPEEDS, state.speed, (value) => { state.speed = value; if (timer) { toggle(); toggle(); } }),
    select("Tokens", [["logp", "log-probability"], ["ratio", "ratio"], ["none", "plain"]], state.shade, (value) => { state.shade = value; update({ shade: value }); draw(); }),
    others.length > 0 && select("Beside", [["", "nothing"], ...others.map((one) => [one.id, `${attemptName(one.id)}: score ${number(one.score)}`])], state.other, (value) => compare(value)),
    others.length > 0 && jump, message), stages, strip, h("p", { class: "hint" }, "← → turns, space plays, Home and End, d: first divergence"));

  const length = () => Math.max(...panes.map((one) => one.frames.length));

  async function compare(other) {
    panes.length = 1;
    state.other = other;
    update({ other });
    jump.disabled = !other;
    if (other) {
      try { panes.push(pane(run, await ofRun(run, "episode", { file, id: other }))); } catch (error) { message.textContent = error.message; }
    }
    build();
  }

  async function diverge() {
    if (!state.other) return;
    const { turn } = await ofRun(run, "divergence", { file, id, other: state.other });
    message.textContent = turn === null ? "They do the same in every turn." : `They differ first in turn ${turn + 1}.`;
    if (turn !== null) go(turn);
  }

  function toggle() {
    if (timer) { clearInterval(timer); timer = null; } else {
      if (state.turn >= length() - 1) go(0);
      timer = setInterval(() => (state.turn < length() - 1 ? go(state.turn + 1) : toggle()), Number(state.speed));
    }
    play.textContent = timer ? "❚❚ Pause" : "▶ Play";
  }

  function go(turn) {
    state.turn = Math.min(length() - 1, Math.max(0, turn));
    update({ turn: state.turn + 1 });
    draw();
  }

  function build() {
    state.turn = Math.min(state.turn, length() - 1);
    slider.max = length();
    replace(stages, panes.map((one) => one.root));
    stages.dataset.panes = String(panes.length);
    replace(strip, panes[0].frames.map((frame, turn) => h("button", { type: "button", class: "thumb", onclick: () => go(turn), "aria-label": `turn ${turn + 1}` },
      frame.screen ? h("img", { src: screen(run, frame.screen.digest, 160), alt: "", loading: "lazy", width: 112, height: 70 }) : h("span", { class: "no-shot" }), h("span", {}, turn + 1))));
    draw();
  }

  function draw() {
    slider.value = state.turn + 1;
    said.textContent = `${state.turn + 1} / ${length()}`;
    panes.forEach((one) => one.draw(state.turn, state.shade));
    [...strip.children].forEach((thumb, turn) => {
      thumb.setAttribute("aria-current", String(turn === state.turn));
      if (turn === state.turn) strip.scrollTo({ left: thumb.offsetLeft - strip.clientWidth / 2 + thumb.clientWidth / 2 });
    });
  }

  if (state.other) await compare(state.other);
  else build();
  return {
    close: () => timer && clearInterval(timer),
    key(event) {
      const steps = { ArrowLeft: () => go(state.turn - 1), ArrowRight: () => go(state.turn + 1), Home: () => go(0), End: () => go(length() - 1), d: diverge, " ": toggle };
      const step = steps[event.key];
      // a button is pressed by the space bar itself
      if (!step || (event.key === " " && event.target.tagName === "BUTTON")) return;
      event.preventDefault();
      step();
    },
  };
}

function head(context, { row, group }) {
  const facts = [when(row), row.origin !== "evaluation" && row.origin, OUTCOMES[row.outcome], `${row.turns} turns`, `score ${number(row.score)}`,
    row.advantage !== null && `advantage ${number(row.advantage)}`, `version ${row.version}`];
  return h("header", { class: "player-head" }, h("p", {}, h("a", { href: context.link("episodes", { task: row.task }) }, "← episodes"), " · ",
    group.length > 1 && h("a", { href: context.link("group", { file: row.file, id: row.id }) }, `group of ${group.length} side by side`)),
  h("h1", {}, row.task), h("p", { class: "instruction" }, row.instruction ?? ""), h("p", { class: "muted" }, facts.filter(Boolean).join(" · ")),
  row.reason && h("p", { class: "problem" }, row.reason));
}

// One episode: its screenshot with the action on it, and what the agent wrote.
function pane(run, { row, episode }) {
  const frames = episode.steps.slice();
  if (episode.last_screen) frames.push({ screen: episode.last_screen, response: "", actions: [], thought: null, tokens: null, after: true });
  const image = h("img", { alt: "screenshot", class: "shot-image" });
  const missing = h("p", { class: "missing", hidden: true }, "This screenshot is not kept.");
  image.addEventListener("error", () => { image.hidden = true; missing.hidden = false; });
  image.addEventListener("load", () => { image.hidden = false; missing.hidden = true; });
  const stage = h("div", { class: "stage" }, image, missing);
  const text = h("div", { class: "said" });
  const size = frames.map((frame) => frame.screen).find((one) => one?.width) ?? { width: 16, height: 10 };
  stage.style.setProperty("aspect-ratio", `${size.width} / ${size.height}`);
  stage.style.setProperty("--ratio", String(size.width / size.height));

  function draw(turn, shade) {
    const frame = frames[turn];
    stage.querySelector("svg")?.remove();
    if (!frame) {
      image.hidden = true;
      return replace(text, h("p", { class: "muted" }, `This episode ended after ${frames.length} turns.`));
    }
    if (frame.screen) {
      const source = screen(run, frame.screen.digest);
      if (image.getAttribute("src") !== source) image.src = source;
      stage.append(overlay(frame, frame.screen.width || size.width, frame.screen.height || size.height));
      const next = frames[turn + 1]?.screen;
      if (next) new Image().src = screen(run, next.digest);
    } else { image.hidden = true; missing.hidden = false; }
    replace(text, frame.after ? h("p", { class: "muted" }, "The screen at the end.") : [
      frame.thought && [h("h2", {}, "Thought"), h("p", { class: "thought" }, frame.thought)],
      h("h2", {}, frame.actions.length > 1 ? "Actions" : "Action"), h("ul", { class: "actions" }, frame.actions.length ? frame.actions.map((action) => h("li", {}, action.text)) : h("li", { class: "problem" }, "none could be parsed")),
      h("h2", {}, "Response"), response(frame, shade)]);
  }
  return { root: h("article", { class: "pane" }, h("h2", { class: "pane-title", title: row.id }, episodeName(row.id, row), h("span", { class: "muted" }, ` score ${number(row.score)}`)), stage, text), frames, draw };
}

// The response as text, its tokens shaded.
function response(frame, shade) {
  const tokens = frame.tokens;
  if (!tokens?.pieces?.length || shade === "none") {
    const mean = tokens?.logp?.length ? tokens.logp.reduce((a, b) => a + b, 0) / tokens.logp.length : null;
    return [h("pre", { class: "response" }, frame.response), mean !== null && h("p", { class: "muted" }, `mean log-probability ${number(mean)} over ${tokens.logp.length} tokens`)];
  }
  const spans = tokens.pieces.map((piece, index) => {
    const [logp, ratio] = [tokens.logp[index], tokens.ratio?.[index] ?? null];
    const strength = shade === "ratio" ? (ratio === null ? 0 : Math.min(1, Math.abs(Math.log(ratio)) / 0.25)) : Math.min(1, -(logp ?? 0) / 3);
    const kind = shade === "ratio" ? (ratio !== null && ratio < 1 ? "less" : "more") : "unsure";
    return h("span", { class: `token ${kind}`, style: { "--strength": strength.toFixed(2) }, title: `log-probability ${number(logp, 3)}${ratio === null ? "" : `, ratio ${number(ratio, 3)}`}` }, piece);
  });
  const legend = shade === "ratio" ? ["Ratio of the last update: ", h("span", { class: "token less", style: { "--strength": "1" } }, "below 0.8"), " ", h("span", { class: "token more", style: { "--strength": "1" } }, "above 1.25"), tokens.ratio ? "" : "; not in an update"]
    : ["Log-probability: ", h("span", { class: "token unsure", style: { "--strength": "0.33" } }, "−1"), " ", h("span", { class: "token unsure", style: { "--strength": "1" } }, "−3 or less")];
  return [h("pre", { class: "response" }, spans), h("p", { class: "legend-line muted" }, legend)];
}
