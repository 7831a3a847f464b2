"""Which GPU a process means by its device numbers.

CUDA counts the devices a process may see from 0; users and NVML count cards by their
place on the bus. Between them stand CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER (unless it is
PCI_BUS_ID, CUDA puts the fastest card first, and only among cards of one kind the order
is still that of the bus) and, in a container, which cards it was given. Where one of them
names something unknown here, the answer is unknown, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingero.discover.gpus import Gpu

Devices = tuple[int, ...]  # card by device number
NOT_A_LIST = frozenset({"", "all", "void", "none"})


def visible_devices(
    environment: Mapping[str, str], gpus: Sequence[Gpu], contained: bool = False
) -> Devices | None:
    """Cards in the order the process counts them; None when that cannot be known."""
    given = _given(environment, gpus) if contained else list(gpus)
    if given is None:
        return None
    by_bus = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({gpu.name for gpu in given}) <= 1
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return tuple(gpu.index for gpu in given) or None if by_bus or len(given) == 1 else None
    return _chosen(named, given, by_bus)


def _chosen(named: str, given: Sequence[Gpu], by_bus: bool) -> Devices | None:
    chosen: list[int] = []
    for word in (part.strip() for part in named.split(",")):
        if _is_number(word) and not by_bus:
            return None
        card = _card(word, given)
        if card is None:
            break  # CUDA itself stops at the first entry it does not know
        chosen.append(card)
    return tuple(chosen) or None


def _given(environment: Mapping[str, str], gpus: Sequence[Gpu]) -> list[Gpu] | None:
    """The cards a container was given, in the order of the bus; None when that cannot be known."""
    named = environment.get("NVIDIA_VISIBLE_DEVICES", "")
    if named in NOT_A_LIST:
        return list(gpus)
    cards = {_card(word.strip(), gpus) for word in named.split(",")}
    return None if None in cards else [gpu for gpu in gpus if gpu.index in cards]


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal()


def _card(word: str, gpus: Sequence[Gpu]) -> int | None:
    if _is_number(word):
        number = int(word)
        if not gpus:
            return number
        # Numbers count the cards the process was given, which need not be the first ones.
        return gpus[number].index if number < len(gpus) else None
    matches = [gpu.index for gpu in gpus if gpu.uuid and word and gpu.uuid.startswith(word)]
    return matches[0] if len(matches) == 1 else None
