// The timeline: calls, thread states, findings and counters on one axis, as close as one likes.

import { ask } from "../api.js";
import { bucketColour, callColour } from "../colours.js";
import { h, replace, sized } from "../dom.js";
import { bytes, clock, count, duration } from "../format.js";
import { failure, stack, timeBar } from "../parts.js";
import { change, go, place, whose } from "../place.js";
import { AXIS, draw } from "../timeline/draw.js";
import { at as hitAt, slice } from "../timeline/hit.js";
import { listen } from "../timeline/input.js";
import { rowsOf } from "../timeline/rows.js";

const SHORTEST = 200; // nanoseconds across the screen
const MARGIN = 0.3; // asked for on either side of what is in view

export function timelinePage() {
  const canvas = h("canvas", { tabindex: "0", role: "application", "aria-label": "Timeline", "aria-describedby": "timeline-summary" });
  const holder = h("div", { class: "timeline-canvas" }, canvas);
  const tip = h("div", { class: "tip", hidden: true, role: "tooltip" });
  const summary = h("p", { class: "visually-hidden", id: "timeline-summary" });
  const said = h("p", { class: "visually-hidden", id: "timeline-said", role: "status" }); // what keys picked
  const state_line = h("span", { class: "muted small", id: "timeline-level" });
  const details = h("aside", { class: "details", hidden: true, "aria-label": "Details" });
  const keys = h("ul", { class: "legend" });
  const button = (text, label, act) => h("button", { type: "button", class: "quiet", "aria-label": label, onclick: act }, text);
  const element = h(
    "div",
    { class: "page timeline" },
    h(
      "div",
      { class: "toolbar" },
      h("h1", { class: "visually-hidden" }, "Timeline"),
      button("+", "Zoom in", () => api.zoom(0.5)),
      button("−", "Zoom out", () => api.zoom(2)),
      button("←", "Earlier", () => api.pan(-0.4)),
      button("→", "Later", () => api.pan(0.4)),
      button("Whole recording", "Whole recording", () => api.whole()),
      state_line,
      h("span", { class: "muted small keys" }, "wheel: zoom · drag: move · Shift and drag: select · click: details · keys: + − ← → , . Enter"),
    ),
    keys,
    h("div", { class: "timeline-body" }, holder, details),
    tip,
    summary,
    said,
  );

  let bounds = null; // the whole recording
  let shown = ""; // the machine and node it is of
  let origin = 0; // every instant here is nanoseconds after it
  let view = { from: 0, to: 1 };
  let answer = null;
  let findings = [];
  let layout = { rows: [], height: 0 };
  let scroll = 0;
  let picked = null;
  let hovered = null;
  let selecting = null;
  let asking = null;
  let findingsFor = "";
  let diagnosing = false;
  let timer = null;
  let writing = null;
  let frame = 0;
  const closed = new Set();
  const size = { width: 800, height: 500, label: 150 };

  const span = () => view.to - view.from;
  const nsAt = (x) => view.from + ((x - size.label) / (size.width - size.label)) * span();

  function redraw() {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      const context = sized(canvas, size.width, size.height);
      const state = { scroll, origin, selecting, picked: picked ?? hovered, names: answer?.names ?? [], layers: answer?.layers ?? [], words: answer?.buckets ?? {} };
      draw(context, size, view, layout, state);
      canvas.dataset.drawn = String(Number(canvas.dataset.drawn ?? 0) + 1);
    });
  }

  function measure() {
    const narrow = size.label === 0;
    size.width = Math.max(holder.clientWidth, 240);
    size.label = size.width < 560 ? 0 : 150;
    if (narrow !== (size.label === 0)) return lay();
    const room = window.innerHeight - holder.getBoundingClientRect().top - window.scrollY - 16;
    size.height = Math.max(260, details.hidden ? Math.min(room, layout.height + AXIS + 12) : room);
    redraw();
  }

  function lay() {
    layout = answer ? rowsOf(answer, findings, answer.offset, closed, size.label === 0) : { rows: [], height: 0 };
    measure();
    scroll = Math.max(0, Math.min(scroll, layout.height - size.height + AXIS + 20));
  }

  function moved(now = false) {
    const least = -0.5 * span();
    const limit = bounds.to - bounds.from;
    if (view.to < 0 - least || view.from > limit + least) {
      const long = span();
      view.from = Math.max(least, Math.min(view.from, limit + least - long));
      view.to = view.from + long;
    }
    redraw();
    clearTimeout(timer);
    timer = setTimeout(load, now ? 0 : 20);
    clearTimeout(writing);
    writing = setTimeout(write, 400);
  }

  // To the nanosecond where the address says so; a number of JavaScript is too coarse for that.
  const offsetOf = (text, otherwise) => (/^\d{16,19}$/.test(text ?? "") ? Number(BigInt(text) - BigInt(origin)) : otherwise - origin);
  const instant = (offset) => String(BigInt(origin) + BigInt(Math.round(offset)));

  // The address always says what is shown, so that other pages and shared links show the same.
  function write() {
    change(whole() ? { from: "", to: "", since: "" } : { from: instant(view.from), to: instant(view.to), since: "" }, true);
  }

  const whole = () => view.from <= 0 && view.to >= bounds.to - bounds.from;

  async function load() {
    asking?.abort();
    const mine = (asking = new AbortController());
    const margin = span() * MARGIN;
    const from = Math.round(view.from - margin);
    const to = Math.round(view.to + margin);
    const width = Math.round((size.width - size.label) * (1 + 2 * MARGIN));
    const began = performance.now();
    try {
      const found = await ask("timeline", { node: place().node, ...whose(), from: instant(from), to: instant(to), width }, mine.signal);
      if (asking !== mine) return;
      answer = { ...found, offset: from };
      lay();
      told(performance.now() - began);
    } catch (error) {
      if (error.name !== "AbortError") replace(element, failure(error, "h1"));
    }
  }

  function told(took) {
    const slices = answer.tracks.reduce((sum, track) => sum + track.start_ns.length, 0);
    const level = answer.level === "calls" ? "every call" : "seconds";
    state_line.textContent = `${duration(span())} in view · ${level}`;
    state_line.title = `${count(answer.rows)} events, ${count(slices)} slices, answered in ${took.toFixed(0)} ms`;
    canvas.dataset.level = answer.level;
    canvas.dataset.from = String(Math.round(view.from));
    canvas.dataset.to = String(Math.round(view.to));
    canvas.dataset.loaded = String(Number(canvas.dataset.loaded ?? 0) + 1);
    summary.textContent = `${clock(origin + view.from)} to ${clock(origin + view.to)}, ${layout.rows.length} rows, ${count(slices)} slices.`;
    colours();
  }

  function colours() {
    const used_buckets = new Set(answer.tracks.flatMap((track) => track.buckets));
    const buckets = Object.keys(answer.buckets).filter((bucket) => used_buckets.has(bucket));
    const calls = new Map();
    const used = new Set(answer.tracks.filter((track) => track.kind !== "moments" && track.kind !== "labels").flatMap((track) => track.name));
    for (const number of used) {
      const [name, layer] = [answer.names[number], answer.layers[number]];
      if (layer !== "wait" && calls.size < 8) calls.set(name, callColour(name, layer));
    }
    replace(
      keys,
      buckets.map((bucket) => h("li", {}, h("i", { style: { background: bucketColour(bucket) } }), answer.buckets[bucket] ?? bucket)),
      [...calls].map(([name, colour]) => h("li", { class: "call" }, h("i", { style: { background: colour } }), name)),
    );
  }

  async function loadFindings() {
    const key = JSON.stringify([shown, bounds.to]);
    if (key === findingsFor || diagnosing) return;
    const of = shown;
    findingsFor = key;
    diagnosing = true;
    try {
      const report = await ask("explain", { node: place().node, ...whose() });
      if (of !== shown) return; // another machine was chosen meanwhile
      findings = report.findings.flatMap((finding) =>
        (finding.episodes.length ? finding.episodes : [[finding.first_ns, finding.last_ns]]).map(([from, to]) => ({
          from: from - origin,
          to: to - origin,
          severity: finding.severity,
          title: finding.title,
          kind: finding.kind,
          finding,
        })),
      );
      lay();
    } catch {
      findings = []; // its own page says why
    } finally {
      diagnosing = false;
      if (of === shown) canvas.dataset.findings = String(findings.length);
      else loadFindings();
    }
  }

  function rowAt(y) {
    const where = y - AXIS + scroll;
    return layout.rows.find((row) => row.y <= where && where < row.y + row.height) ?? null;
  }

  function hitHere(x, y) {
    const row = y < AXIS || x < size.label ? null : rowAt(y);
    if (!row || row.kind === "heading") return null;
    return hitAt(row, nsAt(x), (3 / (size.width - size.label)) * span(), y - AXIS + scroll - row.y, answer);
  }

  function showTip(hit, x, y) {
    tip.hidden = !hit;
    if (!hit) return;
    replace(tip, h("b", {}, hit.title), hit.lines.map((line) => h("div", {}, line)), h("div", { class: "muted" }, `at ${clock(origin, span(), hit.from)}`));
    const box = canvas.getBoundingClientRect();
    const left = Math.min(box.left + x + 14, window.innerWidth - tip.offsetWidth - 8);
    const top = Math.min(box.top + y + 16, window.innerHeight - tip.offsetHeight - 8);
    tip.style.setProperty("left", `${Math.max(4, left)}px`);
    tip.style.setProperty("top", `${top}px`);
  }

  async function open(hit) {
    picked = hit;
    redraw();
    if (hit.finding) return go("/", {});
    details.hidden = false;
    const head = h("header", {}, h("h2", {}, hit.title), button("×", "Close details", () => api.escape()));
    replace(details, head, hit.lines.map((line) => h("p", {}, line)), h("p", { class: "muted" }, `at ${clock(origin, 1, hit.from)}`));
    measure();
    if (!hit.event) return undefined;
    try {
      const event = await ask("event", { id: hit.event });
      if (picked === hit) replace(details, head, eventDetails(event, answer.buckets));
    } catch (error) {
      if (picked === hit) details.append(failure(error));
    }
    return undefined;
  }

  const api = {
    label: () => size.label,
    axis: () => AXIS,
    width: () => size.width - size.label,
    zoom(factor, x = (size.width + size.label) / 2) {
      const centre = nsAt(Math.max(x, size.label));
      const limit = (bounds.to - bounds.from) * 1.5;
      const long = Math.min(Math.max(span() * factor, SHORTEST), limit);
      const part = (centre - view.from) / span();
      view = { from: centre - part * long, to: centre + (1 - part) * long };
      moved();
    },
    pan(part) {
      const by = part * span();
      view = { from: view.from + by, to: view.to + by };
      moved();
    },
    scroll(by) {
      scroll = Math.max(0, Math.min(scroll + by, layout.height - size.height + AXIS + 20));
      redraw();
    },
    whole() {
      view = { from: 0, to: bounds.to - bounds.from };
      moved(true);
    },
    select(from, to) {
      selecting = { from: nsAt(from), to: nsAt(to) };
      redraw();
    },
    selected(really) {
      const { from, to } = selecting;
      selecting = null;
      if (really) {
        view = { from: Math.min(from, to), to: Math.max(from, to, Math.min(from, to) + SHORTEST) };
        moved(true);
      } else redraw();
    },
    hover(x, y) {
      const hit = x < 0 ? null : hitHere(x, y);
      if (hit?.row !== hovered?.row || hit?.from !== hovered?.from) {
        hovered = hit;
        redraw();
      }
      showTip(hit, x, y);
    },
    click(x, y) {
      const row = y < AXIS ? null : rowAt(y);
      if (row?.kind === "heading") {
        if (!closed.delete(row.id)) closed.add(row.id);
        return lay();
      }
      const hit = hitHere(x, y);
      return hit ? open(hit) : api.escape();
    },
    pickRow(by) {
      const rows = layout.rows.filter((row) => row.track && row.track.start_ns.length);
      const now = rows.findIndex((row) => row.id === picked?.row);
      const row = rows[(now + by + rows.length) % rows.length] ?? rows[0];
      if (row) pick(row, nearestTo(row, picked ? picked.from : (view.from + view.to) / 2));
    },
    pickNext(by) {
      const row = layout.rows.find((each) => each.id === picked?.row);
      if (!row?.track) return api.pickRow(1);
      return pick(row, Math.max(0, Math.min(picked.number + by, row.track.start_ns.length - 1)));
    },
    openPicked() {
      if (picked) open(picked);
    },
    escape() {
      picked = null;
      details.hidden = true;
      measure();
    },
  };

  function nearestTo(row, ns) {
    let best = 0;
    row.track.start_ns.forEach((start, at) => {
      if (Math.abs(start + row.offset - ns) < Math.abs(row.track.start_ns[best] + row.offset - ns)) best = at;
    });
    return best;
  }

  function pick(row, number) {
    picked = slice(row, number, answer);
    const y = row.y - scroll;
    if (y < 0 || y > size.height - AXIS - 40) scroll = Math.max(0, row.y - size.height / 3);
    if (picked.from > view.to || picked.to < view.from) {
      const half = span() / 2;
      view = { from: picked.from - half, to: picked.from + half };
      moved();
    }
    said.textContent = `${row.label}: ${picked.title}, ${picked.lines.join(", ")}, at ${clock(origin, span(), picked.from)}`;
    redraw();
  }

  listen(canvas, api);
  const watcher = new ResizeObserver(() => measure());
  watcher.observe(holder);
  window.addEventListener("resize", measure);

  function show(recordings) {
    const now = place();
    const of = JSON.stringify([now.fleet, now.node, whose()]);
    const first = bounds === null || of !== shown;
    shown = of;
    const grown = bounds && recordings.window.to_ns !== bounds.to;
    const following = first || (whole() && !now.from);
    bounds = { from: recordings.window.from_ns, to: recordings.window.to_ns };
    if (first) {
      origin = bounds.from;
      answer = picked = hovered = null;
      layout = { rows: [], height: 0 }; // its names went with the answer
      findings = [];
      details.hidden = true;
    }
    const range = recordings.asked;
    if (now.from || now.to || now.since) {
      view = { from: offsetOf(now.from, range.from_ns), to: offsetOf(now.to, range.to_ns) };
    } else if (following || !grown) view = { from: 0, to: bounds.to - origin };
    if (first) requestAnimationFrame(measure);
    load().then(loadFindings); // the diagnosis takes longer, and would hold up the first picture
  }

  function stop() {
    asking?.abort();
    clearTimeout(timer);
    clearTimeout(writing);
    watcher.disconnect();
    window.removeEventListener("resize", measure);
  }

  return { element, show, stop, recolour: () => (answer && colours(), redraw()) };
}

function eventDetails(event, words) {
  const facts = [
    ["At", clock(event.at_ns, 1e6)],
    ["Took", event.duration_ns === null ? null : duration(event.duration_ns)],
    ["Process", `${event.comm ?? "?"} (${event.pid ?? "?"}), thread ${event.tid ?? "?"}`],
    ["Node", event.node],
    ["Kernel", event.kernel],
    ["Bytes", event.bytes === null ? null : `${bytes(event.bytes)}${event.direction ? ` ${event.direction}` : ""}`],
    ["GPU", event.gpu_id],
    ["Stream", event.stream],
    ["Returned", event.ret],
    ["Stands for", event.stands_for_calls > 1 ? `${count(event.stands_for_calls)} calls` : null],
    ["Woken by", event.woken_by],
    ["Line", event.source ? `${event.source.function}() at ${event.source.file}:${event.source.line}` : null],
    ["Event", event.id],
  ].filter(([, value]) => value !== null && value !== undefined);
  return [
    h("dl", { class: "pairs" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))])),
    Object.keys(event.time).length ? [h("h3", {}, "Where its time went"), timeBar(event.time, words)] : null,
    h("h3", {}, "Stack"),
    stack(event.stack, event.source),
  ];
}
