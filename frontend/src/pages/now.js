// What is wrong now, since when, through whose fault, and what to do. Or that nothing is, and how we know.

import { ask } from "../api.js";
import { bounds, changes, finding, healthy, machine, notWatched, trust, unexplained, verdict } from "../diagnosis.js";
import { h, replace } from "../dom.js";
import { asking, timelineKey } from "../parts.js";
import { address, askedOf, go } from "../place.js";
import { ofTheJob, strip } from "../timeline/strip.js";

const WIDTH = 1200;

export function nowPage() {
  const element = h("div", { class: "page now" });
  let last = null;
  const question = async (signal) => {
    const [report, accounting, timeline] = await Promise.all([
      ask("explain", askedOf(), signal),
      ask("accounting", askedOf(), signal),
      ask("timeline", { ...askedOf(), width: WIDTH }, signal),
    ]);
    return { report, words: accounting.buckets, timeline: ofTheJob(timeline) };
  };
  const page = asking(element, question, (answer) => render((last = answer)));

  function render({ report, words, timeline }) {
    const open = new Set([...element.querySelectorAll("details[open]")].map((each) => each.dataset.key));
    const tracks = timeline.tracks.map((track) => ({ ...track, begin_ns: timeline.window.from_ns }));
    replace(
      element,
      h(
        "div",
        { class: "main-column" },
        verdict(report),
        bounds(report),
        timeline.tracks.length ? h("section", { class: "panel", "aria-label": "The job over time" }, timelineKey(timeline), strip(timeline, report.findings, shown).element, changes(report)) : null,
        report.findings.map((each) => finding(each, report, words, { timeline: onTimeline, sql: inSql, tracks })),
        unexplained(report),
        healthy(report, words),
      ),
      h("aside", { class: "side-column", "aria-label": "Trust" }, machine(report), trust(report), notWatched(report)),
    );
    for (const each of element.querySelectorAll("details")) if (open.has(each.dataset.key)) each.open = true;
  }

  function shown(found) {
    const card = [...element.querySelectorAll("article")].find((each) => each.dataset.id === found.id);
    card?.scrollIntoView({ block: "start" });
    card?.focus({ preventScroll: true });
  }

  return { ...page, recolour: () => last && render(last) };
}

function inSql(sql) {
  const open = (event) => {
    event.preventDefault();
    go("/sql", { sql });
  };
  return h("a", { href: address("/sql", { sql }), onclick: open }, "check");
}

function stretch(each) {
  const [from, to] = each.episodes[0] ?? [each.first_ns, each.last_ns];
  const margin = Math.max((to - from) * 0.25, 1e8);
  return { since: "", from: String(BigInt(Math.round(from - margin))), to: String(BigInt(Math.round(to + margin))) };
}

function onTimeline(each) {
  const open = (event) => {
    event.preventDefault();
    go("/timeline", stretch(each));
  };
  return h("a", { class: "button", href: address("/timeline", stretch(each)), onclick: open }, "Show on the timeline");
}
