"""`ingero` alone: what can be done next on this machine. Looks at little, so that it answers at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click

from ingero import __version__
from ingero.serve.called import how_we_are_called

DRIVER = Path("/proc/driver/nvidia/version")


def welcome() -> None:
    from ingero.serve.cli.next_steps import show

    click.echo(f"ingero {__version__} says why a GPU job is slow.\n")
    show(list(_steps()))
    click.echo(f"\nAll commands: {how_we_are_called()} --help")


def _steps() -> Iterator[tuple[str, str]]:
    me, root = how_we_are_called(), how_we_are_called(as_root=True)
    if (age := _age_of_last()) is not None:
        yield f"{me} explain", f"why the last recorded job was slow (recorded {age})"
        yield f"{me} dashboard", "the same in a browser"
    if DRIVER.exists():
        yield f"{root} trace", "watch every CUDA job of this machine, and record it"
        yield f"{root} trace -- python train.py", "start a job and watch it from its first call"
    else:
        yield f"{root} demo --live", "a real job in trouble, without a GPU"
        yield f"{me} demo --no-gpu", "a made-up one; needs no root"
    yield f"{root} check", "can this machine be traced?"


def _age_of_last() -> str | None:
    from ingero import units
    from ingero.serve.answers.places import last_changed

    changed = last_changed()
    return None if changed is None else f"{units.format_ns(max(time.time() - changed, 0) * 1e9)} ago"
