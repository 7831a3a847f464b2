// Numbers as people read them.

const STEPS = [
  [1e9 * 86400, "d"],
  [1e9 * 3600, "h"],
  [1e9 * 60, "min"],
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

export function duration(ns) {
  if (ns === null || ns === undefined) return "unknown";
  if (ns === 0) return "0";
  const size = Math.abs(ns);
  const [unit, name] = STEPS.find(([least]) => size >= least) ?? [1, "ns"];
  return `${significant(ns / unit)} ${name}`;
}

function significant(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2).replace(/\.0+$|(\.\d*[1-9])0+$/, "$1");
}

export function bytes(value) {
  if (value === null || value === undefined) return "unknown";
  const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  let left = value;
  while (Math.abs(left) >= 1024 && at < names.length - 1) {
    left /= 1024;
    at += 1;
  }
  return `${significant(left)} ${names[at]}`;
}

export function count(value) {
  return value === null || value === undefined ? "unknown" : Math.round(value).toLocaleString("en");
}

export function share(value) {
  if (value === null || value === undefined) return "unknown";
  const percent = value * 100;
  return `${percent >= 10 || percent === 0 ? percent.toFixed(0) : percent.toFixed(1)} %`;
}

export function measure(value, unit) {
  if (value === null || value === undefined) return "unknown";
  if (unit === "share") return share(value);
  if (unit === "bytes") return bytes(value);
  if (unit === "bytes/s") return `${bytes(value)}/s`;
  if (unit === "ns") return duration(value);
  return `${significant(value)} ${unit}`.trim();
}

const two = (value) => String(value).padStart(2, "0");

// The time of day, `after` nanoseconds later; `fine` is the length that is looked at, which says how many digits
// matter. A number holds an instant to a quarter of a microsecond only: what is finer comes in `after`.
export function clock(ns, fine = 1e12, after = 0) {
  const date = new Date((ns + after) / 1e6);
  const base = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  if (fine >= 20e9) return base;
  const within = (((ns % 1e9) + after) % 1e9 + 1e9) % 1e9;
  const digits = fine >= 2e8 ? 3 : fine >= 2e5 ? 6 : 9;
  return `${base}.${String(Math.floor(within)).padStart(9, "0").slice(0, digits)}`;
}

export function day(ns) {
  const date = new Date(ns / 1e6);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

export function moment(ns) {
  return `${day(ns)} ${clock(ns)}`;
}

// For an input of type datetime-local.
export function local(ns) {
  return `${day(ns)}T${clock(ns)}`;
}

export function baseName(path) {
  return path.split("/").pop();
}
