"""A timeline as packets of a Perfetto trace (.pftrace).

Names and texts are written once and then referred to by number, so a slice is some
tens of bytes. A slice is two packets, begin and end: the ends that are due are
written before whatever comes next on their track.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache

from ingero.serve.answers.tracks import EVENT, Item, Moment, Sample, Slice, Track, Value

# The few parts of the protobuf encoding that a trace needs, made for speed.
#
# A general library encodes some two hundred thousand packets a second, and a trace has
# millions. Field numbers are where they are used; tests read what is written with the
# published definitions.

VARINT, FIXED64, BYTES = 0, 1, 2
_ONE = tuple(bytes([n]) for n in range(128))
_PAIR = tuple(bytes([0x80 | n & 0x7F, 0x80 | n >> 7]) for n in range(1 << 14))  # with more to come
_FIXED = struct.Struct("<Q").pack
_DOUBLE = struct.Struct("<d").pack


def varint(value: int) -> bytes:
    """A number of up to 64 bits; negative ones as their 64-bit pattern."""
    if 0 <= value < 128:
        return _ONE[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    parts = []
    while value >= 1 << 14:
        parts.append(_PAIR[value & 0x3FFF])
        value >>= 14
    if value >= 128:
        parts.append(_ONE_MORE[value & 0x7F])
        value >>= 7
    parts.append(_ONE[value])
    return b"".join(parts)


_ONE_MORE = tuple(bytes([0x80 | n]) for n in range(128))


@lru_cache(maxsize=4096)
def _upper(value: int) -> bytes:
    return varint(value)


def instant(ns: int) -> bytes:
    """As varint, for times that lie close together: their upper part is made once."""
    return _PAIR[ns & 0x3FFF] + _PAIR[ns >> 14 & 0x3FFF] + _upper(ns >> 28) if ns >= 1 << 28 else varint(ns)


def tag(number: int, kind: int) -> bytes:
    return varint(number << 3 | kind)


def number_field(number: int, value: int) -> bytes:
    return tag(number, VARINT) + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """Also of messages and text."""
    return tag(number, BYTES) + varint(len(value)) + value


def text_field(number: int, text: str) -> bytes:
    return bytes_field(number, text.encode("utf-8", "replace"))


def fixed_field(number: int, value: int) -> bytes:
    return tag(number, FIXED64) + _FIXED(value & 0xFFFF_FFFF_FFFF_FFFF)


def double_field(number: int, value: float) -> bytes:
    return tag(number, FIXED64) + _DOUBLE(value)


# TracePacket
_TIMESTAMP, _SEQUENCE, _FLAGS = tag(8, 0), number_field(10, 1), 13
_EVENT = tag(11, 2)
_CLOCKS, _INTERNED, _DESCRIPTOR = 6, 12, 60
_CLEARED, _NEEDED = number_field(_FLAGS, 1), number_field(_FLAGS, 2)
# TrackEvent
_TYPE, _TRACK, _NAME, _CATEGORY, _ARGUMENT = 9, tag(11, 0), tag(10, 0), tag(3, 0), tag(4, 2)
_BEGIN, _END, _INSTANT, _COUNTER = (number_field(_TYPE, kind) for kind in (1, 2, 3, 4))
_FLOW_OUT, _FLOW_IN, _DOUBLE_VALUE = 47, 48, 44
# InternedData: which table of it each kind of text is in
_CATEGORIES, _NAMES, _ARGUMENT_NAMES, _TEXTS = 1, 2, 3, 29
_PACKET = tag(1, 2)
_BOOTTIME, _REALTIME = 6, 1
MOST_TEXTS = 50_000  # longer texts beyond are written in place, so that memory stays small


class Packets:
    """Writes one trace."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, str], bytes] = {}
        self._counts = {_CATEGORIES: 0, _NAMES: 0, _ARGUMENT_NAMES: 0, _TEXTS: 0}
        self._news: list[bytes] = []  # texts met for the first time
        self._open: dict[int, list[int]] = {}  # ends, by track
        self._heads: dict[tuple[int, str, str], bytes] = {}
        self._ends: dict[int, bytes] = {}  # of a packet that ends a slice, by track: all but its time
        self._known: dict[tuple[str, Value], bytes] = {}  # arguments that come again and again

    def packets(self, items: Iterable[Item], start_ns: int) -> Iterator[bytes]:
        """Parts of the file, in order."""
        yield _packet(_clock_snapshot(start_ns))
        yield _packet(_SEQUENCE + _CLEARED)
        for item in items:
            if isinstance(item, Slice):
                yield self._slice(item)
            elif isinstance(item, Moment):
                yield self._moment(item)
            elif isinstance(item, Sample):
                yield self._sample(item)
            else:
                yield _packet(_SEQUENCE + bytes_field(_DESCRIPTOR, _descriptor(item)))
        for track, ends in self._open.items():
            yield b"".join(self._ended(track, end) for end in reversed(ends))

    def _due(self, track: int, at_ns: int) -> tuple[list[int], bytes]:
        """The ends on this track up to an instant."""
        ends = self._open.get(track)
        if ends is None:
            ends = self._open[track] = []
        due = b""
        while ends and ends[-1] <= at_ns:
            due += self._ended(track, ends.pop())
        return ends, due

    def _ended(self, track: int, at_ns: int) -> bytes:
        rest = self._ends.get(track)
        if rest is None:
            event = _END + _TRACK + varint(track)
            rest = self._ends[track] = _SEQUENCE + _NEEDED + _EVENT + varint(len(event)) + event
        time = instant(at_ns)
        return _PACKET + varint(1 + len(time) + len(rest)) + _TIMESTAMP + time + rest

    def _slice(self, item: Slice) -> bytes:
        track, start_ns, end_ns, name, category, arguments, flows_in, flows_out = item
        ends, due = self._due(track, start_ns)
        body = _BEGIN + self._head(track, name, category) + self._arguments(arguments)
        if flows_in or flows_out:
            body += _flows(flows_in, flows_out)
        begin = _timed(start_ns, body)
        if end_ns <= start_ns:  # nothing can come between
            begin += self._ended(track, start_ns)
        else:
            ends.append(end_ns)
        return due + self._interned() + begin if self._news else due + begin

    def _moment(self, item: Moment) -> bytes:
        _, due = self._due(item.track, item.at_ns)
        body = _INSTANT + self._head(item.track, item.name, item.category) + self._arguments(item.arguments)
        body += _flows(item.flows_in, item.flows_out)
        return due + self._interned() + _timed(item.at_ns, body)

    def _sample(self, item: Sample) -> bytes:
        body = _COUNTER + _TRACK + varint(item.track) + double_field(_DOUBLE_VALUE, item.value)
        return _timed(item.at_ns, body)

    def _head(self, track: int, name: str, category: str) -> bytes:
        key = (track, name, category)
        head = self._heads.get(key)
        if head is None:
            head = _TRACK + varint(track) + _NAME + self._number(_NAMES, name)
            head += _CATEGORY + self._number(_CATEGORIES, category)
            if len(self._heads) < MOST_TEXTS:
                self._heads[key] = head
        return head

    def _arguments(self, arguments: tuple[tuple[str, Value], ...]) -> bytes:
        known = self._known
        return b"".join([known.get(each) or self._argument(each) for each in arguments])

    def _argument(self, argument: tuple[str, Value]) -> bytes:
        name, value = argument
        body = b"\x08" + self._number(_ARGUMENT_NAMES, name)
        if isinstance(value, str):
            body += self._text(value)
        elif isinstance(value, int):
            body += b"\x20" + varint(value)
        else:
            body += double_field(5, value)
        made = _ARGUMENT + varint(len(body)) + body
        if name != EVENT and len(self._known) < MOST_TEXTS:  # an event's number never comes again
            self._known[argument] = made
        return made

    def _text(self, text: str) -> bytes:
        if self._counts[_TEXTS] >= MOST_TEXTS and (_TEXTS, text) not in self._numbers:
            return text_field(6, text)
        return b"\x88\x01" + self._number(_TEXTS, text)

    def _number(self, table: int, text: str) -> bytes:
        number = self._numbers.get((table, text))
        if number is None:
            self._counts[table] += 1
            number = self._numbers[table, text] = varint(self._counts[table])
            self._news.append(bytes_field(table, b"\x08" + number + text_field(2, text)))
        return number

    def _interned(self) -> bytes:
        if not self._news:
            return b""
        news = b"".join(self._news)
        self._news.clear()
        return _packet(_SEQUENCE + _NEEDED + bytes_field(_INTERNED, news))


