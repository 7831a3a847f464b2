// The fleet: a grid of all nodes, the sick ones first and in colour, and what is wrong with each.
// Served by `ingero fleet serve`. The place in the address says what is chosen, so that a view can be sent on.

import { ask } from "./api.js";
import { h, replace } from "./dom.js";
import { clock, count, duration, moment, share } from "./format.js";
import { failure, table } from "./parts.js";
import { KINDS } from "./words.js";

const STATES = ["silent", "critical", "straggling", "high", "medium", "low", "fine"];
const FILTERS = ["cluster", "job", "namespace", "finding", "state"];
const EVERY_MS = 10_000;
const LISTED = 60;
const HOURS = 6; // of a node's past
const SLOTS = 360; // a minute each, as the collector thins them

const chosen = () => Object.fromEntries(new URLSearchParams(location.search));
const body = h("div");
const main = h("main", { id: "page", tabindex: "-1" }, h("div", { class: "page fleet" }, body));
const filters = h("div", { class: "toolbar filters" });
let known = { cluster: new Set(), job: new Set(), namespace: new Set(), finding: new Set() };

function choose(changed, state = null) {
  const next = Object.entries({ ...chosen(), ...changed }).filter(([, value]) => value);
  history.pushState(state, "", `/fleet?${new URLSearchParams(next)}`);
  refresh();
}

// From a node back to what was chosen before it: its cluster was not.
function chooseAll() {
  if (history.state?.all === undefined) return choose({ node: "", cluster: "" });
  history.pushState(null, "", `/fleet${history.state.all}`);
  refresh();
}

function field(name) {
  const now = chosen()[name] ?? "";
  const values = name === "state" ? STATES : [...new Set([...known[name], ...(now ? [now] : [])])].sort();
  const select = h(
    "select",
    { "aria-label": name, onchange: () => choose({ [name]: select.value, node: "" }) },
    h("option", { value: "" }, `every ${name}`),
    values.map((value) => h("option", { value }, (name === "finding" && KINDS[value]) || value || "(none)")),
  );
  select.value = now;
  return h("label", { class: "field" }, h("span", { class: "label" }, name), select);
}

function learn(answer) {
  for (const name of answer.clusters) if (name) known.cluster.add(name);
  for (const node of answer.nodes) {
    for (const job of node.job_names) known.job.add(job);
    for (const namespace of node.namespaces) known.namespace.add(namespace);
    for (const finding of node.findings) known.finding.add(finding.kind);
  }
}

export function why(node, at_ns) {
  if (node.other_time_ns) return `its reports are of ${moment(node.other_time_ns)}: its clock is wrong, or it now sends reports that waited`;
  if (node.state === "silent") return `no report for ${duration(Math.max(0, at_ns - node.last_seen_ns))}`;
  if (node.state === "straggling") return node.straggling[0].text;
  return node.findings.length ? node.findings[0].title : "";
}

function counts(answer) {
  return h(
    "ul",
    { class: "fleet-counts" },
    STATES.filter((state) => answer.states[state]).map((state) =>
      h("li", {}, h("button", { type: "button", class: "quiet", "data-state": state, onclick: () => choose({ state }) }, h("i", {}), `${count(answer.states[state])} ${state}`)),
    ),
  );
}

// Every node is one link: it can be reached by keyboard and read aloud; ten thousand of them take a browser a moment.
function grid(answer) {
  return h(
    "div",
    { class: "fleet-grid", role: "group", "aria-label": `${answer.total} nodes, worst first` },
    answer.nodes.map((node) => {
      const said = `${node.node}: ${node.state}${node.state === "fine" ? "" : `, ${why(node, answer.at_ns)}`}`;
      const place = new URLSearchParams({ ...chosen(), cluster: node.cluster, node: node.node });
      return h("a", { href: `/fleet?${place}`, "data-state": node.state, title: said, "aria-label": said, onclick: (event) => follow(event, node) });
    }),
  );
}

function follow(event, node) {
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  choose({ cluster: node.cluster, node: node.node }, { all: location.search });
}

function sick(answer) {
  const rows = answer.nodes.filter((node) => node.state !== "fine").slice(0, LISTED);
  if (!rows.length) return h("section", { class: "panel" }, h("h2", {}, answer.total ? "Nothing is wrong" : "No node has spoken yet"));
  return table(
    "Nodes with a problem, worst first",
    [["state", ""], ["node", "name"], ["why", "words"], ["cluster", "more"], ["jobs", "number more"], ["GPU busy", "number more"], ["GPU memory", "number more"], ["pace", "number more"]],
    rows.map((node) => [
      h("b", { class: "fleet-state", "data-state": node.state }, node.state),
      h("a", { href: `/fleet?${new URLSearchParams({ cluster: node.cluster, node: node.node })}`, onclick: (event) => follow(event, node) }, node.node),
      why(node, answer.at_ns),
      node.cluster,
      node.state === "silent" ? "unknown" : count(node.jobs),
      share(node.gpu_busy_share),
      share(node.memory_share),
      share(node.pace_share),
    ]),
  );
}

