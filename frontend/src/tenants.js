// Whose processes pages show: a namespace, pod, job or user of the recording, or everybody's.

import { ask } from "./api.js";
import { h, replace } from "./dom.js";
import { change, place, WHOSE, where, whose } from "./place.js";

export const nobodyElse = () => Object.fromEntries(WHOSE.map((name) => [name, ""]));

export function tenantPicker() {
  const select = h("select", { id: "whose", "aria-label": "Whose", onchange: chosen });
  const element = h("label", { class: "field", hidden: true }, h("span", { class: "label" }, "Whose"), select);
  let known = "";
  let offered = true;

  function chosen() {
    const [kind, name] = select.value ? JSON.parse(select.value) : [];
    change({ ...nobodyElse(), ...(kind ? { [kind]: name } : {}) });
  }

  async function learn() {
    const of = where();
    let found;
    try {
      found = await ask("tenants", { node: place().node });
    } catch {
      found = {}; // of an older version, or it cannot be told now
    }
    if (of === where()) show(found);
  }

  function show(found) {
    const groups = Object.entries(found).filter(([, names]) => names.length);
    const now = Object.entries(whose());
    const state = JSON.stringify([groups, now]);
    if (state === known) return; // it may be open
    known = state;
    const listed = now.length === 1 && found[now[0][0]]?.includes(now[0][1]);
    replace(
      select,
      h("option", { value: "" }, "everybody"),
      groups.map(([kind, names]) => h("optgroup", { label: kind }, names.map((name) => h("option", { value: JSON.stringify([kind, name]) }, name)))),
      now.length && !listed ? h("option", { value: JSON.stringify(now[0]) }, now.map((each) => each.join(" ")).join(", ")) : null,
    );
    select.value = now.length ? JSON.stringify(now[0]) : "";
    hide();
  }

  // Where it changes nothing it is not shown.
  function offer(here) {
    offered = here;
    hide();
  }

  function hide() {
    element.hidden = !offered || select.options.length < 2;
  }

  return { element, learn, offer };
}
