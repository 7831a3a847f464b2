"""Pages of docs that are written from the code: configuration, commands, schema, glossary, detectors/.

`python -m ingero.serve.cli.reference docs` writes them; a test holds them against
what this module would write.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ingero import config
from ingero.model import words
from ingero.serve.answers import catalogue
from ingero.serve.answers.catalogue import Entry
from ingero.serve.answers.schema_page import schema_markdown
from ingero.serve.cli import glossary
from ingero.serve.cli.main import COMMANDS, ingero

WRITTEN_BY = "<!-- Written by `python -m ingero.serve.cli.reference docs`; do not edit. -->"
CONFIGURATION = """\
# Configuration

{written_by}

The first of these files that exists is read: the one named with `--config`, the one named in
`INGERO_CONFIG`, `./ingero.yaml`, `~/.config/ingero/ingero.yaml`, `/etc/ingero/ingero.yaml`.
A flag overrides a variable, a variable overrides the file, the file overrides the default.
A mistake is reported with its line; a key that is not listed here is a mistake. Booleans are
`true` and `false`. No key holds a secret. As root, a file that others can write is read only when
it is named.

Durations: `90s 5m 5min 1h 2d 1w 3d12h`. Sizes: `500m 10g`.

Two variables have no key: `INGERO_DB`, the database every command uses unless `-d` names one, and
`INGERO_CONFIG`. `NO_COLOR` switches colours off.
"""
COMMANDS_PAGE = """\
# Commands

{written_by}

Only `trace` needs privileges. Results go to standard output; messages and progress go to standard
error. An error is one line, `error: what failed`, and mostly a second one, `hint: what to do`.

| exit code | meaning |
|---|---|
| 0 | fine |
| 1 | a failure |
| 2 | wrong usage, or a mistake in the configuration |
| 3 | with `--exit-code`: findings exist |
| 130 | interrupted |

`trace -- COMMAND` passes the command's own exit code on.

`-d` is `--db` on every command that has a database: the path given, else `INGERO_DB`, else
`~/.ingero/ingero.db` of whoever called `sudo`; a demo keeps its recording in `INGERO_DB`
where that holds no job, else beside it as `demo.db`. Without `-d` and `INGERO_DB`, questions are about
whichever of the two was written last. `ingero schema --json` describes what
`--json` prints.
"""
# A value for every key that has no default, and for those where the default says little.
EXAMPLES = {
    "agent.node": "gpu-node-01",
    "trace.pid": "[4821]",
    "trace.user": "alice",
    "trace.container": "3f2a9c41d7be",
    "trace.duration": "1h",
    "log.file": "/var/log/ingero.log",
    "server.cert": "/etc/ingero/tls.crt",
    "server.key": "/etc/ingero/tls.key",
    "server.client_ca": "/etc/ingero/clients.crt",
    "server.token_file": "/etc/ingero/tokens",
    "server.allowed_hosts": "[gpu-node-01.example]",
    "prometheus.address": "127.0.0.1:9090",
    "otlp.endpoint": "collector.example:4318",
    "otlp.protocol": "http",
    "otlp.headers_file": "/etc/ingero/otlp-headers",
    "otlp.ca": "/etc/ingero/collector.crt",
    "otlp.client_cert": "/etc/ingero/otlp.crt",
    "otlp.client_key": "/etc/ingero/otlp.key",
    "kubernetes.kubelet": "https://127.0.0.1:10250",
    "cost.price": "2.49",
    "cost.prices": "{H100: 2.49, A100-SXM4-80GB: 1.85}",
    "fleet.nodes": "[gpu-node-01:8080, gpu-node-02:8080]",
    "fleet.ca_cert": "/etc/ingero/nodes-ca.crt",
    "fleet.client_cert": "/etc/ingero/me.crt",
    "fleet.client_key": "/etc/ingero/me.key",
    "fleet.token_file": "/etc/ingero/nodes-token",
    "collector.address": "https://collector.example:8443",
    "collector.cluster": "h200-west",
    "collector.token_file": "/etc/ingero/fleet-token",
    "collector.ca_cert": "/etc/ingero/fleet.crt",
    "collector.client_cert": "/etc/ingero/node.crt",
    "collector.client_key": "/etc/ingero/node.key",
    "collector.spool": "/var/lib/ingero/fleet-spool",
}


def pages() -> dict[str, str]:
    """Every page by file name."""
    made = {
        "configuration.md": configuration_page(),
        "commands.md": commands_page(),
        "schema.md": schema_markdown(),
        "glossary.md": glossary.page(WRITTEN_BY),
    }
    return made | detector_pages(WRITTEN_BY)


def configuration_page() -> str:
    parts = [CONFIGURATION.format(written_by=WRITTEN_BY)]
    keys = config.keys()
    for section in config.Config.__struct_fields__:
        about = type(getattr(config.Config(), section)).__doc__
        parts.append(
            f"\n## {section}\n\n{about}\n\n| key | variable | default | meaning |\n|---|---|---|---|\n"
        )
        rows = (key for key in keys if key.section == section)
        parts += [
            f"| `{k.name}` | `{k.variable}` | {_default(k.default)} | {k.description} |\n" for k in rows
        ]
    return "".join([*parts, "\n## Example\n\n```yaml\n", *_example(keys), "```\n"])


def _default(value: Any) -> str:
    if value is None or value in ([], {}):
        return "not set"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _example(keys: list[config.Key]) -> Iterator[str]:
    """A whole file: every key with a value that is accepted; a test loads it."""
    section = ""
    for key in keys:
        if key.section != section:
            section = key.section
            yield f"{section}:\n"
        yield f"  {key.name}: {_example_value(key)}\n"


def _example_value(key: config.Key) -> str:
    name = f"{key.section}.{key.name}"
    if name in EXAMPLES:
        return EXAMPLES[name]
    assert key.default not in (None, [], {}), f"{name} has no default: EXAMPLES needs a value for it"
    return _default(key.default).strip("`")


def commands_page() -> str:
    parts = [COMMANDS_PAGE.format(written_by=WRITTEN_BY)]
    context = click.Context(ingero, info_name="ingero", terminal_width=100, **ingero.context_settings)
    for name in COMMANDS:
        command = ingero.get_command(context, name)
        assert command is not None
        inner = click.Context(command, context, name, terminal_width=100)
        parts.append(f"\n## {name}\n\n```text\n{command.get_help(inner)}\n```\n")
        parts += _below(command, inner, name)
    return "".join(parts)


def _below(command: click.Command, context: click.Context, above: str) -> Iterator[str]:
    """The commands of a command that has some."""
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        found = command.get_command(context, name)  # type: ignore[attr-defined]
        inner = click.Context(found, context, name, terminal_width=100)
        yield f"\n### {above} {name}\n\n```text\n{found.get_help(inner)}\n```\n"


def main(folder: str) -> None:
    for name, text in pages().items():
        path = Path(folder) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


# The pages in docs/detectors, written from the detectors: one each, an index, the thresholds.


WIDTH = 105
INDEX = """\
# What is found

