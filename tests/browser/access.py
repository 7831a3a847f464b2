"""Whether everybody can read a page: what axe-core says of it, and what no page may show.

Everything is looked at that somebody could come to see: what is folded away, what stands in attributes, what
fields hold, and what was written on a canvas.
"""

from __future__ import annotations

import re
from typing import Literal

from playwright.sync_api import BrowserContext, Page

DESK, PHONE = 1440, 390
Colours = Literal["light", "dark"]
LOOKS: tuple[tuple[int, Colours], ...] = ((DESK, "light"), (PHONE, "light"), (PHONE, "dark"), (DESK, "dark"))
JUDGED = (
    (DESK, "light"),
    (PHONE, "dark"),
)  # once at each width and in each list of colours: axe takes a second
BAD = re.compile(r"undefined|\[object|NaN|Infinity|(?<![\w/.-])null(?![\w-])")
AROUND = 60  # letters before and after, to find it by

# A canvas keeps no text, and draws nothing where a number is none: so what is asked of it is kept.
WATCH = """(() => {
  window.drawn = new Set();
  const pen = CanvasRenderingContext2D.prototype;
  for (const name of ["fillText", "fillRect", "strokeRect", "moveTo", "lineTo"]) {
    const own = pen[name];
    pen[name] = function (...given) {
      if (name === "fillText") window.drawn.add(String(given[0]));
      if (given.some((each) => Number.isNaN(each))) window.drawn.add(`${name}(NaN)`);
      return own.apply(this, given);
    };
  }
})()"""
# Two frames: what a change of size or colours draws anew is drawn.
SETTLE = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
UNFOLD = "() => document.querySelectorAll('details:not([open])').forEach((each) => (each.open = true))"
ALL_TEXT = """() => {
  const copy = document.documentElement.cloneNode(true);
  copy.querySelectorAll("script, style").forEach((each) => each.remove());
  const fields = [...document.querySelectorAll("input, textarea, select")].map((each) => each.value);
  return [copy.outerHTML, document.body.innerText, ...fields, ...(window.drawn ?? [])];
}"""
RUN = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  const where = (each) => each.nodes.slice(0, 3).map((node) => node.html).join(" ");
  return found.violations.map((each) => `${each.id}: ${where(each)}`);
}"""


def watch_canvases(context: BrowserContext) -> None:
    """Before a page of it is opened."""
    context.add_init_script(WATCH)


def look(page: Page, axe: str) -> None:
    """Nothing on it that cannot be read, reached or understood: on a desk and on a phone, light and dark."""
    for width, colours in LOOKS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=colours)
        page.evaluate(SETTLE)
        found = shown_badly(page)
        if (width, colours) in JUDGED:
            found += judged(page, axe)
        assert not found, (page.url, width, colours, found)


def shown_badly(page: Page) -> list[str]:
    page.evaluate(UNFOLD)
    found = [f"shows …{part}…" for part in sorted(set(bad_parts(page.evaluate(ALL_TEXT))))]
    wide = page.evaluate("document.documentElement.scrollWidth")
    if page.viewport_size and wide > page.viewport_size["width"]:
        found.append(f"{wide} pixels wide")
    return found


def bad_parts(texts: list[str]) -> list[str]:
    return [
        text[max(0, each.start() - AROUND) : each.end() + AROUND]
        for text in texts
        for each in BAD.finditer(text)
    ]


def judged(page: Page, axe: str) -> list[str]:
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe)
    found: list[str] = page.evaluate(RUN)
    return found
