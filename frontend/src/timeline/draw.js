// Draws rows on a canvas. Knows nothing of where they come from or who looks at them.

import { bucketColour, callColour, inkOn, severityColour, theme } from "../colours.js";
import { clock, measure } from "../format.js";

export const AXIS = 26;

// `view` is { from, to } in nanoseconds after the origin; rows' tracks have offsets of their own.
export function draw(context, size, view, layout, state) {
  const { width, height, label } = size;
  const scale = (width - label) / (view.to - view.from);
  const frame = { context, width, height, label, x: (ns) => label + (ns - view.from) * scale, scale, scroll: state.scroll, names: state.names, layers: state.layers, words: state.words ?? {} };
  context.fillStyle = theme("panel");
  context.fillRect(0, 0, width, height);
  grid(frame, view, state.origin);
  context.save();
  context.beginPath();
  context.rect(0, AXIS, width, height - AXIS);
  context.clip();
  for (const row of layout.rows) {
    const y = AXIS + row.y - state.scroll;
    if (y + row.height < AXIS || y > height) continue;
    drawRow(frame, row, y);
    if (state.picked?.row === row.id) outline(frame, row, y, state.picked);
  }
  context.restore();
  axis(frame, view, state.origin);
  if (state.selecting) selection(frame, state.selecting);
}

const STEPS = [1, 2, 5];

function stepFor(length, width) {
  const least = (length / width) * 110;
  let power = 10 ** Math.floor(Math.log10(least));
  for (;;) {
    const found = STEPS.find((step) => step * power >= least);
    if (found) return found * power;
    power *= 10;
  }
}

function* ticks(view, width, origin) {
  const step = stepFor(view.to - view.from, width);
  const begin = Math.ceil((view.from + (origin % step)) / step) * step - (origin % step);
  for (let at = begin; at < view.to; at += step) yield at;
}

function grid(frame, view, origin) {
  const { context, height, x, label, width } = frame;
  context.strokeStyle = theme("grid");
  context.lineWidth = 1;
  context.beginPath();
  for (const at of ticks(view, width - label, origin)) {
    const where = Math.round(x(at)) + 0.5;
    if (where < label) continue;
    context.moveTo(where, AXIS);
    context.lineTo(where, height);
  }
  context.stroke();
}

// As many digits as tell one tick from the next.
const fineOf = (step) => (step >= 1e9 ? 1e12 : step >= 1e6 ? 1e10 : step >= 1e3 ? 1e6 : 1);

function axis(frame, view, origin) {
  const { context, width, x, label } = frame;
  context.fillStyle = theme("panel");
  context.fillRect(0, 0, width, AXIS);
  context.strokeStyle = theme("line");
  context.beginPath();
  context.moveTo(0, AXIS - 0.5);
  context.lineTo(width, AXIS - 0.5);
  context.stroke();
  context.fillStyle = theme("muted");
  context.font = "11px ui-monospace, monospace";
  context.textBaseline = "middle";
  const fine = fineOf(stepFor(view.to - view.from, width - label));
  for (const at of ticks(view, width - label, origin)) {
    const where = x(at);
    if (where >= label && where < width - 60) context.fillText(clock(origin, fine, at), where + 4, AXIS / 2);
  }
}

const PAINT = { accounted, calls: slices, waits: slices, labels: slices, called, in_flight: flying, counter, moments, findings };

function drawRow(frame, row, y) {
  const { context, width, label } = frame;
  if (row.kind === "heading") return heading(frame, row, y);
  context.save();
  context.beginPath();
  context.rect(label, y, width - label, row.height);
  context.clip();
  const above = row.above ?? 0;
  PAINT[row.kind]?.(frame, above ? { ...row, height: row.height - above } : row, y + above);
  context.restore();
  if (label > 0) name(frame, row, y);
  else if (above) nameAbove(frame, row, y);
}

