"""Texts that people and jobs write: the configuration, labels, durations and times."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from benchmarks.fuzz.target import Try
from ingero import config, units
from ingero.agent.annotations import Annotations
from ingero.agent.annotations import parse as parse_message
from ingero.agent.tenants import Tenants
from ingero.discover import container_names, kubelet
from ingero.errors import IngeroError
from ingero.model.window import Container
from ingero.serve.answers.window import parse_instant
from tests.a_runtime import POD, container, sandbox
from tests.builders import window as empty_window

PARSERS = (units.parse_duration, units.parse_size, parse_instant, config.parse_overhead, config.check_node)


@contextmanager
def read_config() -> Iterator[Try]:
    names = [key.variable for key in config.keys()]  # noqa: SIM118 - a function

    def attempt(data: bytes) -> None:
        text = data.decode("utf-8", "replace")[:200]
        with suppress(IngeroError):
            config.with_variables(config.Config(), {names[len(data) % len(names)]: text})
        config.parse(data, "ingero.yaml")

    yield attempt


@contextmanager
def read_words() -> Iterator[Try]:
    def attempt(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        for parse in PARSERS:
            try:
                parse(text)
            except IngeroError:
                continue

    yield attempt


@contextmanager
def read_labels() -> Iterator[Try]:
    """Datagrams as they come through the socket, from many users."""
    heard = Annotations(lambda pid: pid % 2 == 0)
    me = os.getpid()

    def attempt(data: bytes) -> None:
        parse_message(data, 10**12)
        heard.hear(data, (me, len(data) % 50))
        taken, _ = heard.take({me: None, 2: None}, ())
        for label in taken:
            if any(each < " " for each in label.key + label.value):
                raise AssertionError(f"it steers a terminal: {label}")
        heard.take_losses()

    yield attempt


@contextmanager
def read_pods() -> Iterator[Try]:
    """What a kubelet answers; the names in it are chosen by whoever made the pods."""

    def attempt(data: bytes) -> None:
        for pod in kubelet.pods_of(data):
            said = [pod.name, pod.namespace, *(text for label in pod.labels for text in label)]
            if any(each < " " or each == "\x7f" for text in said if text for each in text):
                raise AssertionError(f"it steers a terminal: {pod}")

    yield attempt


def runtime_answers() -> Sequence[bytes]:
    """A node's containers, and then its pods: both are lists of the same form, so one input is both."""
    labels = {"app": "bert", "batch.kubernetes.io/job-name": "nightly"}
    of_pod = container("a" * 64, POD, attempt=3) + sandbox(labels)
    return [of_pod, of_pod + container("b" * 64, {"app": "no pod"}, of_pod=b""), sandbox({}, of=b"x" * 64)]


@contextmanager
def read_runtime() -> Iterator[Try]:
    """What containerd and CRI-O answer, through to what happened to the pods."""

    def attempt(data: bytes) -> None:
        named = container_names.named_in(data, data)
        tenants = Tenants(None, since_ns=0, ask_names=lambda _: named)
        window = empty_window(0)
        window.containers = [Container(at, "/x", number) for at, number in enumerate(named, 1)]
        tenants.fill(window, {})
        tenants.look()
        tenants.fill(window, {})
        said = [text for each in window.containers for pair in each.labels for text in pair]
        said += [text for each in window.pod_events for text in (each.pod, each.namespace, each.container)]
        if any(letter < " " or letter == "\x7f" for text in said for letter in text):
            raise AssertionError(f"it steers a terminal: {said}")
        for each in window.pod_events:
            numbers = each.at_ns, each.restarts or 0
            if not all(-(1 << 63) <= number < 1 << 63 for number in numbers):
                raise AssertionError(f"no database holds it: {each}")

    yield attempt
