"""The parts of ingero.yaml about whose a job is and what it costs."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ingero.config_keys import Section, key

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
CA = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
Price = Annotated[float, Meta(ge=0, le=1e6)]


class Kubernetes(Section, frozen=True):
    """Where names of pods come from. The token is in a file; it is sent over TLS only."""

    kubelet: Annotated[
        str | None,
        key(
            "Ask this node's kubelet for its pods: `https://NODE:10250`, or `http://127.0.0.1:10255`."
            " If not set, no kubelet is asked.",
            "INGERO_KUBELET",
            "url",
        ),
    ] = None
    token_file: Annotated[
        str,
        key("File with the token to send; without that file none is sent.", "INGERO_KUBELET_TOKEN_FILE"),
    ] = TOKEN
    ca: Annotated[
        str,
        key(
            "CA of its certificate (PEM); without that file, those of the system.",
            "INGERO_KUBELET_CA",
        ),
    ] = CA
    verify: Annotated[
        bool,
        key(
            "Check its certificate. Many kubelets sign their own: name the CA in `ca`, or set `false`.",
            "INGERO_KUBELET_VERIFY",
        ),
    ] = True
    timeout: Annotated[
        str | int, key("How long to wait for its answer.", "INGERO_KUBELET_TIMEOUT", "duration")
    ] = "5s"


class Cost(Section, frozen=True):
    """What a GPU costs, for `ingero cost`."""

    price: Annotated[
        Price | None, key("Price per GPU-hour for models that are not in `prices`.", "INGERO_PRICE")
    ] = None
    currency: Annotated[
        str, Meta(max_length=8), key("Currency sign before every amount.", "INGERO_CURRENCY")
    ] = "$"
    prices: Annotated[
        dict[str, Price],
        key(
            "Price per hour by GPU model; the longest name that matches the GPU's name counts.",
            "INGERO_PRICES",
        ),
    ] = msgspec.field(default_factory=dict)
