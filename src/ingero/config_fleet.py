"""The parts of ingero.yaml about other machines: those that are asked, and the one that is told."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ingero.config_keys import Section, key


class Fleet(Section, frozen=True):
    """The other machines."""

    nodes: Annotated[
        list[str],
        key("Their addresses, `HOST:PORT`, or `@FILE` with one per line.", "INGERO_FLEET_NODES", "addresses"),
    ] = msgspec.field(default_factory=list)
    ca_cert: Annotated[
        str | None, key("Authority of the nodes' certificates, PEM.", "INGERO_FLEET_CA_CERT")
    ] = None
    client_cert: Annotated[str | None, key("Certificate we show them, PEM.", "INGERO_FLEET_CLIENT_CERT")] = (
        None
    )
    client_key: Annotated[str | None, key("File with its private key, PEM.", "INGERO_FLEET_CLIENT_KEY")] = (
        None
    )
    token_file: Annotated[
        str | None,
        key("File with the token we show them; else `INGERO_TOKEN`.", "INGERO_FLEET_TOKEN_FILE"),
    ] = None
    timeout: Annotated[
        str | int, key("Longest one node may take to answer.", "INGERO_FLEET_TIMEOUT", "duration")
    ] = "30s"
    at_once: Annotated[
        int, Meta(ge=1, le=512), key("Nodes asked at the same time.", "INGERO_FLEET_AT_ONCE")
    ] = 32
    max_answer: Annotated[
        str | int, key("Most that one node may answer.", "INGERO_FLEET_MAX_ANSWER", "size")
    ] = "256m"
    clock_warning: Annotated[
        str | int,
        key("Clocks further apart than this are pointed out.", "INGERO_FLEET_CLOCK_WARNING", "duration"),
    ] = "10ms"


class Collector(Section, frozen=True):
    """Who is told how this machine does, all the time."""

    address: Annotated[
        str | None, key("Report this node's health to this collector, as `--fleet` does.", "INGERO_FLEET")
    ] = None
    cluster: Annotated[
        str | None, key("Name of the cluster in what is told.", "INGERO_COLLECTOR_CLUSTER")
    ] = None
    token_file: Annotated[
        str | None,
        key("Private file with this node's token; else `INGERO_NODE_TOKEN`.", "INGERO_COLLECTOR_TOKEN_FILE"),
    ] = None
    ca_cert: Annotated[
        str | None, key("Authority of the collector's certificate, PEM.", "INGERO_COLLECTOR_CA_CERT")
    ] = None
    client_cert: Annotated[
        str | None, key("This node's certificate, PEM.", "INGERO_COLLECTOR_CLIENT_CERT")
    ] = None
    client_key: Annotated[str | None, key("File with its key, PEM.", "INGERO_COLLECTOR_CLIENT_KEY")] = None
    spool: Annotated[
        str | None, key("Folder for what the collector has not taken yet.", "INGERO_COLLECTOR_SPOOL")
    ] = None
