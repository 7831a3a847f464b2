"""A frozen language model is adapted by small matrices; layers are computed again in the way back.

Works: adapt; adapt-polled (looks whether the step is done, and sleeps a millisecond, instead of waiting).
"""

from __future__ import annotations

import gc
import time
from typing import Any

import torch
from protocol import Play
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, LAYERS, RANK, ROWS, LENGTH, WORDS = 2048, 16, 8, 16, 16, 512, 16384
Weights = list[torch.Tensor]


class Adapted(nn.Module):
    """A frozen matrix, and two small ones that learn."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(before, after, bias=False).requires_grad_(False)
        self.down, self.up = nn.Linear(before, RANK, bias=False), nn.Linear(RANK, after, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(x) + self.up(self.down(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.queries, self.leave = Adapted(WIDTH, 3 * WIDTH), Adapted(WIDTH, WIDTH)
        self.wide, self.narrow = Adapted(WIDTH, 4 * WIDTH), Adapted(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        parts = self.queries(self.before(x)).view(rows, length, 3, HEADS, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.leave(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH).requires_grad_(False)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words[:, :-1])
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        logits = functional.linear(self.norm(x), self.embed.weight / WIDTH**0.5)
        return functional.cross_entropy(logits.flatten(0, 1).float(), words[:, 1:].flatten())


def examples(count: int) -> list[dict[str, Any]]:
    """All that is to be learnt, as it was read."""
    return [{"text": [number, number + 1], "from": {"page": [number]}} for number in range(count)]


def reference(count: int) -> list[Weights]:
    """Layers of the model before it was adapted; they have no room on the card."""
    shapes = ((3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH))
    return [[torch.ones(shape, dtype=torch.bfloat16) for shape in shapes] for _ in range(count)]


def drift(layers: list[Weights], model: Model) -> torch.Tensor:
    """How far from the reference: its layers come to the card and go again."""
    total = model.norm.weight.new_zeros(())
    for weights, layer in zip(layers, model.layers, strict=False):
        for weight in weights:
            here = weight.cuda()  # at: reference-layers
            total += here[0, 0] - layer.queries.frozen.weight[0, 0]
    return total


def wait(done: torch.cuda.Event) -> None:
    while not done.query():
        time.sleep(0.001)


def main(play: Play) -> None:
    with torch.device("cuda"):
        model = Model().bfloat16()
    learning = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(learning, 1e-5, fused=True)
    words = torch.randint(0, WORDS, (ROWS, LENGTH + 1)).cuda()
    before = reference(int(play.planned("reference-layers")))
    read, done = examples(int(play.planned("tidy-up"))), torch.cuda.Event()
    while play.beat():
        if play.amount("anomalies"):
            torch.autograd.set_detect_anomaly(True)  # at: anomalies
        loss = model(words)  # at: anomalies
        loss.backward()  # at: anomalies
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if play.amount("reference-layers"):
            drift(before, model)  # at: reference-layers
        if play.work == "adapt-polled":
            done.record()
            wait(done)
        else:
            assert loss.item() > 0
        if play.amount("tidy-up"):
            gc.collect()  # at: tidy-up
    assert len(read) >= 0


if __name__ == "__main__":
    main(Play())
