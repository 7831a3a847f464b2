// What is wrong now, since when, through whose fault, and what to do. Or that nothing is, and how we know.

import { ask } from "../api.js";
import { severityColour } from "../colours.js";
import { h, replace } from "../dom.js";
import { baseName, bytes, clock, count, duration, moment, share } from "../format.js";
import { asking, copyButton, stack, timeBar } from "../parts.js";
import { address, asked, go } from "../place.js";

export function nowPage() {
  const element = h("div", { class: "page now" });
  const question = async (signal) => {
    const [report, accounting] = await Promise.all([
      ask("explain", asked(), signal),
      ask("accounting", asked(), signal),
    ]);
    return { report, words: accounting.buckets };
  };
  return asking(element, question, ({ report, words }) => {
    const open = new Set([...element.querySelectorAll("details[open]")].map((each) => each.dataset.key));
    replace(
      element,
      h("div", { class: "main-column" }, verdict(report), bounds(report), report.findings.map((each) => finding(each, report, words)), unexplained(report), healthy(report)),
      h("aside", { class: "side-column", "aria-label": "Trust" }, machine(report), trust(report), notWatched(report)),
    );
    for (const each of element.querySelectorAll("details")) if (open.has(each.dataset.key)) each.open = true;
  });
}

function verdict(report) {
  const worst = report.findings[0];
  const length = report.window.to_ns - report.window.from_ns;
  const what = worst
    ? `${report.findings.length} ${report.findings.length === 1 ? "problem" : "problems"} found`
    : "No problem found";
  return h(
    "section",
    { class: "verdict", "data-severity": worst?.severity ?? "NONE", style: { "--tone": severityColour(worst?.severity ?? "none") } },
    h("h1", {}, what),
    h("p", {}, `${report.node}, ${duration(report.recorded_ns ?? length)} recorded, ${moment(report.window.from_ns)} to ${clock(report.window.to_ns)}`),
  );
}

// How each thing that was watched less was watched at the end.
const lastOfEach = (actions) => [...new Map(actions.map((each) => [each.what, each])).values()];

// What limits each job now, whether something is wrong or not.
function bounds(report) {
  if (!report.bound?.length) return null;
  const named = (each) => `${each.comm} (${each.pid})${each.node ? ` on ${each.node}` : ""}`;
  return h(
    "section",
    { class: "panel bound", "aria-label": "Bound by" },
    h("dl", { class: "facts" }, report.bound.slice(0, 8).map((each) => fact(`${named(each)} is bound by`, each.text))),
  );
}

// A finding's id is node:kind:pid:begin, and a node's name may hold colons.
const nodeOf = (each) => each.id.split(":").slice(0, -3).join(":");

function finding(each, report, words) {
  const tone = { "--tone": severityColour(each.severity) };
  return h(
    "article",
    { class: "panel finding", style: tone, "aria-label": `${each.severity}: ${each.title}` },
    h("header", {}, h("span", { class: "severity" }, each.severity), h("h2", {}, each.title), h("code", { class: "kind" }, each.kind)),
    h(
      "dl",
      { class: "facts" },
      fact("Since", `${clock(each.first_ns)}, for ${duration(each.last_ns - each.first_ns)}`),
      fact("Whose time", `${each.victim.comm} (${each.victim.pid})${report.processes.some((one) => one.node) ? ` on ${nodeOf(each)}` : ""}`),
      fact("Whose fault", fault(each)),
      fact("Effect", effect(each.effect)),
      fact("Fixing it wins", each.gain ? `${duration(each.gain.ns)}, ${share(each.gain.share)}` : "unknown"),
      fact("Confidence", h("span", { class: "confidence" }, h("meter", { min: 0, max: 1, value: each.confidence, "aria-label": "Confidence" }), share(each.confidence))),
      each.source ? fact("Line", h("span", { class: "line" }, h("b", {}, `${each.source.function}()`), ` at ${baseName(each.source.file)}:${each.source.line}`)) : null,
    ),
    Object.values(each.time).some((ns) => ns > 0)
      ? h("div", { class: "where" }, h("h3", {}, "Where its time went meanwhile"), timeBar(each.time, words), top(each.time, words))
      : null,
    causes(each, words),
    fixes(each),
    h(
      "footer",
      {},
      h("a", { class: "button", href: onTimeline(each), onclick: (event) => opened(event, each) }, "Show on the timeline"),
      each.stack.length ? h("details", { "data-key": `stack ${each.id}` }, h("summary", {}, "Stack"), stack(each.stack, each.source)) : null,
    ),
  );
}

