// A timeline of what is at hand: nothing is asked for while one moves. On the first page and in the shared report.

import { h, replace, sized } from "../dom.js";
import { clock } from "../format.js";
import { AXIS, draw } from "./draw.js";
import { at as hitAt, slice } from "./hit.js";
import { listen } from "./input.js";
import { rowsOf } from "./rows.js";

const SHORTEST = 1e6;

// `episodesOf` findings, as the rows want them: nanoseconds after the origin.
export function episodesOf(findings, origin) {
  return findings.flatMap((finding) =>
    (finding.episodes.length ? finding.episodes : [[finding.first_ns, finding.last_ns]]).map(([from, to]) => ({
      from: from - origin,
      to: to - origin,
      severity: finding.severity,
      title: finding.title,
      kind: finding.kind,
      finding,
    })),
  );
}

// `onFinding` is told which finding was clicked.
export function strip(answer, findings, onFinding) {
  const canvas = h("canvas", { tabindex: "0", role: "application", "aria-label": "Timeline of the job", "aria-describedby": "strip-keys" });
  const holder = h("div", { class: "timeline-canvas" }, canvas);
  const told = h("p", { class: "told", role: "status" }, "Click a second to see where it went and who had the core.");
  const button = (text, label, act) => h("button", { type: "button", class: "quiet small", "aria-label": label, onclick: act }, text);
  const element = h(
    "div",
    { class: "strip" },
    holder,
    h(
      "div",
      { class: "strip-foot" },
      told,
      h("span", { class: "strip-buttons" }, button("+", "Zoom in", () => api.zoom(0.5)), button("−", "Zoom out", () => api.zoom(2)), button("←", "Earlier", () => api.pan(-0.4)), button("→", "Later", () => api.pan(0.4)), button("All", "All of it", () => api.whole())),
    ),
    h("p", { class: "visually-hidden", id: "strip-keys" }, "Keys: plus and minus zoom, left and right move, up and down choose a row, comma and full stop a second of it, Enter tells about it."),
  );
  const origin = answer.window.from_ns;
  const length = Math.max(answer.window.to_ns - origin, 1);
  const closed = new Set();
  const size = { width: 0, height: 0, label: 0 };
  let layout = { rows: [], height: 0 };
  let view = { from: 0, to: length };
  let picked = null;
  let selecting = null;

  const span = () => view.to - view.from;
  const nsAt = (x) => view.from + ((x - size.label) / (size.width - size.label)) * span();
  const redraw = () => size.width && draw(sized(canvas, size.width, size.height), size, view, layout, { scroll: 0, origin, selecting, picked, names: answer.names, layers: answer.layers, words: answer.buckets });

  function measure() {
    size.width = Math.max(holder.clientWidth, 200);
    size.label = size.width < 560 ? 0 : 150;
    lay();
  }

  function lay() {
    layout = rowsOf(answer, episodesOf(findings, origin), 0, closed, size.label === 0);
    size.height = layout.height + AXIS + 4;
    redraw();
  }

  function to(from, until) {
    const long = Math.min(Math.max(until - from, SHORTEST), length);
    const begin = Math.max(0, Math.min(from, length - long));
    view = { from: begin, to: begin + long };
    redraw();
  }

  function tell(hit) {
    picked = hit;
    redraw();
    if (!hit) return;
    replace(told, h("b", {}, `${clock(origin, span(), hit.from)} ${hit.title}: `), hit.lines.join(", "));
    if (hit.finding) onFinding?.(hit.finding);
  }

  const api = {
    quiet: true, // a wheel without Ctrl scrolls the page
    label: () => size.label,
    axis: () => AXIS,
    width: () => size.width - size.label,
    zoom(factor, x = (size.width + size.label) / 2) {
      const centre = nsAt(Math.max(x, size.label));
      const part = (centre - view.from) / span();
      const long = Math.min(span() * factor, length);
      to(centre - part * long, centre + (1 - part) * long);
    },
    pan: (part) => to(view.from + part * span(), view.to + part * span()),
    scroll: () => {},
    whole: () => to(0, length),
    select(from, until) {
      selecting = { from: nsAt(from), to: nsAt(until) };
      redraw();
    },
    selected(really) {
      const { from, to: until } = selecting;
      selecting = null;
      if (really) to(Math.min(from, until), Math.max(from, until));
      else redraw();
    },
    hover: () => {},
    click(x, y) {
      const row = layout.rows.find((each) => each.y <= y - AXIS && y - AXIS < each.y + each.height);
      if (row?.kind === "heading") {
        if (!closed.delete(row.id)) closed.add(row.id);
        lay();
      } else if (row && x >= size.label) tell(hitAt(row, nsAt(x), (3 / api.width()) * span(), y - AXIS - row.y, answer));
    },
    pickRow(by) {
      const rows = layout.rows.filter((row) => row.track?.start_ns.length);
      const now = rows.findIndex((row) => row.id === picked?.row);
      const row = rows[(now + by + rows.length) % rows.length] ?? rows[0];
      if (row) tell(slice(row, 0, answer));
    },
    pickNext(by) {
      const row = layout.rows.find((each) => each.id === picked?.row);
      if (row?.track) tell(slice(row, Math.max(0, Math.min(picked.number + by, row.track.start_ns.length - 1)), answer));
      else api.pickRow(1);
    },
    openPicked: () => picked && tell(picked),
    escape: () => tell(null),
  };
  listen(canvas, api);
  new ResizeObserver(measure).observe(holder);
  window.addEventListener("beforeprint", measure);
  return { element, redraw };
}

// What matters of a job at a glance: where its feeding threads' seconds went, its labels, busy GPUs.
export function ofTheJob(answer) {
  const feeding = answer.tracks.filter((track) => track.kind === "accounted" && track.feeder);
  const shown = feeding.length ? feeding : answer.tracks.filter((track) => track.kind === "accounted");
  const busy = answer.tracks.filter((track) => track.kind === "counter" && /busy$|^CPU$/.test(track.title));
  const labels = answer.tracks.filter((track) => track.kind === "labels");
  return { ...answer, tracks: [...busy.slice(0, 5), ...labels.slice(0, 3), ...shown.slice(0, 8)] };
}
