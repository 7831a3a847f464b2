// The stretch of time every page shows: the whole recording, its last part, or from and to.

import { h, replace } from "./dom.js";
import { duration, local } from "./format.js";
import { change, place } from "./place.js";

const LAST = ["30s", "1m", "5m", "15m", "1h", "6h", "1d"];
const PART = "part";

export function rangePicker() {
  const select = h("select", { id: "range", "aria-label": "Time range", onchange: chosen });
  const from = h("input", { type: "datetime-local", step: "1", "aria-label": "From", onchange: given });
  const to = h("input", { type: "datetime-local", step: "1", "aria-label": "To", onchange: given });
  const fields = h("span", { class: "between", hidden: true }, from, "to", to);
  const length = h("span", { class: "muted length" });
  const element = h("div", { class: "field range" }, select, fields, length);
  let window_ns = { from_ns: 0, to_ns: 0 };

  function chosen() {
    if (select.value === PART) {
      change({ since: "", from: String(BigInt(window_ns.from_ns)), to: String(BigInt(window_ns.to_ns)) });
    } else change({ since: select.value, from: "", to: "" });
  }

  function given() {
    const start = Date.parse(from.value);
    const end = Date.parse(to.value);
    if (Number.isFinite(start) && Number.isFinite(end) && start < end) {
      change({ since: "", from: String(BigInt(start) * 1000000n), to: String(BigInt(end) * 1000000n) });
    }
  }

  function show(recordings) {
    const now = place();
    const part = Boolean(now.from || now.to);
    replace(
      select,
      h("option", { value: "" }, "whole recording"),
      LAST.map((since) => h("option", { value: since }, `last ${since}`)),
      now.since && !LAST.includes(now.since) ? h("option", { value: now.since }, `last ${now.since}`) : null,
      h("option", { value: PART }, "from … to"),
    );
    select.value = part ? PART : (now.since ?? "");
    if (!recordings) return;
    window_ns = part && now.from && now.to ? { from_ns: Number(now.from), to_ns: Number(now.to) } : recordings.asked;
    fields.hidden = !part;
    from.value = local(window_ns.from_ns);
    to.value = local(window_ns.to_ns);
    length.textContent = duration(window_ns.to_ns - window_ns.from_ns);
  }

  return { element, show };
}
