"""What was tried on which kernel: a file that ships with ingero, and the table of docs/kernel-support.md."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any

FILE = Path("src/ingero/discover/tried_kernels.toml")
PAGE = Path("docs/kernel-support.md")
BEGIN, END = "<!-- tried: written by make test-kernels -->", "<!-- end of tried -->"
# What decides whether a kernel takes the probes.
JUDGED = ("probes", "src/ingero/native", "src/ingero/attach")
HEAD = "# Written by `make test-kernels`. `ingero check` warns on kernels of which none is here.\n"


def fingerprint(root: Path = Path()) -> str:
    """Of what was tried."""
    sums = hashlib.sha256()
    for folder in JUDGED:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".c", ".h", ".py", ".build"):
                sums.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return sums.hexdigest()[:16]


def load(root: Path = Path()) -> dict[str, Any]:
    path = root / FILE
    return tomllib.loads(path.read_text()) if path.exists() else {"kernel": []}


def outdated(root: Path = Path()) -> list[str]:
    """Kernels on which something else was tried than what is here now."""
    now = fingerprint(root)
    return [each["name"] for each in load(root)["kernel"] if each.get("fingerprint", now) != now]


def save(found: list[dict[str, Any]]) -> None:
    """Kernels that were not tried this time stay as they were."""
    new = {each["name"] for each in found}
    found = [{**each, "fingerprint": fingerprint()} for each in found]
    kept = [each for each in load()["kernel"] if each["name"] not in new]
    text = HEAD
    for each in sorted([*kept, *found], key=lambda one: str(one["name"])):
        lines = [f"{key} = {_toml(value)}" for key, value in each.items()]
        text += "\n[[kernel]]\n" + "\n".join(lines) + "\n"
    FILE.write_text(text)
    PAGE.write_text(with_table(PAGE.read_text()))


def _toml(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def with_table(page: str, root: Path = Path()) -> str:
    """The page with the table that belongs to the file."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = ["| kernel | release | processor | attach shapes | tried | |", "|---|---|---|---|---|---|"]
    for each in load(root)["kernel"]:
        failed = "; ".join(each["failed"])
        judged = f"failed: {failed}" if failed else "all tests passed"
        if not_there := ", ".join(each.get("not_there", [])):
            judged += f"; not there: {not_there}"
        rows.append(
            f"| {each['name']} | {each['release']} | {each['machine']} "
            f"| {', '.join(each['shapes'])} | {each.get('tried', '')} | {judged} |"
        )
    return f"{before}{BEGIN}\n" + "\n".join(rows) + f"\n{END}{after}"
