"""--prometheus and --otlp: flags, keys and variables lead to the right place, or to a clear word."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ingero.config import Config, parse
from ingero.errors import UsageError
from ingero.model.gpus import Prices
from ingero.model.live import QuietSurface
from ingero.model.metrics import SeriesLimits
from ingero.serve.cli.exporters import _destination, exported
from ingero.serve.metrics.surface import Exported

ENDPOINT, HEADERS = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (ENDPOINT, HEADERS, "OTEL_EXPORTER_OTLP_PROTOCOL", "INGERO_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def config(text: str = "") -> Config:
    return parse(text.encode(), "ingero.yaml") if text else Config()


def test_nothing_asked_for_changes_nothing() -> None:
    surface = QuietSurface()
    assert exported(surface, config(), None, None) is surface


def test_the_variable_every_opentelemetry_program_honours_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:4318")
    said = config("metrics: {processes: 5, keep: 1m}\ncost: {price: 2.5, prices: {H100: 3}, currency: EUR}")
    made = exported(QuietSurface(), said, None, None)
    assert isinstance(made, Exported)
    assert made.metric_limits == SeriesLimits(5, 24, 60_000_000_000)
    assert made.metric_prices == Prices(2.5, {"H100": 3.0}, "EUR")
    made.run(lambda: 0)


def test_keys_and_variables_say_how_it_is_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(HEADERS, "api-key=abc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    found = _destination("collector:4318", config("otlp: {timeout: 3s, ca: /x/ca.pem}"))
    assert (found.url, found.protocol, found.timeout_s) == ("https://collector:4318", "http", 3.0)
    assert (found.headers, found.ca) == ({"api-key": "abc"}, Path("/x/ca.pem"))
    assert _destination("collector", config("otlp: {protocol: grpc}")).port == 4317


def test_a_secret_is_not_sent_readable_to_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEADERS, "api-key=abc")
    with pytest.raises(UsageError, match="readable") as refused:
        exported(QuietSurface(), config(), None, "http://collector:4318")
    assert "abc" not in f"{refused.value.message} {refused.value.hint}"


@pytest.mark.parametrize(
    ("package", "flags", "extra"),
    [
        ("prometheus_client", ("127.0.0.1:0", None), "ingero[prometheus]"),
        ("opentelemetry.proto.common.v1.common_pb2", (None, "127.0.0.1:1"), "ingero[otlp]"),
    ],
)
def test_a_missing_package_is_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, package: str, flags: tuple[str | None, str | None], extra: str
) -> None:
    for name in [name for name in sys.modules if name.startswith("ingero.serve.metrics")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match="not installed") as missing:
        exported(QuietSurface(), config(), *flags)
    assert extra in missing.value.hint


def test_nothing_listens_when_the_other_way_out_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--otlp"):
        exported(QuietSurface(), config(), "127.0.0.1:0", "not an address")
    assert not (tmp_path / ".ingero").exists()


def test_a_server_is_opened_before_the_trace_and_closed_after_it(capsys: pytest.CaptureFixture[str]) -> None:
    made = exported(QuietSurface(), config(), "http://127.0.0.1:0", None)
    assert "metrics: http://127.0.0.1:" in capsys.readouterr().err
    assert made.run(lambda: 7) == 7


@pytest.mark.parametrize("address", ["http://0.0.0.0", "0.0.0.0", "http://", "https://0.0.0.0/"])
def test_an_address_without_a_port_is_told_the_form(address: str) -> None:
    with pytest.raises(UsageError, match="--prometheus: not an address") as refused:
        exported(QuietSurface(), config(), address, None)
    assert "HOST:PORT" in refused.value.hint
    assert ":9090" in refused.value.hint


def test_plain_http_beyond_this_machine_is_refused_in_the_words_it_was_asked_with() -> None:
    with pytest.raises(UsageError, match="http:// would send") as refused:
        exported(QuietSurface(), config(), "http://0.0.0.0:9191", None)
    assert "127.0.0.1:9191" in refused.value.hint
    assert "--no-tls" not in refused.value.hint
