// What is under the pointer, or next to what is picked.

import { count, duration, measure, share } from "../format.js";

// The slice of a row at an instant: { from, to, title, lines, event, top, tall }, or null.
export function at(row, ns, slack, y, answer) {
  if (row.kind === "findings") return finding(row, ns, slack);
  if (!row.track) return null;
  const number = nearest(row, ns - row.offset, slack, y);
  return number === null ? null : slice(row, number, answer);
}

function finding(row, ns, slack) {
  const found = row.members.find((each) => each.from - slack <= ns && ns <= each.to + slack);
  if (!found) return null;
  return { row: row.id, from: found.from, to: found.to, top: 0, tall: row.height, title: found.title, lines: [`${found.severity}, ${found.kind}`, `for ${duration(found.to - found.from)}`], finding: found.finding };
}

function nearest(row, ns, slack, y) {
  const { track } = row;
  if (row.kind === "counter") return before(track.start_ns, ns);
  const depth = row.kind === "calls" ? Math.floor((y - (row.above ?? 0)) / 16) : null;
  let best = null;
  let length = Infinity;
  for (let number = 0; number < track.start_ns.length; number += 1) {
    const start = track.start_ns[number];
    const long = track.length_ns[number];
    if (start - slack > ns || start + long + slack < ns) continue;
    if (depth !== null && Math.min(track.depth[number], 3) !== depth) continue;
    if (long < length) {
      best = number;
      length = long;
    }
  }
  return best;
}

function before(starts, ns) {
  let found = null;
  for (let number = 0; number < starts.length && starts[number] <= ns; number += 1) found = number;
  return found;
}

// One slice of a row, as it is told.
export function slice(row, number, answer) {
  const { track, offset, kind } = row;
  const from = track.start_ns[number] + offset;
  const long = track.length_ns[number] ?? 0;
  const depth = kind === "calls" ? Math.min(track.depth[number], 3) : 0;
  const place = { row: row.id, number, from, to: from + long, top: depth * 16 + (row.above ?? 0), tall: kind === "calls" ? 15 : row.height - (row.above ?? 0) - 1, node: track.node };
  if (kind === "counter") return { ...place, title: track.title, lines: [measure(track.values[number], track.unit)] };
  if (kind === "accounted") return { ...place, title: `${track.title} ${track.tid}`, lines: [...shares(track, number, answer.buckets), ...core(track, number)] };
  const name = answer.names[track.name[number]];
  const several = track.count[number] > 1;
  const title = answer.layers[track.name[number]] === "wait" ? (answer.buckets[name] ?? name) : name;
  return { ...place, title, lines: told(track, number, kind, several, long), event: track.event.length ? `${track.node}:${track.event[number]}` : null };
}

function shares(track, number, words) {
  return track.buckets
    .map((bucket, which) => [track.shares[which][number], words[bucket] ?? bucket])
    .filter(([part]) => part > 0.001)
    .sort((a, b) => b[0] - a[0])
    .map(([part, name]) => `${share(part)} ${name}`);
}

// Who had the core while the thread waited for one.
function core(track, number) {
  const takers = track.takers?.[number] ?? [];
  if (!takers.length) return [];
  return [`the core was had by ${takers.map(([comm, pid, ns]) => `${comm}${pid === null ? "" : ` (${pid})`} ${duration(ns)}`).join(", ")}`];
}

function told(track, number, kind, several, long) {
  if (kind === "moments") return [];
  if (kind === "in_flight") return [`not returned after ${duration(long)}`];
  if (kind === "called") return [`most time of ${count(track.count[number])} calls`, `longest ${duration(track.longest_ns[number])}`];
  if (kind === "labels") return [several ? `and ${count(track.count[number] - 1)} more` : `for ${duration(long)}`];
  if (several) return [`longest of ${count(track.count[number])}, ${duration(track.longest_ns[number])}`, "zoom in to see each"];
  return [duration(track.longest_ns[number])];
}
