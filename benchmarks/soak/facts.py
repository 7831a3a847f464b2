"""What a soak writes down beside its samples, so that a run that still goes on can be read."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

import msgspec

from benchmarks.soak.sample import KernelObjects, Sample

SAMPLES, FACTS = "samples.jsonl", "facts.json"
SYSCALL_BPF = {"x86_64": 321, "aarch64": 280}
GET_FD_BY_ID = {"program": 13, "map": 14, "link": 30}


class Facts(msgspec.Struct):
    began: str
    max_db: str
    seed: int
    jobs: int = 0
    short_traces: int = 0
    scraped_bytes: int = 0
    losses: dict[str, int] = {}
    problems: list[str] = []


def left_in_kernel(held: KernelObjects, patience_s: float = 20) -> list[str]:
    """Kernel objects that outlived the processes which held them; the kernel frees them a moment later."""
    kinds = {"map": held.maps, "program": held.programs, "link": held.links}
    left = [(kind, number) for kind, numbers in kinds.items() for number in numbers]
    until = time.monotonic() + patience_s
    while left := [each for each in left if in_kernel(*each)]:
        if time.monotonic() > until:
            break
        time.sleep(0.2)
    return [f"{kind} {number}" for kind, number in left]


def in_kernel(kind: str, number: int) -> bool:
    attributes = ctypes.create_string_buffer(number.to_bytes(4, "little") + bytes(60))
    call = ctypes.CDLL(None, use_errno=True).syscall
    fd = call(SYSCALL_BPF[os.uname().machine], GET_FD_BY_ID[kind], attributes, 64)
    if fd >= 0:
        os.close(fd)
    return bool(fd >= 0)


def append(folder: Path, sample: Sample) -> None:
    with (folder / SAMPLES).open("ab") as out:
        out.write(msgspec.json.encode(sample) + b"\n")


def samples(folder: Path) -> list[Sample]:
    decoder = msgspec.json.Decoder(Sample)
    return decoder.decode_lines((folder / SAMPLES).read_bytes())


def write_facts(folder: Path, facts: Facts) -> None:
    (folder / FACTS).write_bytes(msgspec.json.encode(facts))


def facts(folder: Path) -> Facts:
    return msgspec.json.decode((folder / FACTS).read_bytes(), type=Facts)
