// From an answer to rows: which track stands where, how high, under which heading.

const HEIGHT = { heading: 24, accounted: 30, called: 16, calls: 16, waits: 12, in_flight: 12, counter: 34, moments: 16, findings: 20, labels: 16 };
const GAP = 3;
const NAME = 14; // of a line of its own above the row, where there is no room for names beside it
const NAMED = new Set(["accounted", "counter", "calls", "called", "waits", "in_flight", "moments"]);
const FLAT = 0.05; // of its highest value
const DEEPEST = 4;

// Rows from top to bottom with y and height; the same order at every zoom level, so that nothing jumps.
// `narrow`: names stand above their rows.
export function rowsOf(answer, findings, originOffset, closed, narrow = false) {
  const groups = new Map();
  const group = (key, heading, order) => {
    if (!groups.has(key)) groups.set(key, { key, heading, order, rows: [] });
    return groups.get(key);
  };
  if (findings.length) {
    const lanes = laneOf(findings);
    const rows = group("findings", "Findings", -2).rows;
    for (const [number, members] of lanes.entries()) rows.push({ kind: "findings", label: number ? "" : "findings", members, id: `findings ${number}` });
  }
  const several = new Set(answer.tracks.map((track) => track.node)).size > 1;
  answer.tracks.forEach((track, at) => {
    const own = track.process === "";
    const still = own && isFlat(track);
    const key = own ? `machine ${track.node}${still ? " still" : ""}` : `process ${track.node} ${track.pid} ${track.process}`;
    const machine = several ? `${track.node}: machine` : "Machine and GPUs";
    const process = several ? track.process : track.process.replace(`${track.node} `, ""); // one node need not be named
    const heading = own ? `${machine}${still ? ", what did not change" : ""}` : `${process} (${track.pid})`;
    const found = group(key, heading, still ? 0.7 : own ? 0.5 : 1); // below the job, above its helpers
    found.folded = still;
    if (track.feeder) found.order = Math.min(found.order, 0);
    found.rows.push({ kind: track.kind, label: labelOf(track), track, at, id: `${key} ${track.kind} ${track.tid ?? track.title}`, offset: originOffset });
  });
  return placed([...groups.values()].sort((a, b) => a.order - b.order), closed, narrow);
}

function isFlat(track) {
  if (track.kind !== "counter" || /GPU busy$/.test(track.title)) return false; // whether the GPU works is always asked
  const known = track.values.filter((value) => value !== null);
  const least = known.reduce((so_far, value) => Math.min(so_far, value), Infinity);
  const most = known.reduce((so_far, value) => Math.max(so_far, value), 0);
  return most - least <= FLAT * (track.unit === "share" ? 1 : most) || !known.length;
}

function labelOf(track) {
  const words = { accounted: `${track.title} ${track.tid}`, calls: "calls", called: "calls", waits: "waits", in_flight: "in flight" };
  return words[track.kind] ?? track.title;
}

const ORDER = { counter: 0, moments: 1, labels: 0, called: 1 };
const WITHIN = { accounted: 0, calls: 1, in_flight: 2, waits: 3 };

function placed(groups, closed, narrow) {
  const rows = [];
  let y = 0;
  const push = (row, height) => {
    rows.push({ ...row, y, height });
    y += height + GAP;
  };
  for (const group of groups) {
    const shut = closed.has(group.key) !== Boolean(group.folded); // `closed` has what somebody clicked
    push({ kind: "heading", label: group.heading, id: group.key, closed: shut }, HEIGHT.heading);
    if (shut) continue;
    group.rows.sort(inOrder);
    for (const row of group.rows) {
      const above = narrow && NAMED.has(row.kind) ? NAME : 0;
      push({ ...row, above }, heightOf(row) + above);
    }
    y += 6;
  }
  return { rows, height: y };
}

function inOrder(a, b) {
  const first = (row) => ORDER[row.kind] ?? 2;
  const thread = (row) => (row.track?.tid === row.track?.pid ? 0 : (row.track?.tid ?? 0));
  return first(a) - first(b) || thread(a) - thread(b) || (WITHIN[a.kind] ?? 0) - (WITHIN[b.kind] ?? 0);
}

function heightOf(row) {
  if (row.kind !== "calls") return HEIGHT[row.kind] ?? 16;
  const deepest = row.track.depth.reduce((so_far, depth) => Math.max(so_far, depth), 0);
  return HEIGHT.calls * (1 + Math.min(deepest, DEEPEST - 1));
}

// Findings that overlap in time stand under each other.
function laneOf(findings) {
  const lanes = [];
  for (const each of [...findings].sort((a, b) => a.from - b.from)) {
    const free = lanes.find((lane) => lane.at(-1).to <= each.from);
    if (free) free.push(each);
    else lanes.push([each]);
  }
  return lanes;
}
