"""Options that several commands share, and what they lead to.

Every command takes --config, --log-level and --log-file through `configured`,
which hands it the configuration in force. A flag that was not given is None, so
that the configuration's value can stand behind it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

T = TypeVar("T")
Function = Callable[..., Any]
LEVELS = ["debug", "info", "warning", "error"]
WIDE = "ingero.wide"


def configured(function: Function) -> Function:
    """Give a command the shared options; it is called with `config`."""

    @click.option("--config", "config_path", type=click.Path(path_type=Path), help="Configuration file.")
    @click.option("--log-level", type=click.Choice(LEVELS), help="Lowest level of messages to show.")
    @click.option("--log-file", type=click.Path(path_type=Path), help="Append messages to this file.")
    @functools.wraps(function)
    def wrapper(config_path: Path | None, log_level: str | None, log_file: Path | None, **rest: Any) -> Any:
        from ingero import config as configuration
        from ingero.serve.cli import log

        config = configuration.load(config_path)
        file = log_file or (Path(config.log.file) if config.log.file else None)
        log.start(log_level or config.log.level, file)
        try:
            return function(config=config, **rest)
        except BrokenPipeError:  # the reader has what it wanted; click would call it a failure
            return 0

    return wrapper


def database(function: Function) -> Function:
    """-d/--db; None means INGERO_DB or the default path."""
    option = click.option(
        "-d",
        "--db",
        type=click.Path(path_type=Path, readable=False),  # whoever opens it says what is wrong
        help="Database. Default: INGERO_DB, else ~/.ingero/ingero.db.",
    )
    return option(function)


def one_node(function: Function) -> Function:
    """--node, for databases of several."""
    return click.option("--node", metavar="NAME", help="Only this node of a merged database.")(function)


def labelled(function: Function) -> Function:
    """--label and --by: what jobs said of themselves."""
    return _label(click.option("--by", metavar="KEY", help=BY_LABEL)(function))


def labelled_or_whose(function: Function) -> Function:
    """The same; --by takes a tenant, too."""
    text = (
        f"{BY_LABEL} Where no job reported a label of that name: by namespace, pod, job, user, container or"
        " node."
    )
    return _label(click.option("--by", metavar="KEY", help=text)(function))


BY_LABEL = "Group by the values of a label, e.g. step."


def _label(function: Function) -> Function:
    return click.option(
        "--label", "labels", multiple=True, metavar="KEY=VALUE",
        help="Only while this label was set: step=120, step=100..200.",
    )(function)  # fmt: skip


def whose(function: Function) -> Function:
    """--container --pod --namespace --job --user: whose processes."""
    for option in (
        click.option("--user", metavar="NAME", help="Only this user's jobs."),
        click.option(
            "--job", metavar="ID", help="Only this job: of Slurm, ECS, Ray, torchrun, a pod's owner."
        ),
        click.option("--namespace", metavar="NAME", help="Only this namespace."),
        click.option("--pod", metavar="NAME", help="Only this pod, or NAMESPACE/POD."),
        click.option("--container", metavar="ID", help="Only this container, by id or name."),
    ):
        function = option(function)
    return function


def as_json(function: Function) -> Function:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(function)


def wide(function: Function) -> Function:
    """For every table of a command: `is_wide` tells, so that not every function has to pass it on."""

    def note(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        context.meta[WIDE] = value

    option = click.option(
        "--wide", is_flag=True, expose_value=False, callback=note, help="All columns, however wide."
    )
    return option(function)


def is_wide() -> bool:
    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get(WIDE))


def offers_wide() -> bool:
    """Whether the command that runs has --wide."""
    context = click.get_current_context(silent=True)
    return bool(context and WIDE in context.meta)


def given(flag: T | None, otherwise: T) -> T:
    """The flag's value, or what stands behind it."""
    return otherwise if flag is None else flag


def split_commas(values: tuple[str, ...]) -> list[str]:
    """`1,2` given once and `1`, `2` given twice are the same."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]
