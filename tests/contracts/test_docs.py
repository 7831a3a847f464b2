"""The documentation is complete: what exists has its sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ingero.agent import annotations as socket_words
from ingero.agent import library_files
from ingero.model.layout import Bucket, Loss
from ingero.model.live import UNREAD
from ingero.model.operations import Source
from ingero.model.options import SOURCES
from ingero.serve.cli.main import COMMANDS
from ingero.store import names, processes
from ingero.store.writer import BACKLOG_LOSS
from tests.contracts.tree import ROOT, files, name, under

DOCS = ROOT / "docs"
CHANGE_NAME = re.compile(r"[a-z0-9-]+\.(added|changed|fixed|removed)\.md")
ADR_HEADINGS = ["## Context", "## Decision", "## What we give up", "## What would change our mind"]
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


def read(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def table_keys(page: str) -> set[str]:
    """What the first cell of a table row names in code type."""
    return set(re.findall(r"^\| `([^`]+)` \|", read(page), re.M))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_section(command: str) -> None:
    assert f"\n## {command}\n" in read("commands.md")


def test_every_reason_for_a_loss_is_explained() -> None:
    header = (ROOT / "probes/wire.h").read_text()
    reasons = {word.lower() for word in re.findall(r"\bLOSS_([A-Z_]+),", header)}
    assert reasons == {loss.name.removeprefix("LOSS_").lower() for loss in Loss if loss is not Loss.LOSSES}
    assert reasons - table_keys("accounting.md") == set()


def test_every_loss_that_the_agent_counts_is_explained() -> None:
    reasons = {UNREAD, library_files.LOSS, names.LOSS, processes.LOSS, BACKLOG_LOSS}
    assert reasons - table_keys("accounting.md") == set()


def test_the_threat_model_names_the_limits_that_hold() -> None:
    text = " ".join((ROOT / "SECURITY.md").read_text(encoding="utf-8").split())
    assert f"can have {library_files.PER_OWNER} library files probed" in text
    assert f"can bring {names.PER_PROCESS} new names" in text
    labels = " ".join(read("annotate.md").split())
    assert f"{socket_words.KEYS_PER_PROCESS} different keys, a user {socket_words.KEYS_PER_USER}" in labels


def test_every_reason_why_something_was_not_imported_is_explained() -> None:
    sources = " ".join(path.read_text() for path in under("src/ingero/store/foreign", ".py"))
    named = re.findall(r'problems\["([a-z_]+)"(?: if \w+ else "([a-z_]+)")?\]', sources)
    reasons = {reason for pair in named for reason in pair if reason}
    assert len(reasons) == 10
    assert reasons - table_keys("imported-recordings.md") == set()


def test_every_bucket_is_explained() -> None:
    buckets = {bucket.name.lower() for bucket in Bucket if bucket is not Bucket.BUCKETS} | {"lost"}
    assert buckets - table_keys("accounting.md") == set()


def test_every_source_is_explained() -> None:
    assert set(SOURCES) - table_keys("kernel-support.md") == set()
    numbers = set(re.findall(r"\b(\d) [A-Za-z]", read("schema.md")))
    assert {str(int(source)) for source in Source} - numbers == set()


def test_every_probe_object_is_explained() -> None:
    loaded = {path.name.removesuffix(".bpf.c") for path in under("probes") if path.name.endswith(".bpf.c")}
    page = (ROOT / "probes/README.md").read_text(encoding="utf-8")
    assert not [probe for probe in loaded if f"`{probe}.bpf.c`" not in page]


def test_every_change_is_one_sentence_or_a_few_with_a_kind() -> None:
    for path in under("changes"):
        if path.name == "README.md":
            continue
        assert CHANGE_NAME.fullmatch(path.name), path.name
        text = path.read_text(encoding="utf-8").strip()
        assert text.endswith("."), path.name
        assert "\n\n" not in text, path.name
        assert len(text) <= 400, path.name


def test_every_decision_record_has_its_four_parts_and_its_own_number() -> None:
    records = sorted((DOCS / "adr").glob("*.md"))
    numbers = [path.name[:4] for path in records]
    assert len(set(numbers)) == len(numbers)
    for path in records:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith(f"# {int(path.name[:4])}. "), name(path)
        assert [line for line in lines if line.startswith("## ")] == ADR_HEADINGS, name(path)


def pages() -> list[Path]:
    return [path for path in files() if path.suffix == ".md"]


@pytest.mark.parametrize("page", pages(), ids=name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert not [link for link in links if not (page.parent / link).exists()]


def test_every_make_target_says_what_it_does() -> None:
    text = (ROOT / "Makefile").read_text()
    wanted = [
        "help",
        "setup",
        "build",
        "demo",
        "check",
        "test",
        "test-ebpf",
        "test-shapes",
        "bench",
        "layout",
        "clean",
    ]
    assert not [target for target in wanted if not re.search(rf"^{target}:.*## \w", text, re.M)]
