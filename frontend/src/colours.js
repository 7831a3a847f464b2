// What things look like, from the style sheet: so that light and dark need one list each.

import { cssColour } from "./dom.js";

const kept = new Map();

export function forgetColours() {
  kept.clear();
}

function colour(name) {
  if (!kept.has(name)) kept.set(name, cssColour(name));
  return kept.get(name);
}

export const bucketColour = (bucket) => colour(`--b-${bucket.replaceAll("_", "-")}`) || colour("--b-unexplained");
export const severityColour = (severity) => colour(`--s-${severity.toLowerCase()}`);

// Dark or light letters, whichever can be read on a severity's colour.
export function inkOn(severity) {
  const digits = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})$/i.exec(severityColour(severity).trim());
  if (!digits) return theme("on-slice");
  const [red, green, blue] = digits.slice(1).map((each) => (parseInt(each, 16) / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.19 ? "#10151a" : "#ffffff";
}

export const theme = (name) => colour(`--${name}`);

const LAYERS = { runtime: "c-runtime", driver: "c-driver", graph: "c-graph", nccl: "c-nccl", python: "c-python" };
const SYNC = /synchroni|wait/i;
const COPY = /memcpy|memset|memprefetch/i;
const ALLOCATE = /alloc|free/i;
const LAUNCH = /launch/i;

// A call by what it does, which says more than the layer it belongs to.
export function callColour(name, layer) {
  if (layer === "wait") return bucketColour(name);
  if (layer === "label") return colour("--c-label");
  if (layer === "nccl") return colour("--c-nccl");
  if (SYNC.test(name)) return colour("--c-sync");
  if (COPY.test(name)) return colour("--c-copy");
  if (ALLOCATE.test(name)) return colour("--c-alloc");
  if (layer === "graph") return colour("--c-graph");
  if (LAUNCH.test(name)) return colour("--c-launch");
  return colour(`--${LAYERS[layer] ?? "c-other"}`);
}

// The same name has the same colour everywhere: warm for Python, cool for native code.
export function frameHue(name, kind) {
  let sum = 0;
  for (let at = 0; at < name.length; at += 1) sum = (sum * 31 + name.charCodeAt(at)) % 997;
  const [from, wide] = { python: [20, 36], native: [205, 40], op: [150, 20], process: [265, 20] }[kind] ?? [0, 1];
  return { hue: from + (sum % wide), plain: kind === "other" || kind === "note" };
}
