// Where the time of each process and container went; every bar is all of it.

import { ask } from "../api.js";
import { h, replace } from "../dom.js";
import { duration, share } from "../format.js";
import { asking, timeBar, timeKey } from "../parts.js";
import { askedOf, change, place } from "../place.js";

export function timePage() {
  const element = h("div", { class: "page time" });
  const page = asking(element, (signal) => ask("accounting", askedOf(), signal), render);
  let last = null;

  function render(answer) {
    last = answer;
    const by = place().by === "container" ? "container" : "process";
    const rows = by === "container" ? answer.containers : answer.processes;
    const known = rows.filter((row) => row.threads_ns > 0 || row.threads.some((thread) => thread.ns > 0));
    const open = new Set([...element.querySelectorAll("details[open]")].map((each) => each.dataset.key));
    replace(
      element,
      h(
        "div",
        { class: "toolbar" },
        h("h1", {}, "Where time goes"),
        h(
          "div",
          { class: "switch", role: "group", "aria-label": "Group by" },
          ["process", "container"].map((name) => h("button", { type: "button", "aria-pressed": String(by === name), onclick: () => change({ by: name === "process" ? "" : name }) }, `by ${name}`)),
        ),
      ),
      known.length ? known.map((row) => item(row, answer.buckets, open)) : h("p", { class: "panel" }, "No time was accounted: no thread fed a GPU meanwhile."),
      silent(rows.filter((row) => !known.includes(row))),
    );
  }
  return { ...page, recolour: () => last && render(last) };
}

const LISTED = 10;

// Seen beside the jobs; where their own time went was not recorded.
function silent(rows) {
  if (!rows.length) return null;
  const names = rows.slice(0, LISTED).map((row) => (row.pid === null ? row.name : `${row.name} (${row.pid})`));
  return h("p", { class: "muted" }, `Seen, without an account of their time: ${names.join(", ")}${rows.length > LISTED ? ` and ${rows.length - LISTED} more` : ""}.`);
}

function item(row, words, open) {
  const where = [row.container, row.node].filter(Boolean).join(" · ");
  return h(
    "section",
    { class: "panel accounted" },
    h("header", {}, h("h2", {}, row.pid === null ? row.name : `${row.name} (${row.pid})`), h("span", { class: "muted" }, row.pid === null ? `${row.processes} processes · ${row.node}` : where), h("span", { class: "amount" }, row.threads_ns ? duration(row.threads_ns) : "feeds no GPU")),
    row.threads_ns ? timeBar(row.time, words, row.threads_ns) : null,
    row.threads_ns ? timeKey(row.time, words, row.threads_ns) : keyOfThreads(row, words),
    row.gpu_idle_ns ? h("p", { class: "small" }, `The GPU had been given nothing to do for ${duration(row.gpu_idle_ns)}, ${share(row.gpu_idle_ns / row.threads_ns)}.`) : null,
    threads(row, words, open),
  );
}

// Of a process that feeds no GPU only its threads have bars; their colours need a key, too.
function keyOfThreads(row, words) {
  const sum = {};
  for (const thread of row.threads) for (const [bucket, ns] of Object.entries(thread.time)) sum[bucket] = (sum[bucket] ?? 0) + ns;
  return timeKey(sum, words);
}

function threads(row, words, open) {
  const known = row.threads.filter((thread) => thread.ns > 0);
  if (!known.length) return null;
  const key = `${row.node} ${row.pid}`;
  return h(
    "details",
    { "data-key": key, open: open.has(key) || !row.threads_ns },
    h("summary", {}, `${known.length} ${known.length === 1 ? "thread" : "threads"}`),
    h(
      "ul",
      { class: "threads" },
      known.map((thread) => h("li", {}, h("span", {}, `${thread.comm} ${thread.tid}`, thread.feeder ? h("span", { class: "chip" }, "feeds a GPU") : null), timeBar(thread.time, words, thread.ns))),
    ),
  );
}
