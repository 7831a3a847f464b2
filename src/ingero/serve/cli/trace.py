"""`ingero trace`: turns flags into TraceOptions, picks a surface, and lets the agent run.

Signals are handled here, in the main thread, whatever the surface: the first
SIGINT or SIGTERM asks the agent to finish, a second one ends it at once.
A command's own output goes where it always goes, so with one there is no live
view, and the summary comes on standard error.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from ingero.errors import UsageError
from ingero.serve.cli.exporters import exported, exporting
from ingero.serve.cli.options import as_json, configured, database, given, split_commas
from ingero.serve.cli.starting import loading

if TYPE_CHECKING:
    from ingero.config import Config
    from ingero.model.live import Surface
    from ingero.model.options import TraceOptions
    from ingero.model.pods import KubeletAccess
    from ingero.serve.cli.surfaces import PlainSurface

EPILOG = """\b
Examples:
  sudo ingero trace                         every CUDA process, now and later ones
  sudo ingero trace --pid 4821 --duration 60s
  sudo ingero trace --container 3f2a --no-tui
  sudo ingero trace --json | jq .op
  sudo ingero trace --no-tui --prometheus :9090
  sudo ingero trace -- python train.py      from its start to its end, run as you
"""


@click.command(epilog=EPILOG, context_settings={"allow_interspersed_args": False})
@click.option(
    "--pid", "pids", multiple=True, metavar="P,...", help="Only these processes and their descendants."
)
@click.option("--user", metavar="NAME", help="Only processes of this user.")
@click.option("--container", metavar="ID", help="Only this container.")
@click.option(
    "--cgroup", type=click.Path(path_type=Path), metavar="PATH", help="Only this cgroup and those below it."
)
@click.option("--duration", metavar="D", help="Stop after this time, e.g. 90s, 5m, 1h.")
@as_json
@click.option("--no-tui", is_flag=True, help="Plain tables or log lines instead of the live view.")
@click.option("--record/--no-record", default=None, help="Write a database (default).")
@click.option("--record-all", is_flag=True, default=None, help="Record every call.")
@database
@click.option("--max-db", metavar="SIZE", help="Keep the database below this size; 0 is no limit. [10g]")
@click.option(
    "--stack/--no-stack",
    default=None,
    help="Record where calls, waits and samples come from: Python lines, native functions.",
)
@click.option(
    "--max-overhead",
    metavar="PERCENT",
    help="Limit on what tracing may cost a traced thread; off removes it, and every count is exact. [2%]",
)
@exporting
@click.option("--node", metavar="NAME", help="Name of this machine in the records. [host name]")
@click.option(
    "--without", multiple=True, metavar="SOURCE", help="Do not trace this source of events; repeatable."
)
@click.option("--costly-probes", "costly", is_flag=True, help="Also probe functions where a probe is slow.")
@click.option(
    "--fuse", is_flag=True, help="Also probe libraries on FUSE: whoever serves them can stop this machine."
)
@click.option("--ringbuf-size", metavar="SIZE", help="Size of the kernel's event buffer, a power of two.")
@click.option("--as-root", is_flag=True, help="Run COMMAND as root, not as the user who called sudo.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@configured
def trace(
    config: Config,
    as_json: bool,
    no_tui: bool,
    prometheus: str | None,
    otlp: str | None,
    fleet: str | None,
    **flags: Any,
) -> int:
    """Trace GPU jobs live and record them.

    Finds CUDA processes and attaches to them while they run. Nothing in them is changed.
    Needs root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE.

    A COMMAND is traced from its first CUDA call if its libraries can be found in advance; otherwise
    the diagnosis says how many milliseconds were missed. When the command ends, trace prints the
    diagnosis and writes a report to send on, ingero.html beside the database.
    """
    from ingero import privileges

    options = trace_options(config, as_json=as_json, **flags)
    privileges.drop()  # before anything brings in NumPy: its threads would keep what they have
    with loading():
        surface = choose_surface(as_json=as_json, no_tui=no_tui, command=bool(options.command))
        from ingero import agent
        from ingero.serve.cli.closing import Remembered

    shown = Remembered(exported(surface, config, prometheus, otlp, fleet))
    code = run_on(shown, lambda: agent.run(options, shown))
    if options.command and shown.last and shown.last.database.path:
        from ingero.serve.cli.explain import print_diagnosis

        recording = Path(shown.last.database.path)
        # The command's own output stays as it is.
        print_diagnosis(recording, sys.stderr, shown.last, recording.with_suffix(".html"))
    return code


def run_on(surface: Surface, work: Callable[[], int]) -> int:
    """Run `work` where it is shown, ending it on signals; messages wait while the live view is up."""
    from ingero.serve.cli import log

    with stopping_on_signals(surface.stop_requested), log.held(surface.takes_the_screen):
        return surface.run(work)


def trace_options(config: Config, *, as_json: bool = False, **flags: Any) -> TraceOptions:
    """Flags over configuration, parsed; a UsageError names the flag."""
    from ingero import units
    from ingero.config import check_node, parse_overhead
    from ingero.model.options import TraceOptions

    # A command says whom to trace; the configuration's choice is for the other traces.
    agent, defaults = config.agent, type(config.trace)() if flags["command"] else config.trace
    duration = given(flags["duration"], defaults.duration)
    node = given(flags["node"], agent.node)
    options = TraceOptions(
        pids=_pids(flags["pids"]) or tuple(defaults.pid),
        user=given(flags["user"], defaults.user),
        container=given(flags["container"], defaults.container),
        cgroup=flags["cgroup"],
        duration_ns=None if duration is None else _parsed("--duration", units.parse_duration, str(duration)),
        command=tuple(flags["command"]),
        command_stdout_to_stderr=as_json,
        command_as_root=flags["as_root"],
        record=given(flags["record"], agent.record),
        record_all=given(flags["record_all"], agent.record_all),
        db=flags["db"],
        max_db_bytes=_parsed("--max-db", units.parse_size, str(given(flags["max_db"], agent.max_db))),
        stack=given(flags["stack"], agent.stack),
        max_overhead_share=_parsed(
            "--max-overhead", parse_overhead, str(given(flags["max_overhead"], agent.max_overhead))
        ),
        node=None if node is None else _parsed("--node", check_node, node),
        without=_sources(flags["without"]),
        ring_bytes=_ring_bytes(flags["ringbuf_size"]),
        costly=flags["costly"],
        served=flags["fuse"],
        kubelet=_kubelet(config),
    )
    _refuse_contradictions(options, flags)
    return options


def _kubelet(config: Config) -> KubeletAccess | None:
    """Where it is, with those of the usual files that are there."""
    from ingero import units
    from ingero.model.pods import KubeletAccess

    said = config.kubernetes
    if said.kubelet is None:
        return None
    token, ca = (name if Path(name).exists() else None for name in (said.token_file, said.ca))
    timeout_s = units.parse_duration(str(said.timeout)) / units.SECOND
    return KubeletAccess(said.kubelet, token, ca, said.verify, timeout_s)


def _parsed(flag: str, parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except UsageError as error:
        raise UsageError(f"{flag}: {error.message}", hint=error.hint) from error


def _pids(values: tuple[str, ...]) -> tuple[int, ...]:
    pids = []
    for text in split_commas(values):
        if not text.isdecimal() or not text.isascii() or not 0 < int(text) < 1 << 22:
            raise UsageError(
                f"--pid: not a process id: {text!r}", hint="Write --pid 4821 or --pid 4821,4822."
            )
        pids.append(int(text))
    if values and not pids:
        raise UsageError(
            "--pid: no process id given", hint="Write --pid 4821, or leave --pid out to trace all."
        )
    return tuple(dict.fromkeys(pids))


def _sources(values: tuple[str, ...]) -> frozenset[str]:
    from ingero.model.options import SOURCES

    wanted = frozenset(split_commas(values))
    unknown = sorted(wanted - set(SOURCES))
    if unknown:
        raise UsageError(f"--without: no such source: {unknown[0]!r}", hint=f"Sources: {', '.join(SOURCES)}.")
    return wanted


def _ring_bytes(text: str | None) -> int | None:
    if text is None:
        return None
    from ingero import units

    size = _parsed("--ringbuf-size", units.parse_size, text)
    if size < 4096 or size & (size - 1) or size > 1 << 30:
        raise UsageError(
            f"--ringbuf-size: {text!r} is not a power of two from 4k to 1g", hint="Write 16m, 64m or 256m."
        )
    return int(size)


def _refuse_contradictions(options: TraceOptions, flags: dict[str, Any]) -> None:
    if options.command and options.command[0].isdecimal():
        raise UsageError(
            f"a command was expected, not {options.command[0]!r}",
            hint=f"To trace a process write --pid {options.command[0]}.",
        )
    if options.command and (flags["pids"] or flags["user"] or flags["container"] or flags["cgroup"]):
        raise UsageError(
            "a command and --pid, --user, --container or --cgroup exclude each other",
            hint="Give the command alone: only it and its descendants are traced.",
        )
    if options.command_as_root and not options.command:
        raise UsageError("--as-root is for a command", hint="Write: sudo ingero trace --as-root -- COMMAND")
    if options.record_all and not options.record:
        raise UsageError("--record-all needs a database", hint="Leave --no-record out.")
    if options.duration_ns == 0:
        raise UsageError("--duration: zero is too short", hint="Leave it out to trace until stopped.")


def choose_surface(
    *, as_json: bool, no_tui: bool, command: bool, lines: PlainSurface | None = None
) -> Surface:
    """What this terminal, these flags and this installation allow; `lines` instead of plain tables."""
    from ingero.serve.cli.surfaces import JsonSurface, PlainSurface

    if as_json:
        return JsonSurface(sys.stdout, sys.stderr)
    if command:
        return PlainSurface(sys.stderr, updates=False)
    if no_tui or not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        return lines or PlainSurface(sys.stdout)
    try:
        from ingero.serve.tui.surface import TuiSurface
    except ImportError:
        from ingero.serve.called import runnable

        click.echo(
            runnable("Plain tables: the live view needs Textual (pip install 'ingero[tui]')."), err=True
        )
        return lines or PlainSurface(sys.stdout)
    return TuiSurface(afterwards=lines or PlainSurface(sys.stdout, updates=False))


@contextlib.contextmanager
def stopping_on_signals(stop: threading.Event) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP set `stop`; the second one has its usual effect. Ignored ones stay so."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in signals}
    before = {number: handler for number, handler in before.items() if handler != signal.SIG_IGN}

    def ask(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        stop.set()
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in before:
        signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
