"""Programs for a card. `programs.py NAME FILE` runs one; it writes down what it did.

Each returns what must be found in the recording: counts of calls by name, where it can
count them itself.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

Said = dict[str, Any]


def small_step(amp: bool = False) -> Callable[[], object]:
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Linear(128, 64)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    batch = torch.randn(4, 32, 128, device="cuda")

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", enabled=amp):
            loss = model(batch).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def profiled() -> Said:
    """Counts of the same stretch by torch.profiler."""
    step = small_step()
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    ) as p:
        begin = time.time_ns()
        for _ in range(50):
            step()
        torch.cuda.synchronize()
        end = time.time_ns()
    counts = Counter(each.name for each in p.events() if each.name.startswith("cu"))
    return {"counts": counts, "begin": begin, "end": end}


def profiled_whole() -> Said:
    """All that it calls, by torch.profiler: 200 steps, every tenth of which reads its loss back."""
    torch.cuda.init()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
        step = small_step()
        for turn in range(200):
            loss = step()
            if turn % 10 == 0:
                loss.item()  # type: ignore[attr-defined]
        torch.cuda.synchronize()
    return {"counts": Counter(each.name for each in p.events() if each.name.startswith("cu"))}


def launches() -> Said:
    """A number of launches the program knows, fast."""
    values = torch.zeros(1024, device="cuda")
    torch.cuda.synchronize()
    began = time.monotonic()
    made = 0
    while time.monotonic() - began < 12:
        for _ in range(1000):
            values.add_(1)
        made += 1000
        torch.cuda.synchronize()
    return {"launches": made, "syncs": made // 1000}


def eager() -> Said:
    step = small_step()
    for _ in range(30):
        step()
    torch.cuda.synchronize()
    return {}


def amp() -> Said:
    step = small_step(amp=True)
    for _ in range(30):
        step()
    torch.cuda.synchronize()
    return {}


def compiled() -> Said:
    """Triton's kernels, made at run time, launched by the driver's own calls."""

    @torch.compile
    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a.sin() + b.cos()).relu() * 2

    a, b = torch.randn(1000, device="cuda"), torch.randn(1000, device="cuda")
    for _ in range(20):
        f(a, b)
    torch.cuda.synchronize()
    return {"kernel": "triton"}


def libraries() -> Said:
    """cuBLAS and cuDNN."""
    a = torch.randn(512, 512, device="cuda")
    image, kernel = torch.randn(4, 16, 64, 64, device="cuda"), torch.randn(16, 16, 3, 3, device="cuda")
    for _ in range(25):
        a @ a
        nn.functional.conv2d(image, kernel)
    torch.cuda.synchronize()
    return {}


def graphs() -> Said:
    a = torch.randn(64, 64, device="cuda")
    for _ in range(3):
        a @ a
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(5):
            a @ a
    for _ in range(50):
        graph.replay()
    torch.cuda.synchronize()
    return {"graph_launches": 50}


def allocations() -> Said:
    """Memory of many sizes, asked of the driver one by one or not, as the environment says."""
    for number in range(40):
        held = torch.empty((number + 1) << 20, dtype=torch.uint8, device="cuda")
        del held
        if number % 10 == 9:
            torch.cuda.empty_cache()
    torch.cuda.synchronize()
    return {}


def pinned() -> Said:
    """40 copies of 4 MiB from pinned memory, 40 from plain memory."""
    fixed, plain = torch.zeros(1 << 20, pin_memory=True), torch.ones(1 << 20)
    torch.cuda.synchronize()
    begin = time.time_ns()
    for _ in range(40):
        fixed.to("cuda", non_blocking=True)
        plain.to("cuda")
    torch.cuda.synchronize()
    return {"copies": 80, "bytes": 80 * 4 << 20, "begin": begin, "end": time.time_ns()}


def cupy() -> Said:
    import cupy as cp

    values = cp.arange(1000, dtype=cp.float32)
    for _ in range(20):
        values = values * 2 + 1
    cp.cuda.runtime.deviceSynchronize()
    return {}


def collectives() -> Said:
    """A group of one rank."""
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29561", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
    values = torch.ones(1000, device="cuda")
    for _ in range(7):
        dist.all_reduce(values)
    torch.cuda.synchronize()
    dist.destroy_process_group()
    return {"all_reduces": 7, "bytes": 4000}


def loaders() -> Said:
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.randn(640, 256))
    for _ in range(2):
        for (batch,) in DataLoader(data, batch_size=32, num_workers=2, pin_memory=True):
            batch.cuda(non_blocking=True).sum()
    torch.cuda.synchronize()
    return {}


def streams() -> Said:
    """Three threads with a stream each, 200 launches of each."""

    def work() -> None:
        mine = torch.cuda.Stream()
        with torch.cuda.stream(mine):
            values = torch.zeros(256, device="cuda")
            for _ in range(200):
                values.add_(1)
            mine.synchronize()

    torch.zeros(1, device="cuda")
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"launches_each": 200, "threads": 3}


def stacks() -> Said:
    """Memory asked for from many lines; the program writes down its own stack each time."""
    torch.zeros(1, device="cuda")
    said: list[dict[str, Any]] = []

    memory = partial(torch.empty, dtype=torch.uint8, device="cuda")

    def note(_: object, size: int) -> None:
        frame = sys._getframe(1)
        lines = []
        while frame is not None:
            lines.append([frame.f_code.co_qualname, frame.f_code.co_filename, frame.f_lineno])
            frame = frame.f_back  # type: ignore[assignment]
        said.append({"bytes": size, "stack": lines})

    def plain(size: int) -> None:
        note(memory(size), size)

    def deep(size: int, depth: int) -> None:
        if depth:
            deep(size, depth - 1)
        else:
            note(memory(size), size)

    def making(size: int) -> Any:
        note(memory(size), size)
        yield 1

    class Layer:
        def forward(self, size: int) -> None:
            (lambda: note(memory(size), size))()

    for turn in range(40):
        size = (turn + 1) * 8 << 20
        plain(size)
        deep(size + (1 << 20), turn)
        list(making(size + (2 << 20)))
        Layer().forward(size + (3 << 20))
        [note(memory(each), each) for each in (size + (4 << 20),)]
        thread = threading.Thread(target=plain, args=(size + (5 << 20),))
        thread.start()
        thread.join()
    return {"stacks": said}


if __name__ == "__main__":
    found = globals()[sys.argv[1]]()
    Path(sys.argv[2]).write_text(json.dumps(found))
