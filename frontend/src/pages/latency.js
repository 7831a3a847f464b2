// How long calls took, over time: one map for each operation, dark where most calls are.

import { ask } from "../api.js";
import { theme } from "../colours.js";
import { h, replace, sized } from "../dom.js";
import { clock, count, duration } from "../format.js";
import { asking } from "../parts.js";
import { askedOf, go } from "../place.js";
import { COLUMNS } from "../words.js";

const HEIGHT = 132;
const LEFT = 58;
const BOTTOM = 18;

export function latencyPage() {
  const filter = h("input", { type: "search", placeholder: "filter operations", "aria-label": "Filter operations", oninput: () => last && render(last) });
  const maps = h("div", { class: "maps" });
  const element = h("div", { class: "page latency" }, h("div", { class: "toolbar" }, h("h1", {}, "Latency"), filter, h("span", { class: "muted small" }, "Left to right is time, upwards is slower; darker means more calls. Click one to see that moment on the timeline.")), maps);
  const tip = h("div", { class: "tip", hidden: true, role: "tooltip" });
  element.append(tip);
  let last = null;
  const page = asking(maps, (signal) => ask("heatmap", { ...askedOf(), limit: 30 }, signal), render);

  function render(answer) {
    last = answer;
    const several = new Set(answer.operations.map((each) => each.node)).size > 1;
    const wanted = filter.value.trim().toLowerCase();
    const shown = answer.operations.filter((each) => each.op.toLowerCase().includes(wanted));
    replace(maps, shown.length ? shown.map((each) => map(each, answer, tip, several)) : h("p", { class: "panel" }, answer.operations.length ? "No operation has that name." : "No call was recorded in that time."));
    for (const canvas of maps.querySelectorAll("canvas")) canvas.paint();
  }
  const again = () => last && render(last);
  const watcher = new ResizeObserver(() => {
    for (const canvas of maps.querySelectorAll("canvas")) canvas.paint();
  });
  watcher.observe(maps);
  return {
    element,
    show: page.show,
    recolour: again,
    stop() {
      page.stop();
      watcher.disconnect();
    },
  };
}

function map(each, answer, tip, several) {
  const canvas = h("canvas", { role: "img", "aria-label": `${each.op}${several ? ` on ${each.node}` : ""}: ${calls(each)} calls, half of them under ${duration(each.p50_ns)}, one in a hundred over ${duration(each.p99_ns)}` });
  const geometry = { wide: 0, cell: 0, tall: 0, low: 0, rows: 0 };
  const cells = new Map(each.column.map((column, at) => [`${column} ${each.row[at]}`, each.calls[at]]));
  canvas.paint = () => paint(canvas, each, answer, geometry);
  canvas.addEventListener("pointermove", (event) => hover(event, each, answer, geometry, cells, tip));
  canvas.addEventListener("pointerleave", () => (tip.hidden = true));
  canvas.addEventListener("click", (event) => {
    const column = Math.floor((event.offsetX - LEFT) / geometry.cell);
    if (column < 0 || column >= answer.columns) return;
    const from = answer.window.from_ns + column * answer.column_ns;
    go("/timeline", { since: "", from: String(BigInt(from)), to: String(BigInt(from + answer.column_ns)) });
  });
  return h(
    "section",
    { class: "panel map" },
    h("header", {}, h("h2", {}, each.op), h("span", { class: "muted" }, several ? `${each.layer} · ${each.node}` : each.layer)),
    h("p", { class: "numbers" }, number("calls", calls(each)), number("p50", duration(each.p50_ns)), number("p99", duration(each.p99_ns)), number("max", duration(each.max_ns)), number("in all", duration(each.sum_ns))),
    canvas,
  );
}

// An estimate is marked as one, as in the terminal.
const calls = (each) => `${each.exact ? "" : "~"}${count(each.count)}${each.count_error ? (2 * each.count_error > each.count ? " rough" : ` ±${count(each.count_error)}`) : ""}`;

const number = (name, value) => h("span", { title: COLUMNS[name === "calls" ? "count" : name] }, h("i", {}, name), value);

function paint(canvas, each, answer, geometry) {
  const wide = Math.max(canvas.parentElement.clientWidth - 24, 160);
  const context = sized(canvas, wide, HEIGHT);
  const low = Math.max(0, Math.min(...each.row) - 1);
  const high = Math.min(answer.row_ns.length - 1, Math.max(...each.row) + 2);
  const rows = Math.max(high - low, 1);
  const cell = (wide - LEFT) / answer.columns;
  const tall = (HEIGHT - BOTTOM) / rows;
  Object.assign(geometry, { wide, cell, tall, low, rows });
  const most = Math.log1p(each.calls.reduce((so_far, calls) => Math.max(so_far, calls), 1));
  context.fillStyle = theme("heat");
  each.column.forEach((column, at) => {
    context.globalAlpha = 0.12 + 0.88 * (Math.log1p(each.calls[at]) / most);
    context.fillRect(LEFT + column * cell, HEIGHT - BOTTOM - (each.row[at] - low + 1) * tall, Math.max(cell - 0.5, 0.5), Math.max(tall - 0.5, 0.5));
  });
  context.globalAlpha = 1;
  labels(context, answer, geometry);
}

function labels(context, answer, { wide, tall, low, rows }) {
  context.fillStyle = theme("muted");
  context.font = "10px system-ui, sans-serif";
  context.textAlign = "right";
  context.textBaseline = "middle";
  const every = Math.max(1, Math.ceil(rows / 5));
  for (let row = 0; row <= rows; row += every) {
    const y = HEIGHT - BOTTOM - row * tall;
    context.fillText(duration(Math.max(answer.row_ns[low + row] ?? 0, 1)), LEFT - 6, Math.max(y, 6));
  }
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
  context.fillText(clock(answer.window.from_ns), LEFT, HEIGHT - 4);
  context.textAlign = "right";
  context.fillText(clock(answer.window.to_ns), wide, HEIGHT - 4);
}

function hover(event, each, answer, { cell, tall, low }, calls, tip) {
  const column = Math.floor((event.offsetX - LEFT) / cell);
  const row = low + Math.floor((HEIGHT - BOTTOM - event.offsetY) / tall);
  const found = calls.get(`${column} ${row}`);
  tip.hidden = found === undefined;
  if (tip.hidden) return;
  const upper = answer.row_ns[row + 1];
  replace(tip, h("b", {}, `${count(found)} calls`), h("div", {}, `${duration(answer.row_ns[row])} to ${upper === undefined ? "longer" : duration(upper)}`), h("div", { class: "muted" }, `from ${clock(answer.window.from_ns + column * answer.column_ns)}`));
  tip.style.setProperty("left", `${Math.min(event.clientX + 12, window.innerWidth - 180)}px`);
  tip.style.setProperty("top", `${event.clientY + 14}px`);
}