function nameAbove(frame, row, y) {
  const { context, width } = frame;
  const top = row.kind === "counter" ? `, top ${measure(topOf(row.track), row.track.unit)}` : "";
  context.fillStyle = row.kind === "accounted" ? theme("text") : theme("muted");
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.fillText(fitted(context, `${row.label}${top}`, width - 8), 4, y + row.above / 2);
}

function heading(frame, row, y) {
  const { context, width } = frame;
  context.fillStyle = theme("raised");
  context.fillRect(0, y, width, row.height);
  context.fillStyle = theme("text");
  context.font = "600 12px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.fillText(`${row.closed ? "▸" : "▾"} ${row.label}`, 8, y + row.height / 2);
}

function name(frame, row, y) {
  const { context, label } = frame;
  context.fillStyle = theme("panel");
  context.fillRect(0, y, label - 1, row.height);
  context.fillStyle = row.kind === "accounted" ? theme("text") : theme("muted");
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  const middle = y + Math.min(row.height, 30) / 2;
  context.fillText(fitted(context, row.label, label - 22), 16, row.kind === "counter" ? middle - 5 : middle);
  if (row.kind !== "counter") return;
  context.font = "10px system-ui, sans-serif";
  context.fillText(`0 to ${measure(topOf(row.track), row.track.unit)}`, 16, middle + 8);
}

function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let length = Math.min(text.length, Math.floor(width / 5));
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > width) length -= 1;
  return `${text.slice(0, length)}…`;
}

// From the bottom of the machine up: good at the bottom, trouble above it.
const STACKED = ["runqueue", "disk_wait", "memory_wait", "net_wait", "lock_wait", "peer_wait", "unexplained", "lost", "sleep", "host_cpu", "cuda_cpu", "gpu_wait"];
const order = (buckets) => [...buckets.keys()].sort((a, b) => STACKED.indexOf(buckets[a]) - STACKED.indexOf(buckets[b]));

function accounted(frame, row, y) {
  const { context, x, scale } = frame;
  const { track, height, offset } = row;
  track.start_ns.forEach((start, at) => {
    const left = x(start + offset);
    const wide = Math.max(track.length_ns[at] * scale - (scale * 1e9 > 4 ? 1 : 0), 0.5);
    if (left + wide < frame.label || left > frame.width) return;
    let top = y;
    order(track.buckets).forEach((which) => {
      const bucket = track.buckets[which];
      const tall = track.shares[which][at] * height;
      context.fillStyle = bucketColour(bucket);
      context.fillRect(left, top, wide, tall);
      top += tall;
    });
  });
}

const LANE = 16;

function slices(frame, row, y) {
  const { context, x, scale, names, layers } = frame;
  const { track, offset } = row;
  const nested = row.kind === "calls";
  const lane = nested ? LANE : row.height;
  for (let at = 0; at < track.start_ns.length; at += 1) {
    const left = x(track.start_ns[at] + offset);
    const wide = Math.max(track.length_ns[at] * scale, 1);
    if (left + wide < frame.label || left > frame.width) continue;
    const top = y + (nested ? Math.min(track.depth[at], 3) * LANE : 0);
    const number = track.name[at];
    context.fillStyle = callColour(names[number], layers[number]);
    context.globalAlpha = track.count[at] > 1 ? 0.75 : 1;
    context.fillRect(left, top, Math.max(wide - (wide > 3 ? 0.5 : 0), 1), lane - 1);
    context.globalAlpha = 1;
    if (wide > 34) caption(frame, layers[number] === "wait" ? (frame.words[names[number]] ?? names[number]) : names[number], left, top, wide, lane);
  }
}

function caption(frame, text, left, top, wide, tall, ink = theme("on-slice")) {
  const { context, label, width } = frame;
  const from = Math.max(left, label) + 3;
  const room = Math.min(left + wide, width) - from - 3;
  if (room < 26) return;
  context.fillStyle = ink;
  context.font = "10.5px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.fillText(fitted(context, text, room), from, top + tall / 2);
}

