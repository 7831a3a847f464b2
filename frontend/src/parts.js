// Pieces that several pages are made of.

import { bucketColour } from "./colours.js";
import { h, replace } from "./dom.js";
import { baseName, duration, share } from "./format.js";
import { COLUMNS } from "./words.js";

// `heading`: h1 where the page shows nothing else.
export function failure(error, heading = "h2") {
  return h(
    "section",
    { class: "panel failure", role: "alert" },
    h(heading, {}, "No answer"),
    h("p", {}, error.message),
    error.hint ? h("p", { class: "muted" }, withCode(error.hint)) : null,
  );
}

// What stands between backticks is to be typed.
function withCode(text) {
  return text.split("`").map((part, at) => (at % 2 ? h("code", {}, part) : part));
}

// A page that asks again when place or database change. An answer to another question that comes late is not
// shown; a change of the database while an answer is on its way has to wait for it, or none would ever arrive.
export function asking(element, question, render) {
  let running = null; // { controller, about }
  let again = false;
  async function show(...given) {
    if (running?.about === location.href) {
      again = true;
      return;
    }
    running?.controller.abort();
    const mine = (running = { controller: new AbortController(), about: location.href });
    element.setAttribute("aria-busy", "true");
    try {
      const answer = await question(mine.controller.signal, ...given);
      if (running === mine) render(answer, ...given);
    } catch (error) {
      if (error.name !== "AbortError" && running === mine) replace(element, failure(error, headed(element) ? "h2" : "h1"));
    }
    if (running !== mine) return;
    running = null;
    element.removeAttribute("aria-busy");
    if (again) {
      again = false;
      show(...given);
    }
  }
  return { element, show, stop: () => running?.controller.abort() };
}

// Something else on the page says what it is.
const headed = (element) => [...document.querySelectorAll("h1")].some((each) => !element.contains(each));

// What a process is called: several nodes may have the same number.
export function named(rows) {
  const several = new Set(rows.map((each) => each.node)).size > 1;
  return (each) => (several ? `${each.node}: ${each.pid}` : String(each.pid));
}

// Shares of time as one bar; what it says in colour it also says in words.
export function timeBar(time, words, total = null) {
  const parts = ordered(time, words);
  const sum = total ?? parts.reduce((so_far, [, ns]) => so_far + ns, 0);
  const said = parts.map(([bucket, ns]) => `${words[bucket] ?? bucket} ${share(ns / sum)}`).join(", ");
  return h(
    "div",
    { class: "bar-time", role: "img", "aria-label": said || "no time accounted" },
    parts.map(([bucket, ns]) =>
      h("span", {
        title: `${words[bucket] ?? bucket}: ${duration(ns)}, ${share(ns / sum)}`,
        "data-bucket": bucket,
        style: { "flex-grow": String(ns / sum), background: bucketColour(bucket) },
      }),
    ),
  );
}

// Each part's percentage; together what their sum is, as serve/answers/shares.py rounds them.
function percents(parts, sum) {
  const exact = parts.map(([, ns]) => (1000 * ns) / sum);
  const found = exact.map(Math.floor);
  const left = Math.round(exact.reduce((so_far, one) => so_far + one, 0)) - found.reduce((so_far, one) => so_far + one, 0);
  const byRest = exact.map((one, at) => [at, one - found[at]]).sort((a, b) => b[1] - a[1]);
  for (const [at] of byRest.slice(0, left)) found[at] += 1;
  return found.map((tenths) => tenths / 1000);
}

// The same order everywhere, that of the words.
export function ordered(time, words) {
  const names = [...Object.keys(words), ...Object.keys(time).filter((bucket) => !(bucket in words))];
  return names.filter((bucket) => time[bucket] > 0).map((bucket) => [bucket, time[bucket]]);
}

// The key of a bar: each colour, what it stands for, and how much of it there is.
export function timeKey(time, words, total = null) {
  const parts = ordered(time, words).sort((a, b) => b[1] - a[1]);
  const sum = total ?? parts.reduce((so_far, [, ns]) => so_far + ns, 0);
  const rounded = percents(parts, sum);
  return h(
    "ul",
    { class: "legend key" },
    parts.map(([bucket], at) => (rounded[at] ? h("li", {}, h("i", { style: { background: bucketColour(bucket) } }), `${words[bucket] ?? bucket} ${share(rounded[at])}`) : null)),
  );
}

// The key of a timeline: the buckets that its threads' seconds show.
export function timelineKey(answer) {
  const used = new Set(answer.tracks.flatMap((track) => track.buckets));
  const buckets = Object.keys(answer.buckets).filter((bucket) => used.has(bucket));
  return h("ul", { class: "legend" }, buckets.map((bucket) => h("li", {}, h("i", { style: { background: bucketColour(bucket) } }), answer.buckets[bucket])));
}

export function stack(frames, source = null) {
  if (!frames.length) return h("p", { class: "muted" }, "No stack was recorded with it.");
  return h(
    "ol",
    { class: "stack", "aria-label": "Stack, innermost first" },
    frames.map((frame) =>
      h(
        "li",
        { class: frame.kind, "aria-current": same(frame, source) ? "true" : null },
        h("b", {}, frame.function ?? "?"),
        " ",
        h("span", { title: frame.file ?? frame.module ?? "" }, where(frame)),
      ),
    ),
  );
}

const same = (frame, source) => source && frame.file === source.file && frame.line === source.line;

function where(frame) {
  if (frame.file) return frame.line ? `${baseName(frame.file)}:${frame.line}` : baseName(frame.file);
  return frame.module ? baseName(frame.module) : "";
}

export function table(caption, columns, rows) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, columns.map(([name, kind]) => h(name ? "th" : "td", { scope: name ? "col" : null, class: kind, title: COLUMNS[name.toLowerCase()] }, name)))),
      h(
        "tbody",
        {},
        rows.map((row) => h("tr", {}, row.map((cell, at) => h("td", { class: columns[at][1] }, cell)))),
      ),
    ),
  );
}

export function copyButton(text) {
  const button = h("button", { class: "quiet small", type: "button", "aria-label": `Copy: ${text}`, onclick: copy }, "Copy");
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select it";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  }
  return button;
}
