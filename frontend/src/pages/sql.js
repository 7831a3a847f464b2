// Any SELECT over the views, with the views beside it.

import { ask, post } from "../api.js";
import { h, replace } from "../dom.js";
import { count } from "../format.js";
import { failure, table } from "../parts.js";
import { change, place } from "../place.js";

const EXAMPLES = [
  ["Longest calls", "SELECT node, op, pid, tid, duration_ns / 1e6 AS ms, timestamp_ns\nFROM calls\nORDER BY duration_ns DESC\nLIMIT 20"],
  ["Time by bucket", "SELECT node, pid, bucket, SUM(ns) / 1e9 AS seconds\nFROM thread_time\nGROUP BY node, pid, bucket\nORDER BY seconds DESC"],
  ["Who took the core", "SELECT node, pid, comm, SUM(ns) / 1e9 AS seconds\nFROM culprits\nGROUP BY node, pid, comm\nORDER BY seconds DESC"],
  ["Findings", "SELECT severity, kind, title, wall_share, source_file, source_line\nFROM findings"],
];

export function sqlPage() {
  const text = h("textarea", { id: "sql", "aria-label": "SQL", spellcheck: "false", rows: 8, onkeydown: keys });
  const run = h("button", { type: "button", class: "primary", onclick: ask_it }, "Run");
  const limit = h("input", { type: "number", min: 1, max: 10000, value: "1000", "aria-label": "Most rows" });
  const csv = h("button", { type: "button", class: "quiet", disabled: true, onclick: download }, "CSV");
  const said = h("span", { class: "muted small", role: "status" });
  const result = h("div", { class: "result" });
  const views = h("aside", { class: "panel schema", "aria-label": "Views and columns" });
  const element = h(
    "div",
    { class: "page sql" },
    h(
      "div",
      { class: "main-column" },
      h("div", { class: "toolbar" }, h("h1", {}, "SQL"), h("span", { class: "muted small" }, "read-only · Ctrl+Enter runs")),
      h("div", { class: "examples" }, EXAMPLES.map(([name, sql]) => h("button", { type: "button", class: "quiet small", onclick: () => take(sql) }, name))),
      text,
      h("div", { class: "toolbar" }, run, h("label", { class: "field" }, h("span", { class: "label" }, "rows"), limit), csv, said),
      result,
    ),
    views,
  );
  let answer = null;
  let running = null;

  function take(sql, mine = false) {
    text.value = sql;
    ask_it(mine);
  }

  function keys(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      ask_it();
    }
  }

  // The address holds what somebody asked, not the example shown first.
  async function ask_it(example = false) {
    running?.abort();
    const mine = (running = new AbortController());
    said.textContent = "running …";
    if (example !== true) change({ sql: text.value }, true);
    const began = performance.now();
    try {
      answer = await post("query", { sql: text.value, limit: Number(limit.value) || 1000, node: place().node ?? null, exact: true }, mine.signal);
      said.textContent = `${count(answer.rows.length)} rows${answer.truncated ? ", and more" : ""}, ${(performance.now() - began).toFixed(0)} ms`;
      csv.disabled = false;
      replace(result, (answer.notes ?? []).map((note) => h("p", { class: "muted small" }, note)), table("Result", answer.columns.map((name) => [name, kindOf(name, answer.rows)]), answer.rows.map((row) => answer.columns.map((name) => cell(row[name])))));
    } catch (error) {
      if (error.name === "AbortError") return;
      answer = null;
      csv.disabled = true;
      said.textContent = "";
      replace(result, failure(error));
    }
  }

  function download() {
    const lines = [answer.columns, ...answer.rows.map((row) => answer.columns.map((name) => row[name]))];
    const blob = new Blob([lines.map((line) => line.map(quoted).join(",")).join("\r\n"), "\r\n"], { type: "text/csv" });
    const url = URL.createObjectURL(blob);
    h("a", { href: url, download: "ingero.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }

  async function schema() {
    try {
      const found = await ask("schema");
      replace(
        views,
        h("h2", {}, "Views"),
        found.views.map((view) => h("details", {}, h("summary", {}, h("code", {}, view.name)), h("p", { class: "small muted" }, view.about), h("ul", { class: "columns" }, columnsOf(view).map((column) => h("li", {}, h("button", { type: "button", class: "quiet small", title: column.about, onclick: () => insert(column.name) }, column.name), h("span", { class: "muted small" }, ` ${column.about}`)))))),
        h("details", {}, h("summary", {}, "Notes"), h("ul", { class: "plain small" }, found.notes.map((note) => h("li", {}, note)))),
      );
    } catch (error) {
      replace(views, failure(error));
    }
  }

  function insert(name) {
    text.setRangeText(name, text.selectionStart, text.selectionEnd, "end");
    text.focus();
  }

  let begun = false;
  function show() {
    const given = place().sql;
    if (begun && given === undefined) return;
    if (!begun) schema();
    if (given !== undefined && given !== text.value) take(given);
    else if (!begun) take(EXAMPLES[0][1], true);
    begun = true;
  }

  return { element, show, stop: () => running?.abort() };
}

const cell = (value) => (value === null ? h("span", { class: "muted" }, "NULL") : String(value));
// Integers that a number of JavaScript has no room for come as text.
const isNumber = (value) => typeof value === "number" || /^-?\d+$/.test(value ?? "");
const kindOf = (name, rows) => (rows.some((row) => isNumber(row[name])) ? "number" : "");

// Spreadsheets run what begins like a formula; names of traced programs are anybody's.
function quoted(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const columnsOf = (view) => Object.entries(view.columns).map(([name, about]) => ({ name, about }));
