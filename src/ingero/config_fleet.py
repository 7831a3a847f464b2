"""The parts of ingero.yaml about other machines: those that are asked, and the one that is told."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ingero.config_keys import Section, key


class Fleet(Section, frozen=True):
    """Other machines that can be asked."""

    nodes: Annotated[
        list[str],
        key("Their addresses, `HOST:PORT`, or `@FILE` with one per line.", "INGERO_FLEET_NODES", "addresses"),
    ] = msgspec.field(default_factory=list)
    ca_cert: Annotated[
        str | None, key("CA that signed the nodes' certificates (PEM).", "INGERO_FLEET_CA_CERT")
    ] = None
    client_cert: Annotated[
        str | None, key("Client certificate to send to them (PEM).", "INGERO_FLEET_CLIENT_CERT")
    ] = None
    client_key: Annotated[str | None, key("File with its private key, PEM.", "INGERO_FLEET_CLIENT_KEY")] = (
        None
    )
    token_file: Annotated[
        str | None,
        key("File with the token to send to them. Default: `INGERO_TOKEN`.", "INGERO_FLEET_TOKEN_FILE"),
    ] = None
    timeout: Annotated[
        str | int, key("How long to wait for each node.", "INGERO_FLEET_TIMEOUT", "duration")
    ] = "30s"
    at_once: Annotated[
        int, Meta(ge=1, le=512), key("Nodes asked at the same time.", "INGERO_FLEET_AT_ONCE")
    ] = 32
    max_answer: Annotated[
        str | int, key("Largest answer accepted from one node.", "INGERO_FLEET_MAX_ANSWER", "size")
    ] = "256m"
    clock_warning: Annotated[
        str | int,
        key("Warn when clocks are further apart than this.", "INGERO_FLEET_CLOCK_WARNING", "duration"),
    ] = "10ms"


class Collector(Section, frozen=True):
    """The collector that this machine reports its health to, all the time."""

    address: Annotated[
        str | None, key("Report this node's health to this collector, as `--fleet` does.", "INGERO_FLEET")
    ] = None
    cluster: Annotated[str | None, key("Name of the cluster in the reports.", "INGERO_COLLECTOR_CLUSTER")] = (
        None
    )
    token_file: Annotated[
        str | None,
        key(
            "Private file with this node's token. Default: `INGERO_NODE_TOKEN`.",
            "INGERO_COLLECTOR_TOKEN_FILE",
        ),
    ] = None
    ca_cert: Annotated[
        str | None, key("CA of the collector's certificate (PEM).", "INGERO_COLLECTOR_CA_CERT")
    ] = None
    client_cert: Annotated[
        str | None, key("This node's certificate (PEM).", "INGERO_COLLECTOR_CLIENT_CERT")
    ] = None
    client_key: Annotated[str | None, key("File with its key (PEM).", "INGERO_COLLECTOR_CLIENT_KEY")] = None
    spool: Annotated[
        str | None,
        key("Folder for reports that the collector has not accepted yet.", "INGERO_COLLECTOR_SPOOL"),
    ] = None
