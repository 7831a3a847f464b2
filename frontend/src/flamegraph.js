// A flame graph of boxes that can be zoomed, searched and reached by keys. On its page and in the shared report.

import { frameHue } from "./colours.js";
import { h, replace } from "./dom.js";
import { measure, share } from "./format.js";

const ROW = 20;
const NARROWEST = 1.5; // points; what is narrower cannot be seen
const NEARLY_ALL = 0.995; // without a stack: what is left says nothing of the whole

export function flameGraph() {
  const search = h("input", { type: "search", class: "flame-search", placeholder: "search frames", "aria-label": "Search frames", oninput: () => draw() });
  const found = h("span", { class: "muted small", role: "status" });
  const reset = h("button", { type: "button", class: "quiet", onclick: () => zoomTo(null) }, "Whole graph");
  const about = h("p", { class: "muted small" });
  const graph = h("div", { class: "flame-graph", role: "group", "aria-label": "Flame graph" });
  let answer = null;
  let path = []; // names from the root to what is zoomed to

  function render(given) {
    answer = given;
    about.textContent = `${answer.words}: ${measure(answer.root.value, answer.unit)}${answer.without_share ? `, ${share(answer.without_share)} without a stack` : ""}. Python frames have warm colours, native ones cool colours. Click a frame to zoom.`;
    draw();
  }

  function zoomTo(names) {
    path = names ?? [];
    draw();
  }

  // The nodes from the root to what is zoomed to, as far as they still exist.
  function zoomed() {
    const nodes = [answer.root];
    for (const name of path) {
      const next = nodes.at(-1).children.find((child) => child.name === name);
      if (!next) break;
      nodes.push(next);
    }
    return nodes;
  }

  function draw() {
    if (!answer) return;
    const wanted = search.value.trim().toLowerCase();
    const nodes = zoomed();
    const width = Math.max(graph.clientWidth, 200);
    const boxes = [];
    nodes.slice(0, -1).forEach((node, depth) => boxes.push({ node, depth, from: 0, to: 1, names: nodes.slice(1, depth + 1).map((each) => each.name), above: true }));
    spread(nodes.at(-1), nodes.length - 1, 0, 1, nodes.slice(1).map((each) => each.name), width, boxes);
    const deepest = boxes.reduce((so_far, box) => Math.max(so_far, box.depth), 0);
    graph.style.setProperty("height", `${(deepest + 1) * ROW}px`);
    const missing = none();
    replace(graph, missing ? h("p", {}, missing) : boxes.map((box) => shown(box, wanted)));
    found.textContent = wanted && answer.root.value ? `${share(matched(answer.root, wanted) / answer.root.value)} of it matches` : "";
  }

  function none() {
    if (!answer.root.value) return "Nothing of that kind was recorded with a stack.";
    if (answer.without_share < NEARLY_ALL) return "";
    const why = answer.what === "waits" ? " Waits for a core have no stack: the thread did not ask to wait." : "";
    return `There is no stack to show.${why}`;
  }

  function shown({ node, depth, from, to, names, above }, wanted) {
    const { hue, plain } = frameHue(node.name, node.kind);
    const text = `${node.name}: ${measure(node.value, answer.unit)}, ${share(node.value / answer.root.value)}`;
    return h(
      "button",
      {
        type: "button",
        class: ["box", plain ? "plain" : "", above ? "above" : "", wanted && node.name.toLowerCase().includes(wanted) ? "match" : ""].join(" "),
        title: `${text}${node.file ? `\n${node.file}${node.line ? `:${node.line}` : ""}` : ""}`,
        "aria-label": text,
        onclick: () => zoomTo(names),
        style: { left: `${from * 100}%`, width: `${(to - from) * 100}%`, top: `${depth * ROW}px`, "--hue": String(hue) },
      },
      node.name,
    );
  }

  const watcher = new ResizeObserver(() => draw());
  watcher.observe(graph);
  return { about, graph, tools: [search, reset, found], render, stop: () => watcher.disconnect() };
}

function spread(node, depth, from, to, names, width, boxes) {
  boxes.push({ node, depth, from, to, names });
  let at = from;
  for (const child of node.children) {
    const wide = (child.value / node.value) * (to - from);
    if (wide * width >= NARROWEST) spread(child, depth + 1, at, at + wide, [...names, child.name], width, boxes);
    at += wide;
  }
}

// The weight of what matches, counted once where a frame calls itself.
function matched(node, wanted) {
  if (node.name.toLowerCase().includes(wanted)) return node.value;
  return node.children.reduce((sum, child) => sum + matched(child, wanted), 0);
}
