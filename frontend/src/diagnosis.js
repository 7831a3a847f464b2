// The diagnosis as pieces of a page: on the dashboard's first page, and in the report one can send on.

import { severityColour } from "./colours.js";
import { h } from "./dom.js";
import { baseName, bytes, clock, count, duration, moment, share } from "./format.js";
import { copyButton, stack, timeBar, timeKey } from "./parts.js";
import { KINDS } from "./words.js";

const LEAST_SHARE = 0.01; // of what the one with most took; serve/answers/shares.py has the same
const CHANGES = 20;
const FAULT_SHARE = 0.1; // of the time lost: who took less is named in the proof, not as the one at fault

export function verdict(report, found = report.findings.length) {
  const worst = report.findings[0];
  const length = report.window.to_ns - report.window.from_ns;
  const whole = !report.losses.length && !report.not_watched.length;
  const nothing = !report.processes.some(feedsGpu) ? "No CUDA process was seen" : whole ? "No problem found" : "No problem found in what was watched";
  const what = worst ? `${found} ${found === 1 ? "problem" : "problems"} found` : nothing;
  return h(
    "section",
    { class: "verdict", "data-severity": worst?.severity ?? "NONE", style: { "--tone": severityColour(worst?.severity ?? "none") } },
    h("h1", {}, what),
    h("p", {}, `${report.node}, ${duration(report.recorded_ns ?? length)} recorded, ${moment(report.window.from_ns)} to ${clock(report.window.to_ns)}`),
  );
}

// As serve/answers/report_processes.py has it: Python's garbage collections are no GPU work.
const feedsGpu = (process) => process.threads_ns > 0 || process.operations.some((each) => each.layer !== "python");

// A limit is a round number.
const limit = (budget) => `${+(100 * budget).toPrecision(3)} %`;

// How each thing that was watched less was watched at the end.
const lastOfEach = (actions) => [...new Map(actions.map((each) => [each.what, each])).values()];

// What limits each job now, whether something is wrong or not.
export function bounds(report) {
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

// `around`: { timeline, sql, tracks }: links where there is somewhere to go, and the job's seconds.
export function finding(each, report, words, around = {}) {
  const tone = { "--tone": severityColour(each.severity) };
  return h(
    "article",
    { class: "panel finding", "data-id": each.id, tabindex: "-1", style: tone, "aria-label": `${each.severity}: ${each.title}` },
    h("header", {}, h("span", { class: "severity" }, each.severity), h("h2", {}, each.title), h("code", { class: "kind", title: KINDS[each.kind] ?? "" }, each.kind)),
    h(
      "dl",
      { class: "facts" },
      fact("Since", `${clock(each.first_ns)}, for ${duration(lasted(each))}${each.episodes.length > 1 ? ` in ${each.episodes.length} episodes until ${clock(each.last_ns)}` : ""}`),
      fact("Whose time", `${each.victim.comm} (${each.victim.pid})${report.processes.some((one) => one.node) ? ` on ${nodeOf(each)}` : ""}`),
      fact("Whose fault", fault(each)),
      fact("Effect", effect(each.effect)),
      fact("Fixing it wins", each.gain ? `${duration(each.gain.ns)}, ${share(each.gain.share)}` : "unknown"),
      fact("Confidence", h("span", { class: "confidence" }, h("meter", { min: 0, max: 1, value: each.confidence, "aria-label": "Confidence" }), share(each.confidence))),
      each.source ? fact("Line", h("span", { class: "line" }, h("b", {}, `${each.source.function}()`), ` at ${baseName(each.source.file)}:${each.source.line}`)) : null,
    ),
    Object.values(each.time).some((ns) => ns > 0)
      ? h("div", { class: "where" }, h("h3", {}, "Where its time went meanwhile"), timeBar(each.time, words), timeKey(each.time, words), otherwise(each, words, around.tracks))
      : null,
    causes(each, words, around),
    fixes(each),
    h(
      "footer",
      {},
      around.timeline?.(each),
      each.stack.length ? h("details", { "data-key": `stack ${each.id}` }, h("summary", {}, "Stack"), stack(each.stack, each.source)) : null,
    ),
  );
}

// How long it was there: between its episodes it was not.
function lasted(each) {
  if (!each.episodes.length) return each.last_ns - each.first_ns;
  return each.episodes.reduce((sum, [from, to]) => sum + to - from, 0);
}

const fact = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));