{written_by}

Every kind of finding has its page: how the problem shows, what proves it, what it is not, and what we
cannot see. How a verdict is made: [diagnosis](../diagnosis.md); the numbers that decide:
[thresholds](thresholds.md). A problem that is not watched is named in every answer, with the reason; it
is never "fine".

| kind | problem |
|---|---|
"""
NOT_LOOKED_FOR = """
## What nobody looks for yet

| kind | problem | because |
|---|---|---|
"""
SOURCES = """
## Sources

What was not recorded makes the kinds that need it say so (`not_watched`).

| source | what it tells |
|---|---|
"""
THRESHOLDS = """\
# Thresholds

{written_by}

The numbers that decide, collected from the modules that use them. Those of the severities are in
[diagnosis](../diagnosis.md).

| module | number | value | why |
|---|---|---|---|
"""


def detector_pages(written_by: str) -> dict[str, str]:
    """Every page by its name under docs."""
    entries = catalogue.entries()
    kinds = {entry.name for entry in entries}
    made = {f"detectors/{entry.name}.md": _page(entry, kinds, written_by) for entry in entries}
    made["detectors/README.md"] = _index(written_by)
    made["detectors/thresholds.md"] = _thresholds(written_by)
    return made


def _index(written_by: str) -> str:
    found = [f"{_row(each)} |\n" for each in catalogue.looked_for()]
    others = [f"{_row(each)} | {each.unwatched} |\n" for each in catalogue.not_looked_for()]
    sources = [f"| `{name}` | {about} |\n" for name, about in words.SOURCES.items()]
    opening = INDEX.format(written_by=written_by)
    return "".join([opening, *found, NOT_LOOKED_FOR, *others, SOURCES, *sources])


def _row(entry: Entry) -> str:
    return f"| [`{entry.name}`]({entry.name}.md) | {entry.title}"


def _page(entry: Entry, kinds: set[str], written_by: str) -> str:
    watched = f"no: {entry.unwatched}" if entry.unwatched else "yes"
    opening = _wrapped(f"**{entry.title}.** {_linked(entry.summary, kinds, entry.name)}")
    needs = ", ".join(f"`{name}`" for name in entry.needs)
    lines = [
        f"# {entry.name}\n\n{written_by}\n\n{opening}\n",
        "\n| severity | needs | watched |\n|---|---|---|\n",
        f"| {entry.severity} | {needs} | {watched} |\n",
    ]
    for part in catalogue.PARTS:
        text = _linked(entry.parts[part], kinds, entry.name)
        lines.append(f"\n## {part}\n\n{_wrapped(text[:1].upper() + text[1:])}\n")
    return "".join([*lines, "\n[All kinds](README.md), [how a verdict is made](../diagnosis.md)\n"])


def _linked(text: str, kinds: set[str], own: str) -> str:
    """Other kinds that a text names lead to their pages."""
    return re.sub(
        r"\b[a-z]+(?:-[a-z]+)+\b",
        lambda word: f"[{word[0]}]({word[0]}.md)" if word[0] in kinds - {own} else word[0],
        text,
    )


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _thresholds(written_by: str) -> str:
    rows = [
        f"| `{each.module.removeprefix('ingero.')}` | `{each.name}` | {each.value} | {each.reason} |\n"
        for each in catalogue.thresholds()
    ]
    return "".join([THRESHOLDS.format(written_by=written_by), *rows])


if __name__ == "__main__":
    main(sys.argv[1])
