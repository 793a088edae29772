// The state of a view is in the address behind the #, so that any view can be shared: #/page?name=value&...

export function current() {
  const text = location.hash.replace(/^#\/?/, "");
  const [page, query] = text.split("?");
  return { page: page || "overview", params: new URLSearchParams(query ?? "") };
}

export function link(page, params) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== "" && value !== false) query.set(name, value);
  }
  const text = query.toString();
  return `#/${page}${text ? `?${text}` : ""}`;
}

// Changes parts of the address without a new entry in the history, and without drawing the page again.
export function update(changes) {
  const { page, params } = current();
  const all = { ...Object.fromEntries(params), ...changes };
  history.replaceState(null, "", link(page, all));
}

export function go(page, params) {
  location.hash = link(page, params).slice(1);
}
