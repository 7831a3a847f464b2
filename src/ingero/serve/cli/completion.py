"""`ingero completion`: the script that makes a shell complete our commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ingero.serve.cli.options import configured

if TYPE_CHECKING:
    from ingero.config import Config

EPILOG = """\b
Examples:
  ingero completion bash > ~/.local/share/bash-completion/completions/ingero
  source <(ingero completion zsh)
"""


@click.command(epilog=EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@configured
def completion(shell: str, config: Config) -> None:  # noqa: ARG001
    """Print the completion script of a shell."""
    from click.shell_completion import get_completion_class

    from ingero.serve.cli.main import ingero

    complete = get_completion_class(shell)
    assert complete is not None
    click.echo(complete(ingero, {}, "ingero", "_INGERO_COMPLETE").source())
