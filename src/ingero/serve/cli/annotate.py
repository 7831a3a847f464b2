"""`ingero annotate`: a label for a running job, from a script or another terminal."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import click

from ingero.annotate import CALLER, message, socket_path
from ingero.errors import IngeroError, UsageError
from ingero.serve.cli.options import configured

if TYPE_CHECKING:
    from ingero.config import Config

ANSWER_S = 1.0
EPILOG = """\b
Examples:
  ingero annotate --label step=120 --label epoch=3     labels the script that calls it
  ingero annotate --pid 4821 --label phase=evaluation
  ingero annotate --label phase=                       removes the label

Cheaper, from inside a Python job: from ingero.annotate import annotate; annotate(step=120)
"""


@click.command(epilog=EPILOG)
@click.option(
    "--label",
    "labels",
    multiple=True,
    required=True,
    metavar="KEY=VALUE",
    help="The label; repeatable.",
)
@click.option(
    "--pid",
    type=click.IntRange(1),
    metavar="PID",
    help="Process to label (must be yours).  [the job that calls this]",
)
@configured
def annotate(labels: tuple[str, ...], pid: int | None, config: Config) -> int:  # noqa: ARG001
    """Tell a running trace what a job is doing.

    For example its step, epoch or request. A label applies to the process and its children until
    it gets a new value. Without --pid it labels the traced process that called this command.
    """
    said = dict(map(_label, labels))
    answer = _ask(message({**said}, CALLER if pid is None else pid))
    if answer not in ("ok", ""):
        raise IngeroError(f"the label was not accepted: {answer}", hint=_HINTS.get(answer, ""))
    if not answer:
        click.echo("Sent, but the trace did not confirm it.", err=True)
    return 0


_HINTS = {
    "not a process of yours": "Processes of other users can be labelled by root alone, those of a container"
    " only from inside.",
    "not understood": "A key is a name of at most 32 letters, digits, dots and dashes; at most 16 at once.",
    "too many keys": "A process may use 16 different keys, a user 64: say more with values.",
    "too many labels": "At most 2,000 a second of a process, and 200 that name another one.",
}


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"cannot read the label {text!r}", hint="Write it like step=120.")
    return key.strip(), value.strip()


def _ask(raw: bytes) -> str:
    """What became of it; empty where no answer came, as in a container with a network of its own."""
    path = socket_path()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(ANSWER_S)
        sender.bind("")  # an abstract name of the kernel's choice, to be answered at
        try:
            sender.sendto(raw, path)
        except TimeoutError as error:
            raise IngeroError(f"the trace at {path} does not take labels: its queue is full") from error
        except OSError as error:
            raise IngeroError(
                f"no trace takes labels at {path}: {error.strerror or error}",
                hint="Start one with `sudo ingero trace`; INGERO_RUN_DIR must be the same for both.",
            ) from error
        try:
            return sender.recv(256).decode("utf-8", "replace")
        except TimeoutError:
            return ""
