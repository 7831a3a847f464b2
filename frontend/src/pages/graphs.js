// CUDA graphs and how they are launched; collectives, and who made the others wait.

import { ask } from "../api.js";
import { h, replace } from "../dom.js";
import { bytes, clock, count, duration, share } from "../format.js";
import { asking, named, table } from "../parts.js";
import { asked, askedOf } from "../place.js";

export function graphsPage() {
  const element = h("div", { class: "page graphs" });
  const question = async (signal) => {
    const [graphs, collectives] = await Promise.all([ask("graphs", askedOf(), signal), ask("collectives", asked(), signal)]);
    return { graphs, collectives };
  };
  return asking(element, question, ({ graphs, collectives }) => {
    replace(element, h("div", { class: "toolbar" }, h("h1", {}, "Graphs & collectives")), graphsPart(graphs), collectivesPart(collectives));
  });
}

function graphsPart(answer) {
  if (!answer.processes.length && !answer.launched.length) {
    return h("section", { class: "panel" }, h("h2", {}, "CUDA graphs"), h("p", {}, "No graph was captured or launched in this time."));
  }
  const process = named([...answer.processes, ...answer.launched, ...answer.events]);
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, "CUDA graphs"),
    table(
      "Calls by process",
      [["process", ""], ["captured", "number"], ["instantiated", "number"], ["updated", "number"], ["launched", "number"], ["failed", "number"], ["making them took", "number"]],
      answer.processes.map((each) => [process(each), count(each.calls.end_capture ?? 0), count(each.calls.instantiate ?? 0), count(each.calls.update ?? 0), count(each.calls.launch ?? 0), count(each.failed), duration(each.making_ns)]),
    ),
    table(
      "Launches by executable graph",
      [["process", ""], ["graph", ""], ["launches", "number"], ["per second", "number"], ["mean call", "number"], ["longest call", "number"], ["first", "number"], ["last", "number"]],
      answer.launched.slice(0, 200).map((each) => [process(each), each.executable === null ? "unknown" : `0x${BigInt(each.executable).toString(16)}`, count(each.launches), each.per_s === null ? "" : each.per_s.toFixed(1), duration(each.mean_ns), duration(each.max_ns), clock(each.first_ns), clock(each.last_ns)]),
    ),
    answer.events.length ? h("details", {}, h("summary", {}, `How they came to be: ${count(answer.events.length)}${answer.more_events ? " and more" : ""}`), lifecycle(answer.events, process)) : null,
  );
}

function lifecycle(events, process) {
  return table(
    "Calls that make, change or end a graph",
    [["at", ""], ["process", ""], ["step", ""], ["call", ""], ["took", "number"], ["returned", "number"]],
    events.slice(0, 500).map((each) => [clock(each.at_ns, 1e9), process(each), each.step.replaceAll("_", " "), each.op, duration(each.duration_ns), each.ret === null ? "unknown" : String(each.ret)]),
  );
}

function collectivesPart(answer) {
  if (!answer.ranks.length) return h("section", { class: "panel" }, h("h2", {}, "Collectives"), h("p", {}, "No collective was called in this time."));
  const groups = new Map();
  for (const each of answer.ranks) {
    const key = `${each.communicator ?? "unknown"} ${each.op}`;
    groups.set(key, [...(groups.get(key) ?? []), each]);
  }
  return h("section", { class: "panel" }, h("h2", {}, "Collectives"), [...groups.values()].map(group));
}

function group(ranks) {
  const first = ranks[0];
  const most = Math.max(...ranks.map((each) => each.waited_ns ?? 0), 1);
  return table(
    `${first.op}, communicator ${first.communicator ?? "unknown"}, ${first.ranks ?? "?"} ${first.ranks === 1 ? "rank" : "ranks"}`,
    [["rank", ""], ["node", ""], ["process", ""], ["calls", "number"], ["bytes", "number"], ["waited for the last", "number"], ["", "bar-cell"], ["longest", "number"], ["came last", "number"]],
    ranks.map((each) => [each.rank === null ? "?" : String(each.rank), each.node, String(each.pid ?? "?"), count(each.calls), bytes(each.bytes), each.waited_ns === null ? "unknown" : duration(each.waited_ns), h("span", { class: "amount-bar", style: { width: `${((each.waited_ns ?? 0) / most) * 100}%` } }), duration(each.longest_wait_ns), each.known ? `${share(each.came_last / each.known)}` : "unknown"]),
  );
}
