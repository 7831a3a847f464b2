"""Which GPU a process means by its device numbers.

CUDA counts the devices a process may see from 0; users and NVML count cards. The
variable CUDA_VISIBLE_DEVICES stands between them. Where it names something unknown
here, the answer is unknown, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingero.discover.gpus import Gpu

Devices = tuple[int, ...]  # card by device number


def visible_devices(environment: Mapping[str, str], gpus: Sequence[Gpu]) -> Devices | None:
    """Cards in the order the process counts them; None when that cannot be known."""
    every = tuple(gpu.index for gpu in gpus)
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return every or None
    chosen: list[int] = []
    for word in (part.strip() for part in named.split(",")):
        card = _card(word, gpus)
        if card is None:
            break  # CUDA itself stops at the first entry it does not know
        chosen.append(card)
    return tuple(chosen) or None


def _card(word: str, gpus: Sequence[Gpu]) -> int | None:
    if word.isascii() and word.isdecimal():
        number = int(word)
        return number if not gpus or any(gpu.index == number for gpu in gpus) else None
    matches = [gpu.index for gpu in gpus if gpu.uuid and word and gpu.uuid.startswith(word)]
    return matches[0] if len(matches) == 1 else None
