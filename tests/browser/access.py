"""Whether everybody can read a page: what axe-core says of it, and what no page may show."""

from __future__ import annotations

from playwright.sync_api import Page

BAD = ("undefined", "[object", "NaN")
RUN = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  const where = (each) => each.nodes.slice(0, 3).map((node) => node.html).join(" ");
  return found.violations.map((each) => `${each.id}: ${where(each)}`);
}"""


def look(page: Page, axe: str) -> None:
    """Nothing on it that cannot be read, reached or understood."""
    text = page.locator("body").inner_text()
    found = [f"shows {bad}" for bad in BAD if bad in text]
    wide = page.evaluate("document.documentElement.scrollWidth")
    if page.viewport_size and wide > page.viewport_size["width"]:
        found.append(f"{wide} pixels wide")
    page.evaluate(axe)
    found += page.evaluate(RUN)
    assert not found, (page.url, page.viewport_size, found)
