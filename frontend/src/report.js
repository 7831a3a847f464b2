// The report one can send on: the answers stand in the page, and nothing is asked of anybody.

import { forgetColours } from "./colours.js";
import { bounds, changes, finding, healthy, machine, notWatched, trust, unexplained, verdict } from "./diagnosis.js";
import { h, replace } from "./dom.js";
import { flameGraph } from "./flamegraph.js";
import { timelineKey } from "./parts.js";
import { strip } from "./timeline/strip.js";

const { report, timeline, flames, version, found, left_out } = JSON.parse(document.getElementById("answers").textContent);
const place = h("main", { class: "report" });
document.body.append(place);

function flame(answer) {
  const made = flameGraph();
  const section = h("section", { class: "panel", "aria-label": `Flame graph: ${answer.words}` }, h("header", {}, h("h2", {}, `By line: ${answer.words}`), made.tools), made.about, made.graph);
  return { section, draw: () => made.render(answer) };
}

function render() {
  forgetColours();
  const words = timeline.buckets;
  const tracks = timeline.tracks.map((track) => ({ ...track, begin_ns: timeline.window.from_ns }));
  const drawn = flames.map(flame);
  const to = (found) => document.querySelector(`article[data-id="${CSS.escape(found.id)}"]`)?.scrollIntoView();
  const time = timeline.tracks.length
    ? h("section", { class: "panel", "aria-label": "The job over time" }, h("header", {}, h("h2", {}, "The job over time")), timelineKey(timeline), strip(timeline, report.findings, to).element, changes(report))
    : null;
  const open = new Set([...place.querySelectorAll("details[open]")].map((each) => each.dataset.key));
  replace(
    place,
    verdict(report, found),
    bounds(report),
    time,
    report.findings.map((each) => finding(each, report, words, { tracks })),
    unexplained(report),
    healthy(report, words),
    drawn.map((each) => each.section),
    h("div", { class: "three" }, machine(report), trust(report), notWatched(report)),
    h("footer", { class: "about" }, `Made by ingero ${version}.${left_out ? ` Left out to keep this file small: ${left_out}.` : ""}`),
  );
  for (const each of drawn) each.draw();
  for (const each of place.querySelectorAll("details")) each.open = open.has(each.dataset.key) || each.dataset.key === "not watched";
}

render();
for (const each of ["(prefers-color-scheme: dark)", "print"]) matchMedia(each).addEventListener("change", render); // paper is light
