"""`ingero fleet`: one command for each side of a collector."""

from __future__ import annotations

import importlib

import click

COMMANDS = {
    "serve": ("ingero.serve.cli.fleet_serve", "Collect the health of nodes and show which ones fall behind."),
    "push": ("ingero.serve.cli.fleet_push", "Report the health of a recording's node to a collector."),
    "status": ("ingero.serve.cli.fleet_status", "Show the health of the fleet, as a collector sees it."),
    "token": ("ingero.serve.cli.fleet_token", "Print the token for a node."),
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
