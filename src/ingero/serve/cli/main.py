"""The `ingero` command: finds the sub-command, and prints what went wrong, once.

A sub-command's module is imported when it runs; `--help` reads the table below
and imports nothing else. Exit codes: 0 fine, 1 a failure, 2 wrong usage,
3 findings (with --exit-code), 4 a node did not answer (with --strict). An exception
that is no IngeroError is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, TextIO

import click
from click.exceptions import NoArgsIsHelpError, NoSuchCommand

from ingero import __version__
from ingero.errors import IngeroError

INTERRUPTED = 130
# Writing the output failed; an error about a file of ours names the file.
CANNOT_WRITE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class Lazy(NamedTuple):
    """Where a command is, and its line in the list of commands."""

    module: str
    help: str


COMMANDS: dict[str, Lazy] = {
    "check": Lazy(
        "ingero.serve.cli.check", "Check whether this machine can be traced, and what to do if not."
    ),
    "trace": Lazy("ingero.serve.cli.trace", "Trace GPU jobs live and record them."),
    "explain": Lazy("ingero.serve.cli.explain", "Say why a recorded job was slow, and what fixes it."),
    "query": Lazy("ingero.serve.cli.query", "Ask a recording: statistics, or any SELECT."),
    "cost": Lazy(
        "ingero.serve.cli.cost",
        "Show what GPUs cost: hours held, busy, lost to findings and idle, per tenant.",
    ),
    "merge": Lazy("ingero.serve.cli.merge", "Merge several databases into one."),
    "export": Lazy("ingero.serve.cli.export", "Write a recording as a timeline, tables or stacks."),
    "demo": Lazy("ingero.serve.cli.demo", "Show a GPU job in trouble, and the diagnosis."),
    "dashboard": Lazy("ingero.serve.cli.dashboard", "Show a recording in a browser, live while it grows."),
    "fleet": Lazy("ingero.serve.cli.fleet", "Watch many nodes: report to a collector, run one, ask one."),
    "mcp": Lazy("ingero.serve.cli.mcp", "Answer AI assistants over the Model Context Protocol."),
    "schema": Lazy("ingero.serve.cli.schema", "Print the JSON Schema of every answer."),
    "annotate": Lazy("ingero.serve.cli.annotate", "Tell a running trace what a job is doing."),
    "version": Lazy("ingero.serve.cli.version", "Print the version."),
    "completion": Lazy("ingero.serve.cli.completion", "Print the completion script of a shell."),
}


class LazyGroup(click.Group):
    """Sub-commands by name; the function is called like its module."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name].module)
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in COMMANDS.items()])


EPILOG = """\b
Examples:
  ingero check                    can this machine be traced?
  sudo ingero trace               every CUDA process, live
  ingero explain --since 5m       why was it slow?
  ingero query --since 5m         what the calls cost
  ingero demo                     see it without a GPU
"""


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="ingero %(version)s")
@click.pass_context
def ingero(context: click.Context) -> None:
    """Says why a GPU job is slow."""
    if context.invoked_subcommand is None:
        from ingero.serve.cli.start import welcome

        welcome()


# A long recording makes a million objects that stay: looking for garbage among them every 700 takes a
# tenth of the answer's time.
COLLECT_EVERY = 100_000


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    gc.set_threshold(COLLECT_EVERY)
    _make_streams_usable()
    try:
        return _answer(args)
    finally:
        _leave_dead_streams()


def _answer(args: Sequence[str] | None) -> int:
    try:
        return _run(args)
    except BrokenPipeError:
        _forget_stdout()
        return 0
    except OSError as error:
        if (
            error.errno == errno.EIO and error.filename is None
        ):  # the terminal went away, and its reader with it
            _forget_stdout()
            return 0
        if error.errno not in CANNOT_WRITE or error.filename is not None:
            raise
        _forget_stdout()
        return _say(
            f"cannot write the output: {error.strerror}", "Free some space, or write it elsewhere.", 1
        )
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED


def _leave_dead_streams() -> None:
    """What is still buffered for a terminal that went away would make the interpreter exit with 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
                os.close(null)


def _make_streams_usable() -> None:
    """A closed stream leads nowhere; what a terminal has no characters for becomes a question mark."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, _leading_nowhere(number))
        elif number and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _leading_nowhere(number: int) -> TextIO:
    # On its own number, or the next file opened would take the messages meant for it.
    null = os.open(os.devnull, os.O_RDWR)
    try:
        os.fstat(number)
    except OSError:
        os.dup2(null, number)
        os.close(null)
        null = number
    return os.fdopen(null, "w" if number else "r", encoding="utf-8", closefd=False)


def _run(args: Sequence[str] | None) -> int:
    try:
        code = ingero.main(args=args, prog_name="ingero", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.UsageError as error:
        return _say(_sentence(error), _usage_hint(error), error.exit_code)
    except click.ClickException as error:
        return _say(error.format_message(), "", error.exit_code)
    except IngeroError as error:
        return _say(error.message, error.hint, error.exit_code)


def _say(message: str, hint: str, code: int) -> int:
    click.echo(f"error: {_printable(message)}", err=True)
    if hint:
        from ingero.serve.called import runnable

        click.echo(f"hint: {_printable(runnable(hint))}", err=True)
    return code


def _printable(text: str) -> str:
    # A message may quote a traced process; units.clean is not imported before it is needed.
    from ingero import units

    return "\n  ".join(units.clean(line, limit=2000) for line in text.splitlines())


def _sentence(error: click.UsageError) -> str:
    # The guess at what was meant is the hint's.
    text = error.message if getattr(error, "possibilities", None) else error.format_message()
    text = " ".join(text.split()).rstrip(".").replace("float range", "number").replace("float", "number")
    text = text.replace("valid integer range", "whole number").replace("valid integer", "whole number")
    return text[:1].lower() + text[1:]


def _usage_hint(error: click.UsageError) -> str:
    meant = getattr(error, "possibilities", None) or []
    if isinstance(error, NoSuchCommand):
        import difflib

        meant = difflib.get_close_matches(error.command_name, COMMANDS)
    if meant:
        return f"Did you mean {' or '.join(meant)}?"
    return f"See `{error.ctx.command_path if error.ctx else 'ingero'} --help`."


def _forget_stdout() -> None:
    # The reader went away; the interpreter's own flush at exit must not complain either.
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