// Names, each once, with how many processes have it. Who had little part in it is not at fault.
function fault(each) {
  const lost = each.causes.reduce((sum, cause) => sum + cause.ns, 0);
  const others = [...each.causes.flatMap((cause) => cause.who), ...each.who].filter((one) => one.pid !== each.victim.pid);
  const sums = new Map();
  for (const one of others) sums.set(one.comm, (sums.get(one.comm) ?? 0) + one.ns);
  const names = [...sums].filter(([, ns]) => !lost || ns >= FAULT_SHARE * lost).sort((a, b) => b[1] - a[1]).map(([name]) => name);
  if (!names.length) return "its own";
  const many = (name) => new Set(others.filter((one) => one.comm === name).map((one) => one.pid)).size;
  const pid = (name) => others.find((one) => one.comm === name).pid;
  return names.slice(0, 3).map((name) => (many(name) > 1 ? `${name} × ${many(name)}` : pid(name) === null ? name : `${name} (${pid(name)})`)).join(", ");
}

function effect(found) {
  const lost = found.wall_share === null ? "" : `${share(found.wall_share)} of the time lost`;
  if (found.usual_ns === null || found.now_ns === null) return lost || "see the proof";
  return `${found.op ?? "step"} ${duration(found.usual_ns)} → ${duration(found.now_ns)}${lost ? `, ${lost}` : ""}`;
}

function causes(each, words, around) {
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
        h("p", {}, h("b", {}, share(cause.share)), ` ${words[cause.bucket] ?? cause.bucket}`, culprits(cause.who, each.victim.pid)),
        cause.via.length ? h("p", { class: "muted small" }, `along ${cause.via.join(" → ")}`) : null,
        proofs(cause.evidence, around),
      ),
    ),
    each.who.length ? h("p", {}, "Who", culprits(each.who, each.victim.pid)) : null,
    proofs(each.evidence, around),
  );
}

// Who took next to nothing is left out, and the job's own threads are said to be its own.
function culprits(all, own) {
  const most = Math.max(...all.map((one) => one.ns));
  const who = all.filter((one) => one.ns >= LEAST_SHARE * most);
  if (!who.length) return null;
  const called = (one) => (one.pid === null ? one.comm : `${one.comm} (${one.pid}${one.pid === own ? ", the job's own" : ""})`);
  return h(
    "span",
    { class: "who" },
    who.slice(0, 5).map((one) =>
      h("span", { class: "chip", title: one.container ?? "" }, called(one), one.ns ? ` ${duration(one.ns)}` : ""),
    ),
  );
}

function proofs(evidence, around) {
  if (!evidence.length) return null;
  return h(
    "ul",
    { class: "proofs" },
    evidence.map((one) => h("li", {}, one.text, one.sql && around.sql ? [" ", around.sql(one.sql)] : null)),
  );
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
        h("li", {}, fix.text, [fix.command, fix.code].filter(Boolean).map((text) => h("div", { class: "command" }, h("code", {}, text), copyButton(text)))),
      ),
    ),
  );
}

export function unexplained(report) {
  return report.unexplained.map((each) =>
    h("section", { class: "panel" }, h("h2", {}, `${each.victim.comm} (${each.victim.pid})${each.node ? ` on ${each.node}` : ""} is slower than usual, and we cannot prove why`), h("p", {}, each.text)),
  );
}

// The evidence behind "no problem found": how much was looked at, and where the time of each job went.
export function healthy(report, words) {
  if (report.findings.length || !report.processes.some(feedsGpu)) return null;
  const fed = report.processes.filter((each) => each.threads_ns > 0);
  const calls = report.processes.reduce((sum, each) => sum + each.operations.reduce((so_far, op) => so_far + op.count, 0), 0);
  return h(
    "section",
    { class: "panel evidence" },
    h("h2", {}, "How we know"),
    h(
      "ul",
      {},
      h("li", {}, `${count(calls)} calls of ${count(fed.length)} GPU ${fed.length === 1 ? "process" : "processes"} in ${duration(report.recorded_ns)}.`),
      h("li", {}, report.losses.length ? "Some records were dropped: see How far to trust this." : "No record was dropped."),
    ),
    fed.slice(0, 8).map((each) => [
      h("h3", {}, `Where the time of ${each.comm} (${each.pid})${each.node ? ` on ${each.node}` : ""} went${each.step ? `; a step takes ${duration(each.step.now_ns)}, usually ${duration(each.step.usual_ns)}` : ""}`),
      timeBar(each.time, words),
      timeKey(each.time, words),
    ]),
  );
}

