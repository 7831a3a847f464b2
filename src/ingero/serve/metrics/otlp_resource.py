"""Whom OTLP data is about, in the words of OpenTelemetry's semantic conventions.

The machine is one resource, each process with series of its own another. Every resource
has a service.instance.id of its own: receivers that keep only that of a resource can still
tell series apart.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ingero import __version__
from ingero.model.metrics import LABELS, PROCESS

SERVICE = "ingero"
SCOPE = InstrumentationScope(name="ingero", version=__version__)
Value = str | int | float | bool
PLACES = tuple(LABELS[name][0] for name in PROCESS)


def attributes(pairs: Iterable[tuple[str, Value]]) -> list[KeyValue]:
    """Those with a value; an empty string is none."""
    return [KeyValue(key=key, value=_any(value)) for key, value in pairs if value != ""]


def _any(value: Value) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(string_value=value)


def host_resource(node: str, environ: Mapping[str, str]) -> dict[str, Value]:
    """The machine and this agent; OTEL_RESOURCE_ATTRIBUTES adds, OTEL_SERVICE_NAME renames."""
    found: dict[str, Value] = {
        "service.name": SERVICE,
        "service.version": __version__,
        "service.instance.id": node,
        "host.name": node,
        "host.arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "os.type": "linux",
    }
    for pair in environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        key, equals, value = pair.partition("=")
        if equals and key.strip():
            found[key.strip()] = unquote(value.strip())
    if environ.get("OTEL_SERVICE_NAME"):
        found["service.name"] = environ["OTEL_SERVICE_NAME"]
    return found


def process_values(labels: tuple[str, ...]) -> dict[str, Value]:
    """What stands in the labels of a process."""
    named: dict[str, Value] = dict(zip(PLACES, labels, strict=True))
    if labels[0].isdecimal():
        named["process.pid"] = int(labels[0])
    return {key: value for key, value in named.items() if value != ""}


def process_resource(host: Mapping[str, Value], labels: tuple[str, ...]) -> Resource:
    """The machine with one process on it."""
    name = f"{host['service.instance.id']}:{labels[0] or labels[1]}"
    values = {**host, **process_values(labels), "service.instance.id": name}
    return Resource(attributes=attributes(values.items()))


def resource(values: Mapping[str, Value]) -> Resource:
    return Resource(attributes=attributes(values.items()))
