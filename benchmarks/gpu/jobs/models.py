"""The work of the jobs: what one step is.

Each maker returns a function that does one step and leaves its work queued or done as
such jobs usually do.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import nn

Step = Callable[[], object]


def small_training() -> Step:
    """A small transformer: some 380 launches a step, so that the host is the limit."""
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
    model = nn.Sequential(
        nn.Embedding(1000, 256), nn.TransformerEncoder(layer, 4), nn.Linear(256, 1000)
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    loss_of = nn.CrossEntropyLoss()
    tokens = torch.randint(0, 1000, (8, 64), device="cuda")
    turn = 0

    def step() -> object:
        nonlocal turn
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        turn += 1
        return loss.item() if turn % 10 == 0 else None

    return step


def many_items() -> Step:
    """A value read back 250 times in every step, and so waited for."""
    train, values = small_training(), torch.ones(250, device="cuda")

    def step() -> object:
        train()
        return [values[number].item() for number in range(250)]

    return step


def no_caching() -> Step:
    """Every tensor asks the driver for its memory."""
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    return small_training()


def large_training() -> Step:
    """Matrices large enough that the card is the limit."""
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Linear(6144, 6144) for _ in range(8))).cuda().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), 1e-5)
    batch = torch.randn(8192, 6144, device="cuda", dtype=torch.bfloat16)

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        loss = model(batch).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def launch_loop() -> Step:
    """Nothing but launches; 1,000 are a step."""
    values = torch.zeros(1024, device="cuda")

    def step() -> object:
        for _ in range(1000):
            values.add_(1)
        torch.cuda.synchronize()
        return None

    return step


def graph_decode() -> Step:
    """A decoder captured in a graph and replayed for each token; 32 tokens are a step."""
    torch.manual_seed(1)
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(24)))
    model = layers.cuda().half().eval()
    state = torch.randn(1, 1024, device="cuda", dtype=torch.half)
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
        token = 0
        for _ in range(32):
            graph.replay()
            token += int(out[0, 0].isnan().item())
        return token

    return step


MAKERS: dict[str, Callable[[], Step]] = {
    "small-training": small_training,
    "many-items": many_items,
    "no-caching": no_caching,
    "large-training": large_training,
    "launch-loop": launch_loop,
    "graph-decode": graph_decode,
}
