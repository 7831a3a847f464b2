"""What one step of a job is, by name. Each maker returns a function that does one step.

`log_every`: the loss is read back, and so waited for, in every so many steps; 0: never.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import nn

Step = Callable[[], object]


def _training(model: nn.Module, batch: Callable[[], torch.Tensor], log_every: int) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    turn = 0

    def step() -> object:
        nonlocal turn
        optimizer.zero_grad(set_to_none=True)
        loss = model(batch()).float().square().mean()
        loss.backward()
        optimizer.step()
        turn += 1
        return loss.item() if log_every and turn % log_every == 0 else None

    return step


def transformer(width: int, layers: int, rows: int, length: int, log_every: int) -> Step:
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda().bfloat16()
    batch = torch.randn(rows, length, width, device="cuda", dtype=torch.bfloat16)
    return _training(model, lambda: batch, log_every)


def small(log_every: int = 10) -> Step:
    """Eager, and far too little for the card: the host is the limit."""
    return transformer(256, 4, 8, 64, log_every)


def medium(log_every: int = 1) -> Step:
    """Some 40 ms of work for the card in every step."""
    return transformer(1024, 10, 48, 512, log_every)


def convolutions(log_every: int = 1) -> Step:
    torch.manual_seed(2)
    widths = (64, 128, 256, 256, 512, 512)
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU()]
    for before, after in itertools.pairwise(widths):
        layers += [
            nn.Conv2d(before, after, 3, 2 if after > before else 1, 1),
            nn.BatchNorm2d(after),
            nn.ReLU(),
        ]
    model = nn.Sequential(*layers).cuda().to(memory_format=torch.channels_last).bfloat16()
    images = torch.randn(192, 3, 192, 192, device="cuda", dtype=torch.bfloat16)
    images = images.to(memory_format=torch.channels_last)
    return _training(model, lambda: images, log_every)


def wide(log_every: int = 1) -> Step:
    torch.manual_seed(3)
    model = nn.Sequential(*(nn.Linear(6144, 6144) for _ in range(8))).cuda().bfloat16()
    batch = torch.randn(8192, 6144, device="cuda", dtype=torch.bfloat16)
    return _training(model, lambda: batch, log_every)


def decoder(_: int = 1) -> Step:
    """A captured graph, replayed for each of 32 tokens."""
    torch.manual_seed(4)
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096), nn.GELU()) for _ in range(48)))
    model = layers.cuda().half().eval()
    state = torch.randn(8, 4096, device="cuda", dtype=torch.half)
    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                model(state)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = model(state)

    def step() -> object:
        for _ in range(32):
            graph.replay()
        return out[0, 0].item()

    return step


def inference(_: int = 1) -> Step:
    """One request after the other, eagerly: hardly anything for the card."""
    torch.manual_seed(5)
    layer = nn.TransformerEncoderLayer(384, 6, 1536, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 8, enable_nested_tensor=False).cuda().half().eval()
    request = torch.randn(1, 32, 384, device="cuda", dtype=torch.half)

    def step() -> object:
        with torch.inference_mode():
            return model(request).argmax().item()

    return step


def two_models(log_every: int = 1) -> Step:
    """Two models in turn, as adversarial training has them."""
    first, second = wide(log_every), convolutions(log_every)
    turn = 0

    def step() -> object:
        nonlocal turn
        turn += 1
        return first() if turn % 2 else second()

    return step


def growing(_: int = 1) -> Step:
    """Its batch grows until it is four times as large."""
    torch.manual_seed(6)
    model = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(8))).cuda().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), 1e-5)
    data = torch.randn(65536, 4096, device="cuda", dtype=torch.bfloat16)
    turn = 0

    def step() -> object:
        nonlocal turn
        turn += 1
        rows = min(16384 * (1 + turn // 400), 65536)
        optimizer.zero_grad(set_to_none=True)
        loss = model(data[:rows]).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


WORK: dict[str, Callable[[int], Step]] = {
    "small": small,
    "medium": medium,
    "convolutions": convolutions,
    "wide": wide,
    "decoder": decoder,
    "inference": inference,
    "two-models": two_models,
    "growing": growing,
}
