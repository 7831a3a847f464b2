"""Where data may go, and where it may not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ingero.errors import UsageError
from ingero.serve.metrics.otlp_destination import GRPC, HEADERS, parse, read_headers, refuse_leak


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("collector:4318", "https://collector:4318"),
        ("collector", "https://collector:4318"),
        ("127.0.0.1:4318", "http://127.0.0.1:4318"),
        ("localhost:9", "http://localhost:9"),
        ("[::1]:4318", "http://[::1]:4318"),
        ("http://collector:4318", "http://collector:4318"),
        ("https://collector.example/otlp/", "https://collector.example:4318/otlp"),
    ],
)
def test_an_address_means_what_it_says(text: str, url: str) -> None:
    assert parse(text, "--otlp").url == url


def test_grpc_has_its_own_port() -> None:
    assert parse("collector", "--otlp", GRPC).port == 4317


@pytest.mark.parametrize(
    "text", ["", ":4318", "ftp://x", "a b:1", "x:99999", "x:0", "http://", "x?y", "x\n:1", "http://u:p@x:1"]
)
def test_a_wrong_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text, "--otlp")


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(UsageError, match="protocol"):
        parse("x:1", "--otlp", "avro")


def test_headers_come_from_the_variable_and_a_private_file(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("# of ours\nX-Team: gpu\napi-key: from file\n")
    file.chmod(0o600)
    found = read_headers({HEADERS: "Authorization=Basic%20abc,api-key=variable"}, file)
    assert found == {"authorization": "Basic abc", "x-team": "gpu", "api-key": "from file"}
    file.chmod(0o644)
    with pytest.raises(UsageError, match="open to others"):
        read_headers({}, file)


@pytest.mark.parametrize("text", ["a=b%0d%0ax: y", "a b=c", "=c", "é=1"])
def test_a_header_cannot_smuggle_another(text: str) -> None:
    with pytest.raises(UsageError):
        read_headers({HEADERS: text}, None)


def test_a_secret_does_not_travel_readable() -> None:
    secret = {"api-key": "x"}
    with pytest.raises(UsageError, match="readable"):
        refuse_leak(replace(parse("http://collector:4318", "--otlp"), headers=secret))
    refuse_leak(replace(parse("collector:4318", "--otlp"), headers=secret))
    refuse_leak(replace(parse("127.0.0.1:4318", "--otlp"), headers=secret))
    refuse_leak(parse("http://collector:4318", "--otlp"))
    assert "api-key" not in repr(replace(parse("x:1", "--otlp"), headers=secret))
