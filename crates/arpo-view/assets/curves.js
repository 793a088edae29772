// Which plots there are and what is in them. Metrics that no plot names come last, one plot each.
// It has no imports, so that a report can carry it as it is.

const ONE = [0, 1];

// title, metrics as [name, legend] or a prefix ending in *, range of the y axis
export const GROUPS = [
  ["Learning", [
    { title: "Success in evaluations", sets: true, range: ONE },
    { title: "Success of collected episodes", metrics: [["reward/score", "score"]], range: ONE },
    { title: "Reward", metrics: [["reward/mean", "mean reward"]], deviation: "reward/std" },
    { title: "Entropy", metrics: [["policy/entropy", "entropy"]] },
    { title: "KL", metrics: [["loss/kl", "to the sampler"], ["loss/reference_kl", "to the reference"]] },
    { title: "Mismatch of sampler and learner", metrics: [["policy/mismatch", "mean"], ["policy/mismatch_largest", "largest"]] },
    { title: "Gradient norm", metrics: [["update/gradient_norm", "norm"]] },
    { title: "Clipped tokens", metrics: [["loss/clip_fraction", "clipped"], ["loss/clip_fraction_dual", "dual clip"]] },
  ]],
  ["Replay and groups", [
    { title: "Replayed episodes", metrics: [["replay/injected", "injected"]] },
    { title: "Age of replayed episodes", metrics: [["replay/age", "versions"]] },
    { title: "Replay buffer", metrics: [["replay/stored", "stored"]] },
    { title: "Groups", metrics: [["groups/informative", "informative"], ["groups/all_failed", "all failed"], ["groups/all_solved", "all solved"]] },
  ]],
  ["Time", [
    { title: "Seconds of an iteration", metrics: [["time/iteration", "all"], ["time/collect", "collect"], ["time/learn", "learn"], ["time/evaluate", "evaluate"]] },
    { title: "Utilisation", metrics: [["time/desktop_utilisation", "desktops"], ["time/policy_utilisation", "policy"]], range: ONE },
    { title: "Tokens per second", metrics: [["time/sampled_tokens_per_second", "sampled"], ["time/learnt_tokens_per_second", "learnt"]] },
    { title: "Memory in MiB", metrics: [["time/resident_mib", "resident"]] },
  ]],
  ["Episodes and failures", [
    { title: "Turns of an episode", metrics: [["episode/turns", "turns"]] },
    { title: "Tokens of an episode", metrics: [["episode/tokens", "all"], ["episode/trained_tokens", "trained"]] },
    { title: "Failures of desktops", metrics: [["collect/lost", "lost episodes"], ["failures/*", ""]] },
    { title: "Injected faults", metrics: [["faults/*", ""]] },
  ]],
];

const COLOURS = ["var(--c0)", "var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)", "var(--c6)"];
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 3", "10 4", "4 6"];

// in the order, and so the colours, of curve.png
const SETS = ["training", "unseen", "held_out"];
const setOrder = (name) => (SETS.indexOf(name.slice(11)) + 1) || SETS.length + 1;
const isSet = (name) => name.startsWith("evaluation/") && !name.slice(11).includes("/") && name !== "evaluation/lost";

// The metrics of a plot that the runs have.
function wanted(plot, names) {
  if (plot.sets) return names.filter(isSet).sort((a, b) => setOrder(a) - setOrder(b)).map((name) => [name, name.slice(11).replace("_", " ")]);
  return plot.metrics.flatMap(([name, legend]) => {
    if (!name.endsWith("*")) return names.includes(name) ? [[name, legend]] : [];
    const prefix = name.slice(0, -1);
    return names.filter((one) => one.startsWith(prefix)).map((one) => [one, one.slice(prefix.length)]);
  });
}

// All plots for the metrics of some runs: [group, [plot...]], each plot with its list of metrics.
export function plots(runs) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.metrics.columns)))];
  const used = new Set(["iteration", "time/wall", "evaluation/lost", "reward/std"]);
  const groups = GROUPS.map(([title, list]) => [title, list.map((plot) => {
    const metrics = wanted(plot, names);
    metrics.forEach(([name]) => used.add(name));
    return { ...plot, metrics };
  }).filter((plot) => plot.metrics.length)]);
  const rest = names.filter((name) => !used.has(name) && !/^evaluation\/.*\/(low|high)$/.test(name)).sort();
  groups.push(["More", rest.map((name) => ({ title: name, metrics: [[name, name.split("/").pop()]] }))]);
  return groups.filter(([, list]) => list.length);
}

// The x values of a run: iterations, or hours since its start.
export function xValues(metrics, byTime) {
  const { columns, rows } = metrics;
  const iterations = columns.iteration ?? Array.from({ length: rows }, (_, row) => row + 1);
  if (!byTime) return iterations;
  if (columns["time/wall"]) {
    const start = metrics.started ?? columns["time/wall"].find((time) => time !== null);
    return columns["time/wall"].map((time) => (time === null ? null : (time - start) / 3600));
  }
  // runs of older versions only have durations
  let sum = 0;
  return iterations.map((_, row) => (sum += columns["time/iteration"]?.[row] ?? 0) / 3600);
}

// The curves of a plot. With one run colours tell metrics apart; with several they tell runs apart, and dashes metrics.
export function seriesOf(plot, runs, byTime) {
  return runs.flatMap((run, position) => plot.metrics.map(([name, legend], index) => {
    const { columns } = run.metrics;
    if (!columns[name]) return null;
    const single = runs.length === 1;
    const label = plot.metrics.length === 1 && !single ? run.id : single ? legend || name : `${run.id} ${legend}`;
    let [low, high] = [columns[`${name}/low`], columns[`${name}/high`]];
    if (plot.deviation && columns[plot.deviation]) [low, high] = meanInterval(columns, name, plot.deviation);
    return {
      name: label, x: xValues(run.metrics, byTime), y: columns[name], low, high,
      colour: COLOURS[(single ? index : position) % COLOURS.length], dash: single ? "" : DASHES[index % DASHES.length],
    };
  }).filter((one) => one !== null));
}

// The 95 % interval of a mean over an iteration's episodes.
function meanInterval(columns, name, deviation) {
  const half = columns[name].map((value, row) => {
    const count = columns["collect/episodes"]?.[row];
    return value === null || !count || columns[deviation][row] === null ? null : (1.96 * columns[deviation][row]) / Math.sqrt(count);
  });
  return [half.map((one, row) => (one === null ? null : columns[name][row] - one)), half.map((one, row) => (one === null ? null : columns[name][row] + one))];
}

// The mean of several curves where all have a point, with the 95 % interval over them (Student's t).
const STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131];

export function meanSeries(name, colour, all) {
  const found = new Map();
  for (const { x, y } of all) x.forEach((at, row) => y[row] !== null && y[row] !== undefined && found.set(at, [...(found.get(at) ?? []), y[row]]));
  const points = [...found].filter(([, values]) => values.length === all.length).sort(([a], [b]) => a - b);
  const means = points.map(([, values]) => values.reduce((a, b) => a + b, 0) / values.length);
  const halves = points.map(([, values], row) => {
    if (values.length < 2) return null;
    const variance = values.reduce((sum, value) => sum + (value - means[row]) ** 2, 0) / (values.length - 1);
    return (STUDENT[values.length - 2] ?? 1.96) * Math.sqrt(variance / values.length);
  });
  const side = (sign) => halves.map((half, row) => (half === null ? null : means[row] + sign * half));
  return { name, colour, dash: "", x: points.map(([at]) => at), y: means, low: side(-1), high: side(1) };
}

export { COLOURS };
