"""The files of the repository, for tests that hold them to rules."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src"
MADE = {
    ".git",
    ".venv",
    "build",
    "dist",
    "__pycache__",
    ".hypothesis",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
}


@cache
def files() -> tuple[Path, ...]:
    """What a clone would have: not ignored, still there."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        found = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:  # an unpacked archive
        found = [path for path in ROOT.rglob("*") if not MADE & set(path.relative_to(ROOT).parts)]
    return tuple(sorted(path for path in found if path.is_file()))


def under(folder: str, *suffixes: str) -> list[Path]:
    top = ROOT / folder
    return [path for path in files() if top in path.parents and (not suffixes or path.suffix in suffixes)]


@cache
def parsed(text: str) -> ast.Module:
    """Several tests look at the same modules: each is parsed once. Nobody may change it."""
    return ast.parse(text)


@cache
def nodes(text: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parsed(text)))


def dotted(node: ast.AST) -> str:
    """`a.b.c`, and `.c` of what is no name: ast.unparse takes a hundred times as long."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