function called(frame, row, y) {
  const { context, x, scale, names, layers } = frame;
  const { track, offset, height } = row;
  const most = track.count.reduce((so_far, each) => Math.max(so_far, each), 1);
  for (let at = 0; at < track.start_ns.length; at += 1) {
    const number = track.name[at];
    const tall = Math.max(2, (track.count[at] / most) * height);
    context.fillStyle = callColour(names[number], layers[number]);
    context.fillRect(x(track.start_ns[at] + offset), y + height - tall, Math.max(track.length_ns[at] * scale - 0.5, 0.5), tall);
  }
}

// What had not returned: open at its end.
function flying(frame, row, y) {
  const { context, x, scale, names, layers } = frame;
  row.track.start_ns.forEach((start, at) => {
    const number = row.track.name[at];
    const left = x(start + row.offset);
    const wide = Math.max(row.track.length_ns[at] * scale, 2);
    context.strokeStyle = callColour(names[number], layers[number]);
    context.setLineDash([4, 3]);
    context.strokeRect(left + 0.5, y + 0.5, wide, row.height - 2);
    context.setLineDash([]);
  });
}

// The value at the upper edge of a counter's row.
function topOf(track) {
  const highest = track.values.reduce((so_far, value) => Math.max(so_far, value ?? 0), 0);
  return track.unit === "share" ? 1 : highest * 1.05 || 1;
}

function counter(frame, row, y) {
  const { context, x } = frame;
  const { track, offset, height } = row;
  const top = topOf(track);
  const level = (value) => y + height - 2 - (value / top) * (height - 4);
  context.fillStyle = theme("counter-fill");
  context.beginPath();
  let last = null;
  track.start_ns.forEach((start, at) => {
    const value = track.values[at];
    if (value === null) return;
    const where = x(start + offset);
    if (last === null) context.moveTo(where, y + height);
    else context.lineTo(where, level(last));
    context.lineTo(where, level(value));
    last = value;
  });
  const end = x((track.start_ns.at(-1) ?? 0) + offset);
  context.lineTo(end, y + height);
  context.fill();
  context.strokeStyle = theme("counter");
  context.beginPath();
  last = null;
  track.start_ns.forEach((start, at) => {
    const value = track.values[at];
    if (value === null) return;
    const where = x(start + offset);
    if (last === null) context.moveTo(where, level(value));
    else {
      context.lineTo(where, level(last));
      context.lineTo(where, level(value));
    }
    last = value;
  });
  context.stroke();
}

function moments(frame, row, y) {
  const { context, x } = frame;
  context.fillStyle = theme("accent");
  for (const start of row.track.start_ns) {
    const where = x(start + row.offset);
    context.beginPath();
    context.moveTo(where, y + 2);
    context.lineTo(where + 5, y + row.height / 2);
    context.lineTo(where, y + row.height - 2);
    context.lineTo(where - 5, y + row.height / 2);
    context.fill();
  }
}

function findings(frame, row, y) {
  const { context, x, scale } = frame;
  for (const each of row.members) {
    const left = x(each.from);
    const wide = Math.max((each.to - each.from) * scale, 3);
    context.fillStyle = severityColour(each.severity);
    context.beginPath();
    context.roundRect(left, y, wide, row.height - 1, 4);
    context.fill();
    if (wide > 40) caption({ ...frame }, `${each.severity} ${each.title}`, left, y, wide, row.height - 1, inkOn(each.severity));
  }
}

function outline(frame, row, y, picked) {
  const { context, x, scale } = frame;
  context.strokeStyle = theme("text");
  context.lineWidth = 2;
  context.strokeRect(x(picked.from) - 1, y + picked.top, Math.max((picked.to - picked.from) * scale, 2) + 2, picked.tall);
  context.lineWidth = 1;
}

function selection(frame, { from, to }) {
  const { context, x, height } = frame;
  context.fillStyle = theme("selection");
  context.fillRect(x(Math.min(from, to)), 0, Math.abs(x(to) - x(from)), height);
}
