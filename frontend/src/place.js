// Where we are: page, node, stretch of time and tenant, all in the address, so that a link shows the same.

const listeners = new Set();
const OWN = ["fleet", "node", "since", "from", "to"];
export const WHOSE = ["container", "pod", "namespace", "job", "user"];

export function place() {
  const query = new URLSearchParams(location.search);
  const found = { page: location.pathname };
  for (const [name, value] of query) found[name] = value;
  return found;
}

// What every question carries.
export function asked() {
  return chosen(OWN);
}

// The machine and the node: an answer about others comes too late.
export function where() {
  const { fleet, node } = place();
  return JSON.stringify([fleet, node]);
}

// Whose processes; nothing for everybody's.
export function whose() {
  return chosen(WHOSE);
}

// What questions about processes carry.
export function askedOf() {
  return { ...asked(), ...whose() };
}

function chosen(names) {
  const now = place();
  return Object.fromEntries(names.filter((name) => now[name]).map((name) => [name, now[name]]));
}

export function address(page, changes = {}) {
  const query = new URLSearchParams();
  const wanted = { ...askedOf(), ...changes };
  for (const [name, value] of Object.entries(wanted)) if (value) query.set(name, value);
  const text = query.toString();
  return text ? `${page}?${text}` : page;
}

export function go(page, changes = {}) {
  history.pushState(null, "", address(page, changes));
  tell();
}

// The same page; `quiet` where it shows the change already.
export function change(changes, quiet = false) {
  const own = Object.fromEntries(Object.entries(place()).filter(([name]) => name !== "page"));
  const to = address(location.pathname, { ...own, ...changes });
  history[quiet ? "replaceState" : "pushState"](null, "", to);
  tell(quiet);
}

export function onPlace(listener) {
  listeners.add(listener);
}

function tell(quiet = false) {
  for (const listener of listeners) listener(quiet);
}

window.addEventListener("popstate", () => tell());
