// The frame around every page: navigation, node and time, live state, light or dark.

import { ask } from "./api.js";
import { forgetColours } from "./colours.js";
import { h, replace } from "./dom.js";
import { moment } from "./format.js";
import { follow } from "./live.js";
import { address, asked, change, go, onPlace, place, where } from "./place.js";
import { nobodyElse, tenantPicker } from "./tenants.js";
import { rangePicker } from "./range.js";
import { failure } from "./parts.js";
import { costPage } from "./pages/cost.js";
import { flamePage } from "./pages/flame.js";
import { gpusPage } from "./pages/gpus.js";
import { graphsPage } from "./pages/graphs.js";
import { latencyPage } from "./pages/latency.js";
import { nowPage } from "./pages/now.js";
import { sqlPage } from "./pages/sql.js";
import { timePage } from "./pages/time.js";
import { timelinePage } from "./pages/timeline.js";

const PAGES = [
  { path: "/", title: "What is wrong", make: nowPage },
  { path: "/timeline", title: "Timeline", make: timelinePage },
  { path: "/time", title: "Where time goes", make: timePage },
  { path: "/latency", title: "Latency", make: latencyPage },
  { path: "/flame", title: "Flame graph", make: flamePage },
  { path: "/gpus", title: "GPUs", make: gpusPage, everybody: true },
  { path: "/cost", title: "Cost", make: costPage },
  { path: "/graphs", title: "Graphs & collectives", make: graphsPage },
  { path: "/sql", title: "SQL", make: sqlPage, everybody: true },
];

const links = PAGES.map((page) => h("a", { href: page.path, onclick: (event) => follows(event, page.path) }, page.title));
const nodes = h("select", { id: "node", "aria-label": "Node", onchange: () => chooseNode() });
const nodeField = h("label", { class: "field", hidden: true }, h("span", { class: "label" }, "Node"), nodes);
const others = h("select", { id: "fleet", "aria-label": "Machine", onchange: () => elsewhere(others.value) });
const othersField = h("label", { class: "field", hidden: true }, h("span", { class: "label" }, "Machine"), others);
const tenants = tenantPicker();
const live = h("span", { class: "live", role: "status" }, "");
const range = rangePicker();
const main = h("main", { id: "page", tabindex: "-1" });
const note = h("p", { class: "note", role: "status" }); // why something else is shown than was asked for
let shown = null; // { path, show, stop }
let recordings = null;
let changed_ms = 0; // when the database last did
let looking = null;
const WRITTEN_MS = 6000;

function follows(event, path) {
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  go(path);
}

function themeSwitch() {
  const kept = localStorage.getItem("theme");
  if (kept) document.documentElement.dataset.theme = kept;
  const dark = () =>
    (document.documentElement.dataset.theme ??
      (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const button = h("button", { class: "quiet", type: "button", id: "theme", onclick: () => turn(!dark()) });
  const label = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", dark() ? "Switch to light colours" : "Switch to dark colours");
  };
  const turn = (toDark) => {
    document.documentElement.dataset.theme = toDark ? "dark" : "light";
    localStorage.setItem("theme", document.documentElement.dataset.theme);
    recolour();
    label();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    recolour();
    label();
  });
  label();
  return button;
}

function recolour() {
  forgetColours();
  shown?.page.recolour?.();
}

function signOut() {
  return h(
    "button",
    {
      class: "quiet",
      type: "button",
      onclick: async () => {
        await fetch("/logout", { method: "POST" });
        location.assign("/login");
      },
    },
    "Sign out",
  );
}

async function shell() {
  const bar = h(
    "header",
    { class: "bar" },
    h("a", { class: "brand", href: "/", onclick: (event) => follows(event, "/") }, h("img", { src: "/icon.svg", alt: "", width: 22, height: 22 }), "ingero"),
    h("nav", { "aria-label": "Pages" }, links),
    h("div", { class: "controls" }, othersField, nodeField, tenants.element, range.element, live, themeSwitch(), (await fetch("/session")).status === 204 ? signOut() : null),
  );
  replace(document.getElementById("shell"), bar, note, main);
}