const fact = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));

// Names, each once, with how many processes have it.
function fault(each) {
  const who = [...each.causes.flatMap((cause) => cause.who), ...each.who].filter((one) => one.pid !== each.victim.pid);
  const names = [...new Set(who.map((one) => one.comm))];
  if (!names.length) return "its own";
  const many = (name) => new Set(who.filter((one) => one.comm === name).map((one) => one.pid)).size;
  return names.slice(0, 3).map((name) => (many(name) > 1 ? `${name} × ${many(name)}` : name)).join(", ");
}

function effect(found) {
  const lost = found.wall_share === null ? "" : `${share(found.wall_share)} of the time lost`;
  if (found.usual_ns === null || found.now_ns === null) return lost || "see the proof";
  return `${found.op ?? "step"} ${duration(found.usual_ns)} → ${duration(found.now_ns)}${lost ? `, ${lost}` : ""}`;
}

function top(time, words) {
  const sum = Object.values(time).reduce((so_far, ns) => so_far + ns, 0);
  const largest = Object.entries(time).filter(([, ns]) => ns > 0).sort((a, b) => b[1] - a[1]).slice(0, 4);
  return h("p", { class: "muted small" }, largest.map(([bucket, ns]) => `${words[bucket] ?? bucket} ${share(ns / sum)}`).join(" · "));
}

function causes(each, words) {
  const proven = each.causes.filter((cause) => cause.share >= 0.005);
  if (!proven.length && !each.evidence.length) return null;
  return h(
    "div",
    { class: "causes" },
    h("h3", {}, "Why, and the proof"),
    proven.map((cause) =>
      h(
        "div",
        { class: "cause" },
        h("p", {}, h("b", {}, share(cause.share)), ` ${words[cause.bucket] ?? cause.bucket}`, culprits(cause.who)),
        cause.via.length ? h("p", { class: "muted small" }, `along ${cause.via.join(" → ")}`) : null,
        proofs(cause.evidence),
      ),
    ),
    each.who.length ? h("p", {}, "By", culprits(each.who)) : null,
    proofs(each.evidence),
  );
}

function culprits(who) {
  if (!who.length) return null;
  return h(
    "span",
    { class: "who" },
    who.slice(0, 5).map((one) =>
      h("span", { class: "chip", title: one.container ?? "" }, one.pid === null ? one.comm : `${one.comm} (${one.pid})`, one.ns ? ` ${duration(one.ns)}` : ""),
    ),
  );
}

function proofs(evidence) {
  if (!evidence.length) return null;
  return h(
    "ul",
    { class: "proofs" },
    evidence.map((one) => h("li", {}, one.text, one.sql ? [" ", h("a", { href: address("/sql", { sql: one.sql }), onclick: (event) => sqlOpened(event, one.sql) }, "check")] : null)),
  );
}

function sqlOpened(event, sql) {
  event.preventDefault();
  go("/sql", { sql });
}

function fixes(each) {
  if (!each.fix.length) return null;
  return h(
    "div",
    { class: "fixes" },
    h("h3", {}, "What to do"),
    h(
      "ol",
      {},
      each.fix.map((fix) =>
        h("li", {}, fix.text, fix.command ? h("div", { class: "command" }, h("code", {}, fix.command), copyButton(fix.command)) : null),
      ),
    ),
  );
}

function stretch(each) {
  const [from, to] = each.episodes[0] ?? [each.first_ns, each.last_ns];
  const margin = Math.max((to - from) * 0.25, 1e8);
  return { since: "", from: String(BigInt(Math.round(from - margin))), to: String(BigInt(Math.round(to + margin))) };
}

const onTimeline = (each) => address("/timeline", stretch(each));

function opened(event, each) {
  event.preventDefault();
  go("/timeline", stretch(each));
}

function unexplained(report) {
  return report.unexplained.map((each) =>
    h("section", { class: "panel" }, h("h2", {}, `${each.victim.comm} (${each.victim.pid})${each.node ? ` on ${each.node}` : ""} is slower than usual, and we cannot prove why`), h("p", {}, each.text)),
  );
}

