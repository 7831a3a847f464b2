"""Man pages of every command, from what `--help` is made of."""

from __future__ import annotations

from collections.abc import Iterator

import click

from ingero import __version__
from ingero.serve.cli.main import ingero


def pages() -> dict[str, str]:
    """By file name: ingero.1, ingero-trace.1, ingero-fleet-push.1."""
    context = click.Context(ingero, info_name="ingero", **ingero.context_settings)
    return {f"{'-'.join(path.split())}.1": text for path, text in _below(ingero, context)}


def _below(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    yield context.command_path, _page(command, context)
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        found = command.get_command(context, name)  # type: ignore[attr-defined]
        yield from _below(found, click.Context(found, info_name=name, parent=context))


def _page(command: click.Command, context: click.Context) -> str:
    title = "-".join(context.command_path.split())
    synopsis = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [
        f'.TH "{_text(title.upper())}" 1 "" "ingero {__version__}"\n',
        f".SH NAME\n{_text(title)} \\- {_text(command.get_short_help_str(200))}\n",
        f".SH SYNOPSIS\n{_text(synopsis)}\n",
        f".SH DESCRIPTION\n{_prose(command.help or '')}",
        ".SH OPTIONS\n",
        *(
            _option(*record)
            for each in command.get_params(context)
            if (record := each.get_help_record(context))
        ),
    ]
    if isinstance(command, click.Group):
        names = command.list_commands(context)
        parts += [".SH COMMANDS\n", *(f".BR {_text(f'{title}-{name}')} (1)\n.br\n" for name in names)]
    if command.epilog:
        parts += [".SH EXAMPLES\n.nf\n", *(_text(line) + "\n" for line in _examples(command.epilog)), ".fi\n"]
    return "".join(parts)


def _option(flags: str, meaning: str) -> str:
    return f".TP\n.B {_text(flags)}\n{_text(meaning)}\n"


def _prose(text: str) -> str:
    """Paragraphs; the mark before those that keep their lines is click's own."""
    made = []
    for paragraph in text.strip().split("\n\n"):
        lines = [_text(line.strip()) for line in paragraph.splitlines()]
        if paragraph.lstrip(" ").startswith("\b"):
            made.append(".nf\n" + "\n".join(lines[1:]) + "\n.fi\n")
        else:
            made.append("\n".join(lines) + "\n")
    return ".PP\n".join(made)


def _examples(epilog: str) -> list[str]:
    return [line for line in epilog.splitlines() if line.strip(" \b") and line.strip() != "Examples:"]


def _text(text: str) -> str:
    """Nothing in it is a command of roff."""
    text = text.replace("\b", "").replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
