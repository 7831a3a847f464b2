"""What may be in the tree: nothing of the machine it was written on, nothing too large."""

from __future__ import annotations

import re

from tests.contracts.tree import ROOT, files, name, under

# Written in pieces, so that this file does not contain what it forbids.
HOSTS = ("pypi" + r"\.org", "python" + r"hosted\.org", "npm" + r"js\.(org|com)", "deb\\.deb" + r"ian\.org")
PLACES = (r"(?<![\w.}/-])/wo" + r"rk(?![\w-])", r"(?<![\w.}/-])/ro" + r"ot/", r"/tmp/d" + r"ev\b")
FORBIDDEN = re.compile("|".join((*HOSTS, *PLACES)))
TEXT = {"", ".py", ".pyi", ".c", ".h", ".md", ".toml", ".txt", ".sh", ".build", ".yaml", ".yml", ".json"}

LONGEST = 500
# One thing each, and longer than the rest; the layout is written by `make layout`.
LONG_ONES = {"src/ingero/model/layout.py", "src/ingero/native/_shim.c", "tests/workloads/waits/stage.py"}
OBJECTS = {".o", ".so", ".a", ".db", ".whl", ".gif", ".pyc"}


def test_no_file_names_a_registry_or_a_place_on_somebodys_machine() -> None:
    found = [
        f"{name(path)}:{number}: {line.strip()[:100]}"
        for path in files()
        if path.suffix in TEXT
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if FORBIDDEN.search(line)
    ]
    assert not found, "\n".join(found)


def test_no_module_is_longer_than_it_should_be() -> None:
    folders = ("src", "probes", "tests", "tools")
    sources = [
        path
        for folder in folders
        for path in under(folder)
        if path.suffix in TEXT and path.name not in ("package-lock.json", "verdicts.json")
    ]
    long = {name(path) for path in sources if len(path.read_text(encoding="utf-8").splitlines()) > LONGEST}
    assert long == LONG_ONES


def test_no_built_object_or_recording_is_in_the_tree() -> None:
    assert not [name(path) for path in files() if path.suffix in OBJECTS]


def test_no_module_has_a_name_that_says_nothing() -> None:
    empty = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
    assert not [name(path) for path in files() if path.stem in empty]


def test_every_python_module_begins_by_saying_what_it_is() -> None:
    silent = [
        name(path)
        for path in under("src", ".py")
        if (text := path.read_text(encoding="utf-8")).strip() and not text.startswith('"""')
    ]
    assert not silent


def test_every_folder_of_the_data_path_is_there() -> None:
    for stage in ("discover", "attach", "capture", "correlate", "store", "serve/answers", "serve/cli"):
        assert (ROOT / "src/ingero" / stage / "__init__.py").exists()
