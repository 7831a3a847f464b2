"""`ingero version`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ingero.serve.cli.options import as_json, configured

if TYPE_CHECKING:
    from ingero.config import Config


@click.command(epilog="\b\nExamples:\n  ingero version\n  ingero version --json\n")
@as_json
@configured
def version(as_json: bool, config: Config) -> None:  # noqa: ARG001
    """Print the version."""
    from ingero.serve.answers.checks import get_version
    from ingero.serve.cli.output import to_json

    answer = get_version()
    if as_json:
        click.echo(to_json(answer))
        return
    click.echo(f"ingero {answer.version}")
    click.echo(f"python {answer.python}")
    click.echo(f"kernel {answer.kernel} {answer.machine}")
    click.echo(f"libbpf {answer.libbpf or 'not available: the native module is not built'}")
