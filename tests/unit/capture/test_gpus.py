"""Cards asked through nvidia-ml-py, which loads a library of our own."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingero.capture import gpu_poller
from ingero.capture.gpu_cards import CardReader
from ingero.capture.gpu_poller import GpuPoller
from ingero.model.gpus import GpuSample
from ingero.native.nvml import CardLostError, Nvml
from tests import nvml
from tests.nvml import Cards, wait_for

pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
FUNCTION_NOT_FOUND = 13
NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, LOST, UNKNOWN = 3, 4, 9, 15, 999


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = nvml.build(tmp_path_factory.mktemp("nvml"))
    nvml.load(made)
    return made


@pytest.fixture
def cards(library: Path, tmp_path: Path) -> Iterator[Cards]:
    made = Cards(tmp_path / "cards")
    made.use()
    yield made
    made.set(hang=0)
    os.environ.pop(nvml.STATE, None)


@pytest.fixture
def poller() -> Iterator[GpuPoller]:
    made = GpuPoller(every_s=0.02)
    yield made
    made.stop(5.0)


def reader(gpu_id: int = 0) -> CardReader:
    return CardReader(Nvml(), gpu_id, "580.1")


def test_a_card_and_its_limits_are_described(cards: Cards) -> None:
    cards.set(max_sm_clock=1980, set_sm_clock=1500, power_limit_default=650000, mig=1, compute_mode=3)
    card = reader().card()
    assert (card.gpu_id, card.name, card.uuid) == (0, "Stub H200", "GPU-00000000-0000-0000-0000-000000000000")
    assert (card.memory_bytes, card.slowdown_c) == (150754820096, 90)
    assert (card.sm_clock_max_mhz, card.sm_clock_set_mhz, card.power_limit_default_mw) == (1980, 1500, 650000)
    assert (card.pcie_gen_max, card.pcie_width_max) == (5, 16)
    assert (card.mig, card.compute_mode, card.unsupported) == (True, "exclusive_process", ())


def test_a_sample_holds_what_the_card_says(cards: Cards) -> None:
    cards.set(
        gpu_percent=35, memory_percent=12, memory_used=7 << 30, now_sm_clock=1200, now_memory_clock=2600
    )
    cards.set(reasons=0x48, power=612000, power_limit=650000, temperature=88, memory_temperature=95)
    cards.set(pcie_gen=4, pcie_width=8, pcie_rx_kb=2000, pcie_tx_kb=3000, ecc_corrected=7, ecc_uncorrected=1)
    cards.set(ecc_corrected_ever=70, ecc_uncorrected_ever=2, rows_corrected=3, rows_uncorrected=1)
    cards.set(remap_pending=1, remap_failed=0)
    found = reader().sample()
    assert found.gpu_share == pytest.approx(0.35)
    assert found.memory_busy_share == pytest.approx(0.12)
    assert (found.memory_used_bytes, found.sm_clock_mhz, found.memory_clock_mhz) == (7 << 30, 1200, 2600)
    assert (found.reasons, found.power_mw, found.power_limit_mw) == (0x48, 612000, 650000)
    assert (found.temperature_c, found.memory_temperature_c) == (88, 95)
    assert (found.pcie_gen, found.pcie_width) == (4, 8)
    assert (found.pcie_rx_bytes_per_s, found.pcie_tx_bytes_per_s) == (2000 * 1024, 3000 * 1024)
    assert (found.ecc_corrected, found.ecc_uncorrected) == (7, 1)
    assert (found.ecc_corrected_ever, found.ecc_uncorrected_ever) == (70, 2)
    assert (found.rows_remapped, found.remap_pending, found.remap_failed) == (4, True, False)


def test_the_driver_s_own_samples_come_before_the_last_moment(cards: Cards) -> None:
    cards.set(gpu_percent=90, buffer_percent=40)
    assert reader().sample().gpu_share == pytest.approx(0.40)
    cards.fail("nvmlDeviceGetSamples", NOT_SUPPORTED)
    assert reader().sample().gpu_share == pytest.approx(0.90)


def test_time_held_down_is_counted_from_sample_to_sample(cards: Cards) -> None:
    looking = reader()
    cards.set(heat_capped_ns=5_000_000)
    assert looking.sample().heat_capped_ns is None  # since when is not known
    cards.set(heat_capped_ns=305_000_000)
    assert looking.sample().heat_capped_ns == 300_000_000
    cards.set(heat_capped_ns=0)  # the driver was loaded anew
    assert looking.sample().heat_capped_ns is None


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        ("nvmlDeviceGetPowerUsage", ("power_mw",)),
        ("nvmlDeviceGetCurrentClocksEventReasons", ("reasons",)),
        ("nvmlDeviceGetTotalEccErrors", ("ecc_corrected", "ecc_uncorrected", "ecc_uncorrected_ever")),
        ("nvmlDeviceGetRemappedRows", ("rows_remapped", "remap_pending", "remap_failed")),
        ("nvmlDeviceGetPcieThroughput", ("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s")),
        ("nvmlDeviceGetFieldValues", ("memory_temperature_c",)),
    ],
)
def test_what_a_card_does_not_tell_is_unknown_and_not_zero(
    cards: Cards, function: str, fields: tuple[str, ...]
) -> None:
    cards.fail(function, NOT_SUPPORTED)
    looking = reader()
    found = looking.sample()
    assert [getattr(found, name) for name in fields] == [None] * len(fields)
    assert found.sm_clock_mhz == 1980
    assert any(each.startswith(function) for each in looking.card().unsupported)


def test_memory_in_use_is_asked_the_old_way_where_the_new_one_is_not_known(cards: Cards) -> None:
    cards.set(memory_used=9 << 30).fail("nvmlDeviceGetMemoryInfo_v2", NOT_SUPPORTED)
    looking = reader()
    assert looking.sample().memory_used_bytes == 9 << 30
    cards.fail("nvmlDeviceGetMemoryInfo", NOT_SUPPORTED)  # a card that shares the host's memory
    assert looking.sample().memory_used_bytes is None


def test_an_older_driver_tells_the_temperature_by_its_old_name(cards: Cards) -> None:
    cards.set(temperature=71).fail("nvmlDeviceGetTemperatureV", FUNCTION_NOT_FOUND)
    assert reader().sample().temperature_c == 71


def test_what_is_not_supported_is_asked_once(cards: Cards) -> None:
    cards.fail("nvmlDeviceGetPowerUsage", NOT_SUPPORTED)
    looking = reader()
    looking.sample()
    cards.fail("nvmlDeviceGetPowerUsage", 0)
    assert looking.sample().power_mw is None
    assert reader().sample().power_mw == 500000


def test_a_passing_error_is_asked_again(cards: Cards) -> None:
    cards.fail("nvmlDeviceGetPowerUsage", UNKNOWN)
    looking = reader()
    assert looking.sample().power_mw is None
    cards.fail("nvmlDeviceGetPowerUsage", 0)
    assert looking.sample().power_mw == 500000


def test_processes_on_a_card_are_named_with_what_they_hold_and_use(cards: Cards) -> None:
    cards.process(os.getpid(), 3 << 30, 60).process(0x7FFFFFFF, 1 << 30, 25)
    found = {each.pid: each for each in reader().processes(123)}
    me, gone = found[os.getpid()], found[0x7FFFFFFF]
    assert (me.memory_bytes, me.at_ns) == (3 << 30, 123)
    assert me.sm_share == pytest.approx(0.60)
    assert me.comm == Path("/proc/self/comm").read_text().strip()
    assert (gone.comm, gone.memory_bytes) == (None, 1 << 30)


def test_memory_of_a_process_that_is_not_told_is_unknown(cards: Cards) -> None:
    cards.process(os.getpid(), 2**64 - 1, 10)
    cards.fail("nvmlDeviceGetProcessUtilization", NOT_SUPPORTED)
    (found,) = reader().processes(0)
    assert (found.memory_bytes, found.sm_share) == (None, None)


def test_a_lost_card_is_an_error_of_its_own(cards: Cards) -> None:
    looking = reader()
    cards.fail("nvmlDeviceGetUtilizationRates", LOST)
    with pytest.raises(CardLostError):
        looking.sample()


def test_every_card_is_sampled_again_and_again(cards: Cards, poller: GpuPoller) -> None:
    cards.set(cards=2, **{"1.gpu_percent": 10})
    found = wait_for(poller.start(), lambda news: sum(each.gpu_id == 1 for each in news.samples) >= 3)
    assert sorted(card.gpu_id for card in found.cards) == [0, 1]
    assert {each.gpu_share for each in found.samples if each.gpu_id == 1} == {0.10}
    assert not found.trouble


def test_a_card_is_described_again_only_when_something_changed(
    cards: Cards, poller: GpuPoller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_poller, "CARDS_EVERY_NS", 0)
    wait_for(poller.start(), lambda news: len(news.samples) >= 2)
    assert not wait_for(poller, lambda news: len(news.samples) >= 2).cards
    cards.set(set_sm_clock=900)
    found = wait_for(poller, lambda news: bool(news.cards))
    assert found.cards[0].sm_clock_set_mhz == 900


def test_no_driver_is_told_once(cards: Cards, poller: GpuPoller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_poller, "AGAIN_S", 0.01)
    cards.fail("nvmlInitWithFlags", DRIVER_NOT_LOADED)
    found = wait_for(poller.start(), lambda news: bool(news.trouble))
    assert found.trouble == ("NVML: Driver Not Loaded",)
    assert not found.samples
    assert not poller.take().trouble
    cards.fail("nvmlInitWithFlags", 0)  # and when it comes, it is watched
    assert wait_for(poller, lambda news: bool(news.samples)).samples


def test_a_driver_that_goes_away_while_we_look_and_comes_back(
    cards: Cards, poller: GpuPoller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_poller, "AGAIN_S", 0.01)
    wait_for(poller.start(), lambda news: bool(news.samples))
    cards.fail("nvmlDeviceGetUtilizationRates", DRIVER_NOT_LOADED)
    assert "Driver Not Loaded" in wait_for(poller, lambda news: bool(news.trouble)).trouble[0]
    cards.fail("nvmlDeviceGetUtilizationRates", 0)
    assert wait_for(poller, lambda news: bool(news.samples)).samples


def test_a_card_that_falls_off_the_bus_is_told_and_its_neighbour_still_watched(
    cards: Cards, poller: GpuPoller
) -> None:
    cards.set(cards=2)
    wait_for(poller.start(), lambda news: len(news.samples) >= 2)
    cards.fail("nvmlDeviceGetUtilizationRates", 0).set(**{"1.error.nvmlDeviceGetUtilizationRates": LOST})

    def both(news: object) -> bool:
        samples: tuple[GpuSample, ...] = news.samples  # type: ignore[attr-defined]
        lost = [at for at, each in enumerate(samples) if each.lost]
        return bool(lost) and any(each.gpu_id == 0 for each in samples[lost[0] :])

    found = wait_for(poller, both)
    assert [why for why in found.trouble if "GPU 1" in why] == ["GPU 1: GPU is lost"]
    lost = next(each for each in found.samples if each.lost)
    assert (lost.gpu_id, lost.gpu_share, lost.power_mw) == (1, None, None)


def test_no_permission_is_told_once(cards: Cards, poller: GpuPoller) -> None:
    cards.fail("nvmlDeviceGetProcessUtilization", NO_PERMISSION)
    found = wait_for(poller.start(), lambda news: len(news.samples) >= 3)
    assert found.trouble == ("GPU 0: no permission to ask for nvmlDeviceGetProcessUtilization",)


def test_a_driver_that_hangs_holds_nobody_up_and_is_told_once(
    cards: Cards, poller: GpuPoller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_poller, "HUNG_NS", 50_000_000)
    wait_for(poller.start(), lambda news: bool(news.samples))
    cards.set(hang=1)
    found = wait_for(poller, lambda news: bool(news.trouble))
    assert "not answered" in found.trouble[0]
    assert not poller.take().samples  # returns, and with nothing
    cards.set(hang=0)
    assert wait_for(poller, lambda news: bool(news.samples)).samples


def test_stopping_does_not_wait_for_a_driver_that_hangs(cards: Cards) -> None:
    poller = GpuPoller(every_s=0.02)
    wait_for(poller.start(), lambda news: bool(news.samples))
    cards.set(hang=1)
    stopped = threading.Thread(target=poller.stop)
    stopped.start()
    stopped.join(10.0)
    assert not stopped.is_alive()
    cards.set(hang=0)
