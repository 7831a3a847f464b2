// Changes of the database, as they happen. At most one every two seconds is passed on.

const EVERY_MS = 2000;

export function follow(onChange, onState) {
  let waiting = null;
  let last = 0;
  let first = true;
  const source = new EventSource("/api/v1/live");
  const pass = () => {
    waiting = null;
    last = Date.now();
    onChange();
  };
  source.addEventListener("changed", () => {
    onState(true);
    if (first) {
      first = false; // where things stand, not a change
      return;
    }
    if (waiting === null) waiting = setTimeout(pass, Math.max(0, last + EVERY_MS - Date.now()));
  });
  source.addEventListener("error", () => onState(false));
  window.addEventListener("pagehide", () => source.close());
}
