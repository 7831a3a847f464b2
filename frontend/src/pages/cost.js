// What GPUs cost: a line per tenant, what of it was busy, lost to which finding, idle; all of it sums to what was held.

import { ask } from "../api.js";
import { h, replace } from "../dom.js";
import { duration, share } from "../format.js";
import { asking, table } from "../parts.js";
import { askedOf } from "../place.js";
import { KINDS } from "../words.js";

const GROUPS = ["namespace", "job", "user", "pod", "owner", "container", "node", "process"];

export function costPage() {
  const body = h("div");
  const choose = (text, field) => h("label", { class: "field" }, h("span", { class: "label" }, text), field);
  const by = h("select", { id: "cost-by", onchange: () => page.show() }, h("option", { value: "" }, "automatic"), GROUPS.map((name) => h("option", { value: name }, name)));
  const price = h("input", { id: "cost-price", type: "number", min: "0", step: "0.01", placeholder: "e.g. 2.49", title: "Empty: the price of the configuration", onchange: () => page.show() });
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
  const money = (amount) => (amount === null ? "–" : `${answer.prices.currency}${amount.toFixed(amount >= 0.01 || amount === 0 ? 2 : 6)}`);
  const total = answer.total;
  const parts = [["busy", total.busy_ns], ...total.lost.map((each) => [`lost (${KINDS[each.kind] ?? each.kind})`, each.ns]), ["idle without a finding", total.idle_ns], ["unknown", total.unknown_ns]];
  return [
    h(
      "section",
      { class: "panel", id: "cost-lines" },
      table(
        `GPU time by ${answer.by}`,
        [[answer.by, ""], ["cost", "number"], ["saved if fixed", "number"], ["held", "number"], ["busy", "number"], ["lost", "number"], ["idle", "number"], ["unknown", "number"], ["GPUs", ""]],
        [...answer.lines, total].map((line) => [
          line.name,
          money(line.money), // what one asks for stands where a phone shows it, too
          money(line.money_lost),
          ...[line.held_ns, line.busy_ns, line.lost_ns, line.idle_ns, line.unknown_ns].map(duration),
          Object.entries(line.gpus).map(([model, count]) => `${count} ${model}`).join(", "),
        ]),
      ),
      h("p", { id: "cost-sum" }, `Held ${duration(total.held_ns)} = ${parts.filter(([, ns]) => ns).map(([name, ns]) => `${name} ${duration(ns)}`).join(" + ")}`),
      answer.free ? h("p", { class: "muted" }, `Held by nobody: ${duration(answer.free.held_ns)}, ${money(answer.free.money)}`) : null,
      answer.estimated.length ? h("p", { class: "warning" }, `Estimated from calls, because the GPU driver did not say who used the GPU: ${answer.estimated.join(", ")}`) : null,
      total.money === null ? h("p", { class: "muted" }, "No price is known. Enter one above, or set cost.price in ingero.yaml.") : null,
    ),
    h(
      "section",
      { class: "panel" },
      table(
        "How well it was used",
        [[answer.by, ""], ["GPU busy", "number"], ["SM clock", "number"], ["pace against its best", "number"], ["goodput", "number"], ["more would fit", "number"]],
        answer.lines.map(({ name, efficiency }) => [
          name,
          share(efficiency.busy_share),
          share(efficiency.clock_share),
          efficiency.pace_share === null ? share(null) : `${share(efficiency.pace_share)} of its best ${efficiency.pace_against}`,
          share(efficiency.goodput_share),
          efficiency.more_jobs ?? "unknown",
        ]),
      ),
    ),
  ];
}
