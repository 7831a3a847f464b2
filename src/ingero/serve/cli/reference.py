"""Pages of docs that are written from the code: configuration, commands, schema, glossary, detectors/.

`python -m ingero.serve.cli.reference docs` writes them; a test holds them against
what this module would write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ingero import config
from ingero.serve.answers.schema_page import schema_markdown
from ingero.serve.cli import detector_pages, glossary
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
    return made | detector_pages.pages(WRITTEN_BY)


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


if __name__ == "__main__":
    main(sys.argv[1])