export function machine(report) {
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

export function trust(report) {
  const { overhead, losses } = report;
  return h(
    "section",
    { class: "panel small" },
    h("h2", {}, "How far to trust this"),
    h(
      "dl",
      { class: "pairs" },
      h("dt", {}, "Own overhead"),
      h("dd", {}, overhead.share === null ? "not measured" : `${share(overhead.share)} of the traced threads' time${overhead.budget === null ? "" : ` (limit ${limit(overhead.budget)})`}`),
      h("dt", {}, "ingero itself"),
      h("dd", {}, overhead.agent_cpu_share === null ? "unknown" : `${share(overhead.agent_cpu_share)} of one core, beside the job`),
      h("dt", {}, "Cores it took from jobs"),
      h("dd", {}, overhead.taken_from_job_share === null ? "unknown" : `${share(overhead.taken_from_job_share)} of their time`),
      h("dt", {}, "Cost to others"),
      h("dd", {}, overhead.bystanders_share === null ? "unknown" : `${share(overhead.bystanders_share)} of all cores`),
      h("dt", {}, "Probe hits"),
      h("dd", {}, overhead.hits_per_s === null ? "unknown" : `${count(overhead.hits_per_s)}/s`),
      h("dt", {}, "Dropped"),
      h("dd", {}, losses.length ? count(losses.reduce((sum, each) => sum + each.count, 0)) : "nothing"),
    ),
    losses.length ? h("ul", { class: "plain" }, losses.map((each) => h("li", {}, `${count(each.count)} ${each.reason}, from ${clock(each.from_ns)}`))) : null,
    overhead.actions.length
      ? h("details", { "data-key": "reduced" }, h("summary", {}, `Reduced to stay within ${overhead.budget === null ? "its budget" : limit(overhead.budget)}`), h("ul", { class: "plain" }, lastOfEach(overhead.actions).map((each) => h("li", {}, `${each.what}: ${each.after}`))))
      : null,
  );
}

export function notWatched(report) {
  if (!report.not_watched.length) return null;
  return h(
    "section",
    { class: "panel small" },
    h("details", { "data-key": "not watched" }, h("summary", {}, h("h2", {}, `Not covered: ${report.not_watched.length}`)), h("ul", { class: "plain" }, [...byReason(report.not_watched)].map(([why, what]) => h("li", {}, h("b", {}, what.join("; ")), `: ${why}`)))),
  );
}

// A kind of finding by its sentence, a source without its key; one missing source may hide several kinds.
function byReason(found) {
  const reasons = new Map();
  for (const each of found) {
    const [, kind, rest] = /^([a-z-]*)(.*)$/s.exec(each.what);
    const why = each.why.replace(/^\w+ is not recorded: /, "not recorded: ");
    reasons.set(why, [...(reasons.get(why) ?? []), `${KINDS[kind] ?? kind}${rest}`]);
  }
  return reasons;
}

// The same thread while nothing of this was the matter.
function otherwise(each, words, tracks = []) {
  const track = tracks.find((one) => one.kind === "accounted" && one.pid === each.victim.pid && (each.victim.tid === null || one.tid === each.victim.tid));
  if (!track || !each.episodes.length) return null;
  const during = (at) => each.episodes.some(([from, to]) => from < at + 1e9 && at < to);
  const calm = track.start_ns.map((start, at) => [track.begin_ns + start, at]).filter(([start]) => !during(start));
  if (calm.length < 2 || calm.length === track.start_ns.length) return null;
  const time = Object.fromEntries(track.buckets.map((bucket, which) => [bucket, calm.reduce((sum, [, at]) => sum + track.shares[which][at] * track.length_ns[at], 0)]));
  return [h("h3", {}, `Before and after, in the other ${duration(calm.reduce((sum, [, at]) => sum + track.length_ns[at], 0))}`), timeBar(time, words), timeKey(time, words)];
}

// What changed when, in order: findings begin and end, a job gets slower.
export function changes(report) {
  const found = report.findings.flatMap((each) => {
    const spans = each.episodes.length ? each.episodes : [[each.first_ns, each.last_ns]];
    return spans.flatMap(([from, to]) => [
      { at: from, tone: each.severity, text: `begins: ${each.title}` },
      to < report.window.to_ns - 1.5e9 ? { at: to, tone: "none", text: `ends: ${each.title}` } : null,
    ]);
  });
  const paces = (report.bound ?? []).filter((each) => each.since_ns && each.usual_steps_per_s);
  const slower = paces.map((each) => ({ at: each.since_ns, tone: "low", text: `${each.comm} (${each.pid}) goes from ${each.usual_steps_per_s.toFixed(1)} to ${(each.steps_per_s ?? 0).toFixed(1)} steps/s` }));
  const all = [...found.filter(Boolean), ...slower].sort((a, b) => a.at - b.at);
  if (!all.length) return null;
  const more = all.length - CHANGES;
  return h("ol", { class: "changes", "aria-label": "What changed when" }, all.slice(0, CHANGES).map((each) => h("li", {}, h("time", {}, clock(each.at)), h("i", { style: { background: severityColour(each.tone) } }), each.text)), more > 0 ? h("li", { class: "muted" }, `and ${count(more)} more changes`) : null);
}
