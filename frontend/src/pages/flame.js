// Where slow calls, allocations, waits and time on a core come from: callers above, what they call below.

import { ask } from "../api.js";
import { h } from "../dom.js";
import { flameGraph } from "../flamegraph.js";
import { asking } from "../parts.js";
import { askedOf, change, place } from "../place.js";

const KINDS = [
  ["calls", "slow calls"],
  ["allocations", "allocations"],
  ["waits", "waits"],
  ["samples", "time on a core"],
];

export function flamePage() {
  const what = h("select", { id: "what", "aria-label": "What is weighed", onchange: () => change({ what: what.value === "calls" ? "" : what.value }) }, KINDS.map(([value, words]) => h("option", { value }, words)));
  const { about, graph, tools, render, stop } = flameGraph();
  const element = h("div", { class: "page flame" }, h("div", { class: "toolbar" }, h("h1", {}, "Flame graph"), what, tools), about, h("div", { class: "panel" }, graph));
  const page = asking(graph, (signal) => ask("flame", { ...askedOf(), what: place().what }, signal), (answer) => {
    what.value = answer.what;
    render(answer);
  });
  return {
    element,
    show: page.show,
    stop() {
      page.stop();
      stop();
    },
  };
}