function showPage() {
  const found = PAGES.find((page) => page.path === location.pathname) ?? PAGES[0];
  links.forEach((link, at) => {
    link.href = address(PAGES[at].path);
    if (PAGES[at] === found) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else link.removeAttribute("aria-current");
  });
  document.title = `${found.title} · ingero`;
  tenants.offer(!found.everybody);
  if (shown?.path !== found.path) {
    shown?.page.stop?.();
    const page = found.make();
    shown = { path: found.path, page };
    replace(main, page.element);
    main.scrollTop = 0;
  }
  shown.page.show(recordings);
}

function chooseNode() {
  note.textContent = "";
  change({ node: nodes.value });
}

// Another machine has nodes and times of its own.
function elsewhere(fleet) {
  change({ fleet, node: "", since: "", from: "", to: "", ...nobodyElse() });
}

// The machines that can be asked through this server; those that do not answer say why.
async function learnOthers() {
  let found;
  try {
    found = await ask("fleet", { fleet: "" });
  } catch {
    return; // of an older version, or it cannot be told now: this machine is shown
  }
  othersField.hidden = found.nodes.length === 0;
  replace(
    others,
    h("option", { value: "" }, "this one"),
    found.nodes.map((each) =>
      h("option", { value: each.address, disabled: !each.answered, title: each.why ?? "" }, each.answered ? named(each) : `${named(each)}: ${each.problem}`),
    ),
  );
  others.value = place().fleet ?? "";
}

// The page of all nodes is the collector's: another server, where one signs in by oneself.
async function learnCollector() {
  let found;
  try {
    found = await ask("collector", { fleet: "" });
  } catch {
    return;
  }
  if (!URL.canParse(found.page) || new URL(found.page).protocol !== "https:") return;
  document.querySelector("nav").append(h("a", { href: found.page, target: "_blank", rel: "noopener noreferrer" }, "Fleet"));
}

function named(each) {
  return each.nodes.length === 1 ? each.nodes[0] : each.address;
}

// False: there is nothing to show, or another machine or node was chosen meanwhile.
async function learn() {
  const of = where();
  try {
    const found = await ask("recordings", asked());
    if (of !== where()) return false;
    recordings = found;
  } catch (error) {
    if (of !== where()) return false;
    if (error.status === 404 && place().node) {
      note.textContent = `There is no node ${place().node} in this recording: all of it is shown.`;
      return change({ node: "" });
    }
    if (error.status === 404 && place().fleet) return elsewhere("");
    recordings = null;
    range.element.hidden = true; // of nothing there are no parts
    shown?.page.stop?.();
    shown = null;
    replace(main, failure(error, "h1"));
    return false;
  }
  const several = recordings.nodes.length > 1;
  nodeField.hidden = !several;
  replace(
    nodes,
    h("option", { value: "" }, `all ${recordings.nodes.length} nodes`),
    recordings.nodes.map((name) => h("option", { value: name }, name)),
  );
  nodes.value = place().node ?? "";
  others.value = place().fleet ?? "";
  range.element.hidden = false;
  range.show(recordings);
  tenants.learn();
  return true;
}

// A recording goes on when its last record is new, or when somebody writes into it without having ended it.
function goesOn() {
  const open = recordings?.recordings.some((each) => each.ended_ns === null);
  return Boolean(recordings?.live || (open && Date.now() - changed_ms < WRITTEN_MS));
}

function liveState(connected) {
  const state = !connected ? "away" : !recordings ? "none" : goesOn() ? "live" : "ended";
  const last = recordings ? moment(recordings.window.to_ns) : "";
  live.dataset.state = state;
  live.textContent = { away: "not connected", none: "no recording", live: "live", ended: "ended" }[state];
  live.title = {
    away: "The server does not answer; trying again.",
    none: "There is no recording that can be read.",
    live: "The recording grows, and so does this page.",
    ended: `The recording ended ${last}.`,
  }[state];
  clearTimeout(looking);
  if (state === "live") looking = setTimeout(refresh, WRITTEN_MS);
}

async function refresh() {
  if (await learn()) {
    liveState(true);
    showPage();
  }
}

onPlace((quiet) => {
  if (quiet) {
    range.show(recordings);
    links.forEach((link, at) => {
      link.href = address(PAGES[at].path);
    });
  } else refresh();
});
await shell();
learnOthers();
learnCollector();
await refresh();
follow(() => {
  changed_ms = Date.now();
  refresh();
}, liveState);
