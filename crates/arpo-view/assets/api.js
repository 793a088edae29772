// Requests to the server, each with a deadline.

const DEADLINE = 30000;

export async function get(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, value);
  }
  const text = query.toString();
  const response = await fetch(text ? `${path}?${text}` : path, { signal: AbortSignal.timeout(DEADLINE) });
  const body = await response.json();
  if (!response.ok) throw new Error(body.error ?? `status ${response.status}`);
  return body;
}

export const ofRun = (run, what, params) => get(`/api/runs/${encodeURIComponent(run)}/${what}`, params);

export function screen(run, digest, width) {
  return `/screens/${encodeURIComponent(run)}/${encodeURIComponent(digest)}.png${width ? `?width=${width}` : ""}`;
}

// Which runs there are, and whether there can be more.
export const allRuns = () => get("/api/runs");

// The metrics of a run, kept and extended: only new lines are asked for.
const kept = new Map();

export async function metrics(run) {
  const known = kept.get(run) ?? { generation: null, rows: 0, columns: {} };
  const news = await ofRun(run, "metrics", { generation: known.generation, from: known.rows });
  const base = news.from === 0 ? { columns: {}, rows: 0 } : known;
  const columns = base.columns;
  for (const [name, values] of Object.entries(news.columns)) {
    const column = columns[name] ?? (columns[name] = []);
    while (column.length < news.from) column.push(null);
    column.length = news.from;
    for (const value of values) column.push(value);
  }
  for (const column of Object.values(columns)) while (column.length < news.rows) column.push(null);
  const result = { generation: news.generation, rows: news.rows, columns, started: news.started };
  kept.set(run, result);
  return result;
}
