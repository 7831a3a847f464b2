// The cards' own counters: busy, memory, clock, power, heat, and why a clock was held down.

import uPlot from "uplot";

import { ask } from "../api.js";
import { theme } from "../colours.js";
import { h, replace } from "../dom.js";
import { bytes, clock, measure, share } from "../format.js";
import { asking, table } from "../parts.js";
import { asked } from "../place.js";

const HEIGHT = 110;
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power); // steps of an axis of bytes
const HARMLESS = new Set(["gpu_idle", "applications_clocks_setting", "display_clock_setting"]);

export function gpusPage() {
  const body = h("div");
  const element = h("div", { class: "page gpus" }, h("div", { class: "toolbar" }, h("h1", {}, "GPUs")), body);
  let last = null;
  let charts = [];
  const page = asking(body, (signal) => ask("gpus", asked(), signal), render);
  const watcher = new ResizeObserver(() => {
    for (const chart of charts) chart.setSize({ width: widthOf(chart.root.parentElement), height: HEIGHT });
  });
  watcher.observe(body);

  function render(answer) {
    last = answer;
    for (const chart of charts) chart.destroy();
    charts = [];
    if (!answer.gpus.length) {
      replace(body, h("section", { class: "panel", id: "gpus-not-watched" }, h("h2", {}, "Not covered"), h("p", {}, answer.not_watched ?? "No GPU was seen.")));
      return;
    }
    replace(body, answer.gpus.map((gpu) => card(gpu, answer)));
    for (const place of body.querySelectorAll(".chart")) charts.push(place.draw());
  }

  return {
    element,
    show: page.show,
    recolour: () => last && render(last),
    stop() {
      page.stop();
      watcher.disconnect();
      for (const chart of charts) chart.destroy();
    },
  };
}

function card(gpu, answer) {
  const held = Object.entries(gpu.throttled).filter(([reason]) => !HARMLESS.has(reason));
  return h(
    "section",
    { class: "panel gpu" },
    h("header", {}, h("h2", {}, `GPU ${gpu.gpu_id}`), h("span", {}, gpu.name), h("span", { class: "muted" }, [gpu.node, gpu.memory_bytes ? bytes(gpu.memory_bytes) : null, gpu.driver ? `driver ${gpu.driver}` : null].filter(Boolean).join(" · "))),
    held.length ? h("p", { class: "warning" }, `Clock held down: ${held.map(([reason, part]) => `${reason.replaceAll("_", " ")} ${share(part)} of the time`).join(", ")}.`) : null,
    h("div", { class: "charts" }, gpu.series.map((series) => chartOf(series, gpu, answer))),
    gpu.processes.length
      ? table("Processes on it", [["process", ""], ["memory", "number"], ["busy", "number"]], gpu.processes.map((each) => [`${each.comm ?? "?"} (${each.pid})`, bytes(each.memory_bytes), share(each.busy_share)]))
      : null,
  );
}

function chartOf(series, gpu, answer) {
  const place = h("div", { class: "chart", role: "img", "aria-label": `${series.title}: mean ${measure(series.mean, series.unit)}, highest ${measure(series.highest, series.unit)}` });
  place.draw = () => {
    const seconds = gpu.at_ns.map((at) => (answer.window.from_ns + at) / 1e9);
    return new uPlot(options(series, widthOf(place)), [seconds, series.values], place);
  };
  return h("figure", {}, h("figcaption", {}, h("b", {}, series.title), ` mean ${measure(series.mean, series.unit)}, highest ${measure(series.highest, series.unit)}`), place);
}

const widthOf = (place) => Math.max(place.clientWidth, 200);

function options(series, width) {
  const axis = { stroke: theme("muted"), grid: { stroke: theme("grid"), width: 1 }, ticks: { show: false }, font: "10px system-ui, sans-serif" };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false },
    scales: { y: series.unit === "share" ? { range: [0, 1] } : { range: (_, low, high) => [Math.min(low, 0), high * 1.05 || 1] } },
    axes: [{ ...axis, size: 24, space: 80, values: (_, values) => values.map((value) => clock(value * 1e9)) }, { ...axis, size: 62, incrs: series.unit.startsWith("bytes") ? POWERS : undefined, values: (_, values) => values.map((value) => measure(value, series.unit)) }],
    series: [{}, { stroke: theme("counter"), fill: theme("counter-fill"), width: 1.5, points: { show: false } }],
  };
}
