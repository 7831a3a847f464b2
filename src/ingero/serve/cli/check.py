"""`ingero check`: one line per thing that tracing needs, with what to do about it."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ingero import units
from ingero.serve.cli.options import as_json, configured, database

if TYPE_CHECKING:
    from ingero.config import Config
    from ingero.model.check_line import Check

ICONS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red")}
OF_A_PROCESS = re.compile(r"process (\d+): (.*)", re.DOTALL)
NAMED = 5  # processes in a line
FRAMES = "frames can be read"  # what is said behind it is how
EPILOG = """\b
Examples:
  sudo ingero check
  ingero check --json --exit-code
  ingero check --support-bundle bundle.tar.gz
"""


@click.command(epilog=EPILOG)
@as_json
@click.option("--exit-code", is_flag=True, help="Exit with 1 when a check failed.")
@click.option(
    "--support-bundle",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write a .tar.gz for a bug report.",
)
@click.option("-v", "--verbose", is_flag=True, help="Also show how the frames of each Python are read.")
@database
@configured
def check(
    config: Config,  # noqa: ARG001
    as_json: bool,
    exit_code: bool,
    support_bundle: Path | None,
    verbose: bool,
    db: Path | None,
) -> int:
    """Check whether this machine can be traced, and what to do if not."""
    from ingero.serve.answers.checks import get_checks

    answer = get_checks(db)
    if as_json:
        from ingero.serve.cli.output import to_json

        click.echo(to_json(answer))
    else:
        _print(answer.checks, verbose)
    if support_bundle is not None:
        from ingero.serve.answers.checks import write_support_bundle

        write_support_bundle(support_bundle, answer)
        click.echo(f"Wrote {support_bundle}", err=True)
    return 1 if exit_code and not answer.ok else 0


def _print(checks: list[Check], verbose: bool) -> None:
    from rich.text import Text

    from ingero.serve import terminal
    from ingero.serve.called import runnable
    from ingero.serve.cli import tables

    console = tables.console(sys.stdout)
    width = max((len(terminal.clean(check.name)) for check in checks), default=0)
    for item in checks if verbose else _grouped(checks):
        icon, style = ICONS[item.status]
        line = Text(f"  {icon} ", style).append(f"{terminal.clean(item.name):{width}}  ", "default")
        console.print(line.append(_value(item, verbose), "default"), soft_wrap=True)
        if item.advice and item.status != "ok":
            console.print(
                Text(f"    {'':{width}}  → {runnable(terminal.clean(item.advice, 500))}", style),
                soft_wrap=True,
            )
    failed = sum(item.status == "failed" for item in checks)
    warned = sum(item.status == "warning" for item in checks)
    warnings = "1 warning" if warned == 1 else f"{warned} warnings"
    console.print(Text(f"\n  {len(checks)} checks, {failed} failed, {warnings}"))
    console.print(Text(f"  {verdict(checks)}", "bold"), soft_wrap=True)


def _grouped(checks: list[Check]) -> list[Check]:
    """Processes of which the same is said share a line: a job may have a hundred workers."""
    pids: dict[tuple[str, ...], list[str]] = {}
    first: dict[tuple[str, ...], Check] = {}
    for number, item in enumerate(checks):
        said = OF_A_PROCESS.fullmatch(_value(item, False))
        key = (item.name, item.status, item.advice, said[2]) if said else (str(number),)
        first.setdefault(key, item)
        pids.setdefault(key, []).extend([said[1]] if said else [])
    return [_of_all(item, pids[key], key[-1]) if len(pids[key]) > 1 else item for key, item in first.items()]


def _of_all(item: Check, pids: list[str], said: str) -> Check:
    more = f" and {len(pids) - NAMED} more" if len(pids) > NAMED else ""
    return replace(item, value=f"processes {', '.join(pids[:NAMED])}{more}: {said}")


def _value(item: Check, verbose: bool) -> str:
    """Where a Python keeps its thread states helps those who mend ingero, and nobody else."""
    value = units.clean(item.value, 300)
    read = value.find(FRAMES)
    return value if verbose or read < 0 else value[: read + len(FRAMES)]


def verdict(checks: list[Check]) -> str:
    """Yes or no, and what to do next."""
    from ingero.serve.called import how_we_are_called

    failed = list(dict.fromkeys(check.name for check in checks if check.status == "failed"))
    if failed:
        return f"No: ingero cannot trace here until this is fixed: {', '.join(failed)}."
    without_gpu = any(check.name == "NVIDIA driver" and check.status != "ok" for check in checks)
    if without_gpu:
        live = f"{how_we_are_called(as_root=True)} demo --live"
        return f"Yes: ingero can trace here, but there is no GPU to trace. See it work: {live}"
    return f"Yes: ingero can trace here. Next: {how_we_are_called(as_root=True)} trace"
