// Wheel, drag, pinch and keys, turned into moves of the view. `view` is an object with the calls used below.

const STEP = 0.15;

export function listen(canvas, view) {
  const pointers = new Map();
  let begun = null; // where a drag or pinch began
  let moved = false;

  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  canvas.addEventListener(
    "wheel",
    (event) => {
      if (view.quiet && !event.ctrlKey && !event.metaKey) return;
      const { x } = place(event);
      if (x < view.label() && !event.ctrlKey) {
        view.scroll(event.deltaY);
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        view.pan((event.deltaX || event.deltaY) / view.width());
      } else view.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), x);
      event.preventDefault();
    },
    { passive: false },
  );

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
    moved = false;
    const here = place(event);
    begun = { ...here, selecting: event.shiftKey || here.y < view.axis(), gap: gap(), middle: middle() };
    if (begun.selecting) view.select(here.x, here.x);
  });

  canvas.addEventListener("pointermove", (event) => {
    const here = place(event);
    if (!pointers.has(event.pointerId)) return view.hover(here.x, here.y);
    const last = pointers.get(event.pointerId);
    pointers.set(event.pointerId, here);
    if (Math.abs(here.x - begun.x) + Math.abs(here.y - begun.y) > 4) moved = true;
    if (pointers.size === 2) return pinch();
    if (!moved) return undefined;
    if (begun.selecting) return view.select(begun.x, here.x);
    view.pan((last.x - here.x) / view.width());
    return view.scroll(last.y - here.y);
  });

  const gap = () => {
    const [a, b] = [...pointers.values()];
    return b ? Math.max(20, Math.hypot(a.x - b.x, a.y - b.y)) : null;
  };
  const middle = () => {
    const all = [...pointers.values()];
    return all.reduce((sum, each) => sum + each.x, 0) / all.length;
  };

  function pinch() {
    const now = gap();
    if (begun.gap) {
      view.zoom(begun.gap / now, middle());
      view.pan((begun.middle - middle()) / view.width());
    }
    begun = { ...begun, gap: now, middle: middle(), selecting: false };
  }

  const ended = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    const here = place(event);
    if (begun?.selecting) view.selected(moved);
    if (!moved && event.type === "pointerup" && !begun?.selecting) view.click(here.x, here.y);
    if (pointers.size === 1) begun = { ...[...pointers.values()][0], selecting: false, gap: null, middle: middle() };
  };
  canvas.addEventListener("pointerup", ended);
  canvas.addEventListener("pointercancel", ended);
  canvas.addEventListener("pointerleave", () => view.hover(-1, -1));
  canvas.addEventListener("dblclick", (event) => view.zoom(0.4, place(event).x));
  canvas.addEventListener("keydown", (event) => {
    const act = KEYS[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act(view);
  });
}

const KEYS = {
  "+": (view) => view.zoom(0.6),
  "=": (view) => view.zoom(0.6),
  w: (view) => view.zoom(0.6),
  "-": (view) => view.zoom(1 / 0.6),
  s: (view) => view.zoom(1 / 0.6),
  ArrowLeft: (view) => view.pan(-STEP),
  a: (view) => view.pan(-STEP),
  ArrowRight: (view) => view.pan(STEP),
  d: (view) => view.pan(STEP),
  PageUp: (view) => view.scroll(-200),
  PageDown: (view) => view.scroll(200),
  Home: (view) => view.whole(),
  "0": (view) => view.whole(),
  ArrowDown: (view) => view.pickRow(1),
  ArrowUp: (view) => view.pickRow(-1),
  ".": (view) => view.pickNext(1),
  ",": (view) => view.pickNext(-1),
  Enter: (view) => view.openPicked(),
  Escape: (view) => view.escape(),
};
