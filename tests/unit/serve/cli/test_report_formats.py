"""Reports for tickets: Markdown and HTML that hold everything and execute nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ingero.errors import UsageError
from ingero.model.finding import Fix, Proof, SourceLine, Who
from ingero.serve.cli.as_html import as_html
from ingero.serve.cli.as_markdown import as_markdown, escape
from ingero.serve.cli.diagnosis import Verbosity, diagnosis
from ingero.serve.cli.output import write_file
from ingero.serve.cli.per_process import breakdown
from tests.builders import cause, finding, lossy, process_report, report

HOSTILE = (
    "</title></style><script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
    "|`*_[a](http://b)@team #12\u202e"
)


ATTRIBUTES = {"lang", "charset", "name", "content", "http-equiv", "class", "style", "role", "aria-label"}
ATTRIBUTES |= {"title"}


class Page(HTMLParser):
    """Which elements and attributes a page has, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.values: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.values += [value or "" for _, value in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def bad_report() -> object:
    return report(
        finding(
            HOSTILE,
            comm=HOSTILE,
            source=SourceLine(HOSTILE, 1, HOSTILE),
            causes=[cause(HOSTILE, 1.0, who=[Who(1, HOSTILE, 5)], evidence=[Proof(HOSTILE, HOSTILE)])],
            fix=[Fix(HOSTILE, HOSTILE + "```")],
        ),
        node=HOSTILE,
        processes=[
            process_report(comm=HOSTILE, cmdline=HOSTILE, time={HOSTILE: 1, "gpu_wait": 2}, threads_ns=3)
        ],
    )


def test_html_is_one_page_that_loads_and_runs_nothing() -> None:
    for make in (diagnosis, breakdown):
        text = as_html(make(bad_report(), Verbosity(verbose=True, show_sql=True)))  # type: ignore[arg-type]
        page = Page(text)
        assert page.open == []
        assert not page.tags & {"script", "img", "link", "iframe", "a", "base", "object"}
        assert page.attributes <= ATTRIBUTES
        assert "<script>alert(1)</script>" in page.text
        assert not [
            value for value in page.values if "url(" in value or ("http:" in value and "b)" not in value)
        ]
        assert "default-src 'none'" in text
        assert "\u202e" not in text


def test_html_works_on_a_phone_and_in_the_dark() -> None:
    text = as_html(diagnosis(report(finding()), Verbosity()))
    assert 'name="viewport"' in text
    assert "prefers-color-scheme: dark" in text
    assert "width:45.0%" in text
    page = Page(text)
    for part in (
        "HIGH",
        "taskset -cp 0-5 100",
        "forward() at /home/a/train.py:142",
        "waiting for the GPU 45.0 %",
    ):
        assert part in page.text, part


def test_markdown_holds_the_diagnosis() -> None:
    text = as_markdown(diagnosis(report(finding(), **lossy()), Verbosity()))
    for part in (
        "# Diagnosis of gpu-node-01",
        "## HIGH: Another process takes the CPU",
        "- **Effect**: python (100): step 62 ms → 110 ms",
        "| waiting for the GPU | 45.0 % |",
        "```sh\ntaskset -cp 0-5 100\n```",
        "ring\\_call 12",
    ):
        assert part in text, part


def test_markdown_of_hostile_names_is_text() -> None:
    text = as_markdown(diagnosis(bad_report(), Verbosity(verbose=True, show_sql=True)))  # type: ignore[arg-type]
    outside = re.sub(r"^(`{3,})\w+\n.*?\n\1$", "", text, flags=re.M | re.S)
    assert "script" in outside
    assert "```" not in outside
    assert not re.search(r"<(?!!-- -->)", outside)
    assert not re.search(r"(?<!\\)[\]|`_](?!$| |\n)", outside.replace("| ", " ").replace("\n|", "\n"))
    assert "@team" not in outside
    assert "http://" not in outside
    assert re.search(r"^````(sh|python)$", text, re.MULTILINE)  # the fence is longer than the one inside


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a|b", "a\\|b"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("`x` *y* [z](u)", "\\`x\\` \\*y\\* \\[z\\](u)"),
        ("- x", "\\- x"),
        ("12. x", "12\\. x"),
        ("@team", "@<!-- -->team"),
        ("see #12", "see #<!-- -->12"),
        ("http://x", "http:<!-- -->//x"),
        ("gpu_wait", "gpu\\_wait"),
        ("45.0 %", "45.0 %"),
    ],
)
def test_markdown_escapes_what_would_mean_something(text: str, written: str) -> None:
    assert escape(text) == written


def test_a_file_is_written_whole_private_and_never_through_a_link(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_file(path, "one")
    write_file(path, "two\ud800")
    assert path.read_text() == "two?"
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "folder").mkdir()
    for other in (
        tmp_path / "link",
        tmp_path / "folder",
        tmp_path / "missing" / "x",
        tmp_path / "\0",
        Path("/dev/null"),
    ):
        with pytest.raises(UsageError):
            write_file(other, "three")
    assert path.read_text() == "two?"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "link", "report.html"]