// The collector's owner says where nodes' pages are. A node's name is a name: it cannot lead elsewhere, and where
// it makes no address it leads nowhere.
function ownPage(template, node) {
  const href = template.replaceAll("{node}", encodeURIComponent(node.node)).replaceAll("{cluster}", encodeURIComponent(node.cluster));
  if (!URL.canParse(href)) return null;
  return h("a", { class: "button", href, target: "_blank", rel: "noopener noreferrer" }, "Its own dashboard");
}

async function oneNode(node, at_ns, template) {
  const past = await ask("fleet/node", { cluster: node.cluster, node: node.node, hours: HOURS });
  return h(
    "section",
    { class: "panel", id: "node" },
    h("header", {}, h("h1", {}, node.node), h("b", { class: "fleet-state", "data-state": node.state }, node.state), h("span", { class: "muted" }, [node.cluster, node.models.join(", "), `ingero ${node.version}`, `last report ${moment(node.last_seen_ns)}`].filter(Boolean).join(" · "))),
    h("div", { class: "toolbar" }, h("button", { type: "button", onclick: chooseAll }, "All nodes"), ownPage(template, node)),
    node.straggling.map((each) => h("p", { class: "warning" }, `${each.text}, since ${clock(each.since_ns)}`)),
    why(node, at_ns) ? h("p", {}, why(node, at_ns)) : null,
    strip("Pace, against its usual pace", past.points, at_ns, (point) => point.pace_share),
    strip("How busy its GPUs were", past.points, at_ns, (point) => point.gpu_busy_share),
    past.findings.length
      ? table("Findings of the last six hours", [["severity", ""], ["what", "words"], ["cause", "words"], ["kind", "more"], ["from", ""], ["to", ""]], past.findings.map((each) => [each.severity, each.title, each.cause, KINDS[each.kind] ?? each.kind, moment(each.first_ns), each.ended ? moment(each.last_ns) : "still there"]))
      : h("p", { class: "muted" }, "No findings in the last six hours."),
  );
}

// A bar for each stretch of the hours asked for, where it belongs in time; what is not known has none.
function strip(title, points, at_ns, value) {
  const told = points.map(value).filter((each) => each !== null);
  if (!told.length) return h("p", { class: "muted" }, `${title}: not reported.`);
  const begun = at_ns - HOURS * 3600e9;
  const bars = Array(SLOTS).fill(null);
  for (const point of points) bars[Math.max(0, Math.min(SLOTS - 1, Math.floor(((point.at_ns - begun) / (HOURS * 3600e9)) * SLOTS)))] = point;
  const last = value(points.at(-1));
  const said = `${last === null ? "now unknown" : `now ${share(last)}`}, lowest ${share(Math.min(...told))}`;
  return h(
    "figure",
    {},
    h("figcaption", {}, h("b", {}, title), ` ${said}`),
    h("div", { class: "fleet-strip", role: "img", "aria-label": `${title}: ${said}` }, bars.map((point) => bar(point, point && value(point)))),
    h("div", { class: "fleet-hours muted" }, [begun, begun + HOURS * 1800e9, at_ns].map((each) => h("span", {}, clock(each)))),
  );
}

function bar(point, known) {
  if (known === null) return h("i", {});
  return h("i", { class: "known", title: `${moment(point.at_ns)}: ${share(known)}`, style: { height: `${Math.round(100 * Math.min(1, known))}%` } });
}

let asking = 0;
async function refresh() {
  const mine = ++asking;
  try {
    const place = chosen();
    const answer = await ask("fleet", place);
    if (mine !== asking) return;
    learn(answer);
    const node = place.node ? answer.nodes.find((each) => each.node === place.node) : null;
    const detail = node ? await oneNode(node, answer.at_ns, answer.node_page) : null;
    if (mine !== asking) return;
    replace(filters, FILTERS.map(field));
    const old = Date.now() - answer.at_ns / 1e6 > 3 * EVERY_MS;
    replace(
      body,
      h("div", { class: "toolbar" }, h("h1", {}, `${count(answer.total)} ${answer.total === 1 ? "node" : "nodes"}`), counts(answer), h("span", { class: old ? "warning" : "muted" }, `as of ${clock(answer.at_ns)}`)),
      filters,
      detail ?? [grid(answer), answer.left_out ? h("p", { class: "warning" }, `${count(answer.left_out)} more nodes are not shown; choose a cluster.`) : null, sick(answer)],
    );
  } catch (error) {
    if (mine === asking) replace(body, failure(error, "h1"));
  }
}

replace(
  document.getElementById("shell"),
  h("header", { class: "bar" }, h("a", { class: "brand", href: "/fleet" }, h("img", { src: "/icon.svg", alt: "", width: 22, height: 22 }), "ingero"), h("nav", { "aria-label": "Pages" }, h("a", { href: "/fleet", "aria-current": "page" }, "Fleet"))),
  main,
);
const kept = localStorage.getItem("theme");
if (kept) document.documentElement.dataset.theme = kept;
window.addEventListener("popstate", refresh);
await refresh();
setInterval(() => document.hidden || document.activeElement?.tagName === "SELECT" || refresh(), EVERY_MS);
