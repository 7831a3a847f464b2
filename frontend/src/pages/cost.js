// What GPUs cost: a line per tenant, what of it was busy, lost to which finding, idle; all of it sums to what was held.

import { ask } from "../api.js";
import { h, replace } from "../dom.js";
import { share } from "../format.js";
import { asking, table } from "../parts.js";
import { askedOf } from "../place.js";
import { KINDS } from "../words.js";

const [SECOND, HOUR] = [1e9, 3600e9];
const GROUPS = ["namespace", "job", "user", "pod", "owner", "container", "node", "process"];
// What one asks for stands where a phone shows it, too.
const COLUMNS = {
  lines: [["cost", "number"], ["saved if fixed", "number"], ["held", "number"], ["busy", "number"], ["lost", "number"], ["idle", "number"], ["unknown", "number"], ["GPUs", ""]],
  efficiency: [["GPU busy", "number"], ["SM clock", "number"], ["pace against its best", "number"], ["goodput", "number"], ["more would fit", "number"]],
};

export function costPage() {
  const body = h("div");
  const choose = (text, field) => h("label", { class: "field" }, h("span", { class: "label" }, text), field);
  const by = h("select", { id: "cost-by", onchange: () => page.show() }, h("option", { value: "" }, "automatic"), GROUPS.map((name) => h("option", { value: name }, name)));
  const price = h("input", { id: "cost-price", type: "number", min: "0", step: "0.01", placeholder: "2.49", title: "Empty: the price of the configuration", onchange: () => page.show() });
  const element = h(
    "div",
    { class: "page cost" },
    h("div", { class: "toolbar" }, h("h1", {}, "Cost"), choose("By", by), choose("Price of a GPU for an hour", price)),
    body,
  );
  const page = asking(body, (signal) => ask("cost", { ...askedOf(), by: by.value, price: price.value }, signal), (answer) => replace(body, render(answer)));
  return { element, show: page.show, stop: page.stop };
}

function render(answer) {
  if (!answer.lines.length) return h("section", { class: "panel" }, h("p", {}, "No process held a GPU in that time."));
  const total = answer.total;
  const lines = answer.lines.map((line) => told(line, total));
  const whole = told(total, total);
  const digits = Math.max(...answer.lines.map((line) => line.money ?? 0)) >= 1 ? 2 : 4;
  const money = (amount) => (amount === null ? "–" : `${answer.prices.currency}${amount.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })}`);
  const parts = [["busy", whole.busy], ...whole.kinds.map(({ kind, time }) => [kind, time]), ["idle without a finding", whole.idle], ...(total.unknown_ns ? [["unknown", whole.unknown]] : [])];
  const gone = new Set([...(total.unknown_ns ? [] : ["unknown"]), ...(answer.lines.some((line) => line.money !== null) ? [] : ["cost", "saved if fixed"])]);
  const cells = (line, times) => ({
    ...times,
    cost: money(line.money),
    "saved if fixed": money(line.money_lost),
    GPUs: Object.entries(line.gpus).map(([model, count]) => `${count} ${model}`).join(", "),
  });
  const columns = COLUMNS.lines.filter(([name]) => !gone.has(name));
  const rows = [...answer.lines.map((line, at) => [line.name, cells(line, lines[at])]), [total.name, cells(total, whole)]];
  const losses = answer.lines.flatMap((line, at) => lines[at].kinds.map(({ kind, time, money: amount }) => `${line.name} lost ${time}${amount === null ? "" : `, ${money(amount)},`} to ${kind}${KINDS[kind] ? `: ${KINDS[kind]}` : ""}`));
  return [
    h(
      "section",
      { class: "panel", id: "cost-lines" },
      table(
        `GPU time by ${answer.by}`,
        [[answer.by, ""], ...columns],
        rows.map(([name, row]) => [name, ...columns.map(([column]) => row[column])]),
      ),
      h("p", { id: "cost-sum" }, `Held ${whole.held} = ${parts.map(([name, time]) => `${name} ${time}`).join(" + ")}`),
      losses.length ? h("ul", { id: "cost-lost" }, losses.map((text) => h("li", {}, text))) : null,
      answer.free ? h("p", { class: "muted" }, `Held by nobody: ${told(answer.free, total).held}${answer.free.money === null ? "" : `, ${money(answer.free.money)}`}`) : null,
      answer.estimated.length ? h("p", { class: "warning" }, `Estimated from calls, because the GPU driver did not say who used the GPU: ${answer.estimated.join(", ")}`) : null,
      total.money === null ? h("p", { class: "muted" }, answer.unpriced.length ? `No price for ${answer.unpriced.join(", ")}. Enter one above, or set cost.prices in ingero.yaml.` : "No price is known. Enter one above, or set cost.price in ingero.yaml.") : null,
    ),
    h("section", { class: "panel" }, efficiency(answer)),
  ];
}

// A line's times in the unit of the total, rounded as the terminal does (cost.py): as they are shown, too, they sum to
// what was held.
function told(line, total) {
  const long = total.held_ns >= HOUR;
  const [step, digits, unit] = long ? [HOUR / 100, 2, "h"] : [SECOND / 10, 1, "s"];
  const parts = [line.busy_ns, line.idle_ns, line.unknown_ns, ...line.lost.map((each) => each.ns)];
  const steps = parts.map((ns) => Math.floor(ns / step));
  const sum = (values) => values.reduce((all, each) => all + each, 0);
  const missing = Math.floor((sum(parts) + step / 2) / step) - sum(steps);
  const order = parts.map((ns, at) => at).sort((a, b) => (parts[b] % step) - (parts[a] % step));
  for (const at of order.slice(0, missing)) steps[at] += 1;
  const time = (count) => `${(count / 10 ** digits).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })}\u00a0${unit}`;
  const [busy, idle, unknown, ...lost] = steps;
  return {
    held: time(sum(steps)), busy: time(busy), idle: time(idle), unknown: time(unknown), lost: time(sum(lost)),
    kinds: line.lost.map((each, at) => ({ ...each, time: time(lost[at]) })),
  };
}

// Columns of which nothing is known are left out: on a phone there is no room for them.
function efficiency(answer) {
  const rows = answer.lines.map(({ name, efficiency: each }) => [
    name,
    {
      "GPU busy": each.busy_share === null ? null : share(each.busy_share),
      "SM clock": each.clock_share === null ? null : share(each.clock_share),
      "pace against its best": each.pace_share === null ? null : `${share(each.pace_share)} of its best ${each.pace_against}`,
      goodput: each.goodput_share === null ? null : share(each.goodput_share),
      "more would fit": each.more_jobs,
    },
  ]);
  const columns = COLUMNS.efficiency.filter(([name]) => rows.some(([, row]) => row[name] !== null));
  return table("How well it was used", [[answer.by, ""], ...columns], rows.map(([name, row]) => [name, ...columns.map(([column]) => row[column] ?? "unknown")]));
}
