"""The timeline as a file for ui.perfetto.dev: packets, or JSON where the name says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click
import msgspec

from ingero.errors import UsageError
from ingero.serve.answers.timeline import open_timeline
from ingero.serve.answers.tracks import Item, Moment, Sample, Slice, Track
from ingero.serve.cli.export import Export
from ingero.serve.cli.output import writing
from ingero.serve.cli.perfetto_packets import Packets

CHUNK_BYTES = 1 << 20


def export_perfetto(request: Export) -> None:
    if request.output is None or request.into_folder:
        raise UsageError("a timeline is written to a file", hint="Name it with -o, e.g. -o trace.pftrace.")
    with (
        open_timeline(request.db, request.when, request.pid, request.node) as (when, items),
        writing(request.output) as file,
    ):
        made = ChromeTrace().lines if request.output.suffix == ".json" else Packets().packets
        for chunk in _chunks(made(items, when.from_ns)):
            file.write(chunk)
    click.echo(f"Wrote {request.output}; open it at ui.perfetto.dev", err=True)


def _chunks(parts: Iterable[bytes]) -> Iterable[bytes]:
    """Few writes instead of millions."""
    held: list[bytes] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= CHUNK_BYTES:
            yield b"".join(held)
            held.clear()
            size = 0
    yield b"".join(held)


# A timeline in the JSON that ui.perfetto.dev and other viewers of Chrome traces read.
#
# Its numbers are floating-point microseconds, too few digits for Unix time: times are
# counted from the beginning of the trace, which `otherData` gives. It knows processes
# and threads only, so each lane is a thread of its own.


COLOURS = {"CRITICAL": "terrible", "HIGH": "bad", "MEDIUM": "yellow", "LOW": "grey"}
_encode = msgspec.json.encode


class ChromeTrace:
    """Writes one trace."""

    def __init__(self) -> None:
        self._tracks: dict[int, Track] = {}
        self._places: dict[int, bytes] = {}
        self._names: dict[str, bytes] = {}
        self._start_ns = 0

    def lines(self, items: Iterable[Item], start_ns: int) -> Iterator[bytes]:
        """Parts of the file, in order."""
        self._start_ns = start_ns
        other = _encode({"start_ns": str(start_ns), "clock": "Unix time"})
        yield b'{"displayTimeUnit":"ns","otherData":' + other + b',"traceEvents":[\n'
        separator = b""
        for item in items:
            for line in self._item(item):
                yield separator + line
                separator = b",\n"
        yield b"\n]}\n"

    def _item(self, item: Item) -> Iterator[bytes]:
        if isinstance(item, Slice):
            yield from self._slice(item)
        elif isinstance(item, Moment):
            yield from self._moment(item)
        elif isinstance(item, Sample):
            yield from self._sample(item)
        else:
            yield from self._track(item)

    def _track(self, track: Track) -> Iterator[bytes]:
        self._tracks[track.id] = track
        self._places[track.id] = b',"pid":%d,"tid":%d' % (track.pid, track.tid)
        if track.kind == "counter":
            return
        process = track.kind == "process"
        of = "process" if process else "thread"
        about: dict[str, dict[str, object]] = {
            f"{of}_name": {"name": track.name},
            f"{of}_sort_index": {"sort_index": self._order(track)},
        }
        for name, arguments in about.items():
            yield (
                b'{"ph":"M"'
                + self._places[track.id]
                + b',"name":"%s","args":' % name.encode()
                + _encode(arguments)
                + b"}"
            )

    def _order(self, track: Track) -> int:
        """Lanes right below their thread: threads in the order they came."""
        if track.kind == "process":
            return track.order
        parent = self._tracks.get(track.parent)
        return 100 * (parent.id if parent is not None and track.kind == "lane" else track.id) + track.order

    def _time(self, at_ns: int) -> bytes:
        since = at_ns - self._start_ns
        sign, since = (b"-", -since) if since < 0 else (b"", since)
        return b"%s%d.%03d" % (sign, since // 1000, since % 1000)

    def _slice(self, item: Slice) -> Iterator[bytes]:
        took = item.end_ns - item.start_ns
        colour = COLOURS.get(item.category)
        yield b'{"ph":"X"%s,"ts":%s,"dur":%d.%03d,"name":%s,"cat":%s,"args":%s%s}' % (
            self._places[item.track], self._time(item.start_ns), took // 1000, took % 1000,
            self._name(item.name), self._name(item.category), _encode(dict(item.arguments)),
            b',"cname":"%s"' % colour.encode() if colour else b"",
        )  # fmt: skip
        yield from self._flows(item, item.start_ns)

    def _moment(self, item: Moment) -> Iterator[bytes]:
        # An arrow needs a slice at both ends, and one without length will do.
        flows = bool(item.flows_in or item.flows_out)
        kind = b'"X","dur":0' if flows else b'"i","s":"t"'
        yield b'{"ph":%s%s,"ts":%s,"name":%s,"cat":%s,"args":%s}' % (
            kind, self._places[item.track], self._time(item.at_ns), self._name(item.name),
            self._name(item.category), _encode(dict(item.arguments)),
        )  # fmt: skip
        yield from self._flows(item, item.at_ns)

    def _flows(self, item: Slice | Moment, at_ns: int) -> Iterator[bytes]:
        place, at = self._places[item.track], self._time(at_ns)
        for kind, flows in ((b'"s"', item.flows_out), (b'"f","bp":"e"', item.flows_in)):
            for flow in flows:
                yield b'{"ph":%s%s,"ts":%s,"id":"%d","name":"flow","cat":"flow"}' % (kind, place, at, flow)

    def _sample(self, item: Sample) -> Iterator[bytes]:
        track = self._tracks[item.track]
        yield b'{"ph":"C","pid":%d,"ts":%s,"name":%s,"args":%s}' % (
            track.pid, self._time(item.at_ns), self._name(track.name), _encode({track.unit: item.value}),
        )  # fmt: skip

    def _name(self, text: str) -> bytes:
        found = self._names.get(text)
        if found is None:
            found = _encode(text)
            if len(self._names) < 100_000:
                self._names[text] = found
        return found
