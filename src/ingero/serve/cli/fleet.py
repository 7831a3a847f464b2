"""`ingero fleet`: one command for each side of a collector."""

from __future__ import annotations

import importlib

import click

COMMANDS = {
    "serve": ("ingero.serve.cli.fleet_serve", "Collect what nodes tell, and say who straggles."),
    "push": ("ingero.serve.cli.fleet_push", "Tell a collector how the node of a recording does."),
    "status": ("ingero.serve.cli.fleet_status", "Ask a collector how the fleet does."),
    "token": ("ingero.serve.cli.fleet_token", "Print the token of a node."),
}
EPILOG = """\b
Examples:
  ingero fleet serve                                       on the machine that watches
  ingero fleet token gpu-node-01                           there; goes to that node
  sudo ingero trace --fleet https://collector:8443         on each node
  ingero fleet status --collector https://collector:8443   worst first
"""


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), f"fleet_{cmd_name}")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in COMMANDS.items()])


@click.group(cls=_Lazy, epilog=EPILOG)
def fleet() -> None:
    """Watch many nodes: report to a collector, run one, ask one.

    Setting one up, and what 10,000 nodes need: docs/fleet.md.
    """
