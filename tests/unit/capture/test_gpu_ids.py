"""Device numbers become cards only where that is known."""

from __future__ import annotations

import numpy as np

from ingero.agent.gpus import number_cards
from ingero.discover.gpu_devices import FoundGpu, visible_devices
from ingero.model import layout

CARDS = [FoundGpu(0, "H200", "GPU-aa11"), FoundGpu(1, "H200", "GPU-bb22"), FoundGpu(2, "H200", "GPU-bb33")]


def calls(*rows: tuple[int, int]) -> np.ndarray:
    made = np.zeros(len(rows), layout.CALL)
    for index, (pid, device) in enumerate(rows):
        made[index]["h"]["pid"] = pid
        made[index]["gpu_id"] = device
    return made


def test_without_a_variable_devices_are_cards() -> None:
    assert visible_devices({}, CARDS) == (0, 1, 2)


def test_the_variable_reorders_and_limits_cards() -> None:
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "2,0"}, CARDS) == (2, 0)


def test_a_card_may_be_named_by_the_beginning_of_its_uuid() -> None:
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "GPU-bb22"}, CARDS) == (1,)


def test_an_ambiguous_or_unknown_name_is_unknown() -> None:
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "GPU-bb"}, CARDS) is None
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "7"}, CARDS) is None
    assert visible_devices({"CUDA_VISIBLE_DEVICES": ""}, CARDS) is None


def test_no_cards_seen_and_no_variable_is_unknown() -> None:
    assert visible_devices({}, []) is None


def test_calls_get_the_card_behind_their_device_number() -> None:
    made = calls((10, 0), (10, 1), (10, -1), (10, 5), (11, 1))
    number_cards(made, {10: (2, 0)})
    assert made["gpu_id"].tolist() == [2, 0, -1, -1, 1]


def test_the_only_visible_card_is_meant_by_a_thread_that_never_chose() -> None:
    made = calls((10, -1), (10, 0))
    number_cards(made, {10: (1,)})
    assert made["gpu_id"].tolist() == [1, 1]


MIXED = [FoundGpu(0, "slow", "GPU-aa"), FoundGpu(1, "fast", "GPU-bb")]


def test_of_cards_of_several_kinds_cuda_puts_the_fastest_first_and_which_that_is_nobody_knows() -> None:
    assert visible_devices({}, MIXED) is None
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "0"}, MIXED) is None
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "GPU-bb"}, MIXED) == (1,)


def test_in_the_order_of_the_bus_cards_of_several_kinds_are_known() -> None:
    by_bus = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert visible_devices(by_bus, MIXED) == (0, 1)
    assert visible_devices(by_bus | {"CUDA_VISIBLE_DEVICES": "1,0"}, MIXED) == (1, 0)


def test_a_container_counts_the_cards_it_was_given() -> None:
    given = {"NVIDIA_VISIBLE_DEVICES": "GPU-bb22,2"}
    assert visible_devices(given, CARDS, contained=True) == (1, 2)
    assert visible_devices(given | {"CUDA_VISIBLE_DEVICES": "1"}, CARDS, contained=True) == (2,)
    assert visible_devices({"NVIDIA_VISIBLE_DEVICES": "all"}, CARDS, contained=True) == (0, 1, 2)
    assert visible_devices({"NVIDIA_VISIBLE_DEVICES": "MIG-77"}, CARDS, contained=True) is None


def test_outside_of_a_container_what_one_would_be_given_means_nothing() -> None:
    assert visible_devices({"NVIDIA_VISIBLE_DEVICES": "2"}, CARDS) == (0, 1, 2)
