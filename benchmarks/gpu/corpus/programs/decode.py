"""A language model says one word after the other, with a cache of keys and values.

Works: replayed (the turn is a captured graph, and full of work for the card); eager (a small
model, a few rows, call by call).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from protocol import Play
from torch import nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Shape:
    layers: int
    width: int
    heads: int
    rows: int
    length: int
    words: int


SHAPES = {"replayed": Shape(16, 2048, 16, 64, 1024, 16), "eager": Shape(16, 768, 12, 2, 256, 16)}


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, width = shape, shape.width
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.queries, self.leave = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        cache = torch.zeros(2, shape.rows, shape.heads, shape.length, width // shape.heads, dtype=torch.half)
        self.register_buffer("cache", cache)

    def forward(self, x: torch.Tensor, place: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        shape = self.shape
        parts = self.queries(self.before(x)).view(shape.rows, 3, shape.heads, 1, -1)
        query, key, value = parts.unbind(1)
        self.cache[0].index_copy_(2, place, key)
        self.cache[1].index_copy_(2, place, value)
        seen = functional.scaled_dot_product_attention(query, self.cache[0], self.cache[1], mask)
        x = x + self.leave(seen.reshape(shape.rows, shape.width))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class Speaker:
    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        with torch.device("cuda"):
            self.embed = nn.Embedding(32000, shape.width).half()
            self.layers = nn.ModuleList(Layer(shape).half() for _ in range(shape.layers)).eval()
        self.words = torch.zeros(shape.rows, dtype=torch.long).cuda()
        self.place = torch.zeros(1, dtype=torch.long).cuda()
        self.places = torch.arange(shape.length).cuda()

    def turn(self) -> None:
        x = self.embed(self.words)
        mask = (self.places <= self.place)[None, None, None]
        for layer in self.layers:
            x = layer(x, self.place, mask)
        self.words.copy_((x @ self.embed.weight.T).argmax(-1))
        self.place.add_(1).remainder_(self.shape.length)

    def captured(self) -> torch.cuda.CUDAGraph:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            self.turn()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # at: new-lengths
            self.turn()  # at: new-lengths
        return graph


def any_ended(words: torch.Tensor, count: int) -> bool:
    ended = False
    for row in range(count):
        ended |= words[row % len(words)].item() == 2  # at: ended
    return ended


@torch.inference_mode()
def main(play: Play) -> None:
    speaker = Speaker(SHAPES[play.work])
    graph = speaker.captured() if play.work == "replayed" else None
    while play.beat():
        for _ in range(int(play.amount("new-lengths"))):
            graph = speaker.captured()  # at: new-lengths
        for _ in range(speaker.shape.words):
            if graph:
                graph.replay()
            else:
                speaker.turn()
            if count := play.amount("ended"):
                any_ended(speaker.words, int(count))  # at: ended
        speaker.words.tolist()


if __name__ == "__main__":
    main(Play())
