// Numbers as people read them, to the digit as the terminal shows them (ingero/units.py): a number that is said in
// two places is the same in both.

const [US, MS, SECOND] = [1e3, 1e6, 1e9];
const [MINUTE, HOUR, DAY] = [60 * SECOND, 3600 * SECOND, 86400 * SECOND];
const LONG = [[DAY, "d"], [HOUR, "h"], [MINUTE, "min"]];
const SHORT = [[SECOND, "s"], [MS, "ms"], [US, "µs"], [1, "ns"]];
const SIZES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];

// toFixed rounds a half up, Python to the even digit: only a quarter, or a half, is one exactly.
function fixed(value, digits) {
  const whole = Math.floor(value);
  if (digits === 0 && value - whole === 0.5) return String(whole % 2 ? whole + 1 : whole);
  if (digits === 1 && value - whole === 0.25) return `${whole}.2`;
  return value.toFixed(digits);
}

function threeDigits(value) {
  return value >= 100 ? fixed(value, 0) : fixed(value, 1).replace(/\.0$/, "");
}

function scaled(value, scales) {
  const size = Math.abs(value);
  const [scale, unit] = scales.find(([least]) => size >= least * 0.9995) ?? scales.at(-1);
  return `${value < 0 ? "-" : ""}${threeDigits(size / scale)} ${unit}`;
}

export function duration(ns) {
  if (ns === null || ns === undefined) return "unknown";
  return scaled(ns, Math.abs(ns) >= 2 * MINUTE ? LONG : SHORT);
}

export function bytes(value) {
  return value === null || value === undefined ? "unknown" : scaled(value, SIZES);
}

export function count(value) {
  return value === null || value === undefined ? "unknown" : Number(fixed(value, 0)).toLocaleString("en");
}

export function share(value) {
  if (value === null || value === undefined) return "unknown";
  const percent = value * 100;
  if (percent > 0 && percent < 0.1) return "<0.1 %";
  return `${fixed(percent, percent >= 99.95 ? 0 : 1)} %`;
}

export function measure(value, unit) {
  if (value === null || value === undefined) return "unknown";
  if (unit === "share") return share(value);
  if (unit === "bytes") return bytes(value);
  if (unit === "bytes/s") return `${bytes(value)}/s`;
  if (unit === "ns") return duration(value);
  return `${threeDigits(value)} ${unit}`.trim();
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