// The evidence behind "no problem found".
function healthy(report) {
  if (report.findings.length) return null;
  const fed = report.processes.filter((each) => each.threads_ns > 0);
  const calls = report.processes.reduce((sum, each) => sum + each.operations.reduce((so_far, op) => so_far + op.count, 0), 0);
  return h(
    "section",
    { class: "panel evidence" },
    h("h2", {}, "How we know"),
    h(
      "ul",
      {},
      h("li", {}, `${count(calls)} calls of ${count(fed.length)} GPU ${fed.length === 1 ? "process was" : "processes were"} looked at over ${duration(report.recorded_ns)}.`),
      fed.map((each) => h("li", {}, `${each.comm} (${each.pid})${each.node ? ` on ${each.node}` : ""}: ${each.step ? `a step takes ${duration(each.step.now_ns)}, usually ${duration(each.step.usual_ns)}; ` : ""}${share((each.time.gpu_wait ?? 0) / each.threads_ns)} of its time it waited for the GPU, ${share((each.time.unexplained ?? 0) / each.threads_ns)} is unexplained.`)),
      h("li", {}, report.losses.length ? "Some records were lost, see beside." : "No record was lost."),
    ),
  );
}

function machine(report) {
  const system = report.system;
  const rows = [
    ["CPU", system.cpu_share === null ? null : share(system.cpu_share)],
    ["Memory", system.memory_share === null ? null : share(system.memory_share)],
    ["Load", system.load1 === null ? null : `${system.load1.toFixed(1)} on ${system.cores ?? "?"} cores`],
    ["Swap", system.swap_bytes === null ? null : bytes(system.swap_bytes)],
    ["CPU pressure", system.psi.cpu_some === null || system.psi.cpu_some === undefined ? null : share(system.psi.cpu_some)],
    ["I/O pressure", system.psi.io_some === null || system.psi.io_some === undefined ? null : share(system.psi.io_some)],
  ].filter(([, value]) => value !== null);
  return h("section", { class: "panel small" }, h("h2", {}, "The machine"), h("dl", { class: "pairs" }, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
}

function trust(report) {
  const { overhead, losses } = report;
  return h(
    "section",
    { class: "panel small" },
    h("h2", {}, "How far to trust this"),
    h(
      "dl",
      { class: "pairs" },
      h("dt", {}, "Own overhead"),
      h("dd", {}, overhead.share === null ? "not measured" : `${share(overhead.share)}${overhead.budget === null ? "" : ` of at most ${share(overhead.budget)}`}`),
      h("dt", {}, "ingero itself"),
      h("dd", {}, overhead.agent_cpu_share === null ? "unknown" : `${share(overhead.agent_cpu_share)} of a core`),
      h("dt", {}, "Cores it took from jobs"),
      h("dd", {}, overhead.taken_from_job_share === null ? "unknown" : `${share(overhead.taken_from_job_share)} of their time`),
      h("dt", {}, "Cost to others"),
      h("dd", {}, overhead.bystanders_share === null ? "unknown" : `${share(overhead.bystanders_share)} of all cores`),
      h("dt", {}, "Probe hits"),
      h("dd", {}, overhead.hits_per_s === null ? "unknown" : `${count(overhead.hits_per_s)}/s`),
      h("dt", {}, "Lost"),
      h("dd", {}, losses.length ? count(losses.reduce((sum, each) => sum + each.count, 0)) : "nothing"),
    ),
    losses.length ? h("ul", { class: "plain" }, losses.map((each) => h("li", {}, `${count(each.count)} ${each.reason}, from ${clock(each.from_ns)}`))) : null,
    overhead.actions.length ? h("ul", { class: "plain" }, lastOfEach(overhead.actions).map((each) => h("li", {}, `${each.what}: ${each.after}`))) : null,
  );
}

function notWatched(report) {
  if (!report.not_watched.length) return null;
  return h(
    "section",
    { class: "panel small" },
    h("details", { "data-key": "not watched" }, h("summary", {}, h("h2", {}, `Not watched: ${report.not_watched.length}`)), h("ul", { class: "plain" }, report.not_watched.map((each) => h("li", {}, h("b", {}, each.what), `: ${each.why}`)))),
  );
}
