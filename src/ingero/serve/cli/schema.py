"""`ingero schema`: what programs may rely on in the output of --json."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ingero.serve.cli.options import as_json, configured

if TYPE_CHECKING:
    from ingero.config import Config


@click.command(epilog="\b\nExamples:\n  ingero schema\n  ingero schema --json > answers.schema.json\n")
@as_json
@configured
def schema(as_json: bool, config: Config) -> None:  # noqa: ARG001
    """Print the JSON Schema of every answer.

    Without --json it lists the answers. `ingero query --schema` describes the tables of a recording.
    """
    from ingero.serve.answers import json_schemas
    from ingero.serve.cli.output import to_json

    if as_json:
        click.echo(to_json(json_schemas.get_schema()))
        return
    for name, (command, _) in json_schemas.ANSWERS.items():
        click.echo(f"{name:17}{command}")