def _packet(body: bytes) -> bytes:
    return _PACKET + varint(len(body)) + body


def _timed(at_ns: int, event: bytes) -> bytes:
    body = _TIMESTAMP + instant(at_ns) + _SEQUENCE + _NEEDED + _EVENT + varint(len(event)) + event
    return _PACKET + varint(len(body)) + body


def _flows(flows_in: tuple[int, ...], flows_out: tuple[int, ...]) -> bytes:
    out = b"".join(fixed_field(_FLOW_OUT, flow) for flow in flows_out)
    return out + b"".join(fixed_field(_FLOW_IN, flow) for flow in flows_in)


def _clock_snapshot(start_ns: int) -> bytes:
    """Times are Unix time: on the trace's own clock, so that a viewer can show the time of day."""
    clocks = (number_field(1, clock) + number_field(2, start_ns) for clock in (_BOOTTIME, _REALTIME))
    return number_field(8, start_ns) + _SEQUENCE + bytes_field(
        _CLOCKS, b"".join(bytes_field(1, clock) for clock in clocks) + number_field(2, _BOOTTIME)
    )  # fmt: skip


def _descriptor(track: Track) -> bytes:
    body = number_field(1, track.id) + text_field(2, track.name)
    if track.parent:
        body += number_field(5, track.parent)
    if track.kind == "process":
        body += bytes_field(3, number_field(1, track.pid) + text_field(6, track.name))
        body += number_field(11, 3)  # children in the order given
    elif track.kind == "thread":
        ids = number_field(1, track.pid) + number_field(2, track.tid)
        body += bytes_field(4, ids + text_field(5, track.name))
    elif track.kind == "counter":
        body += bytes_field(8, text_field(6, track.unit))
    return body + number_field(12, track.order)
