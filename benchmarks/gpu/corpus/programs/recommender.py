"""Recommends items: users' features are gathered on the host by a thread, and sent on a stream of its own.

The thread keeps two batches ready in pinned memory; towers learn from them with two optimizers.
"""

from __future__ import annotations

import itertools
import os
import queue
import socket
import threading

import numpy as np
import torch
from protocol import Play
from torch import nn
from torch.nn import functional

ROWS, FEATURES, TABLES, ITEMS, USERS = 65536, 128, 4, 1 << 20, 1 << 20
Batch = tuple[torch.Tensor, torch.Tensor, torch.cuda.Event]


class Towers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(ITEMS, 64, mode="sum", sparse=True) for _ in range(TABLES)
        )
        widths = (FEATURES + 64 * TABLES, 4096, 4096, 4096)
        layers = list[nn.Module]()
        for before, after in itertools.pairwise(widths):
            layers += [nn.Linear(before, after), nn.GELU()]
        self.tower = nn.Sequential(*layers, nn.Linear(4096, 1))

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        looked = [table(items[:, number : number + 1]) for number, table in enumerate(self.tables)]
        return self.tower(torch.cat([users, *looked], 1)).squeeze(1)


class Prefetcher(threading.Thread):
    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ready: queue.Queue[Batch] = queue.Queue(2)
        self._table = torch.rand(USERS, FEATURES)
        self._pinned = [torch.zeros(ROWS, FEATURES).pin_memory() for _ in range(5)]
        self._done = [torch.cuda.Event() for _ in self._pinned]

    def run(self) -> None:
        random, side, turn = np.random.default_rng(1), torch.cuda.Stream(), 0
        while True:
            turn = (turn + 1) % len(self._pinned)
            chosen = torch.from_numpy(random.integers(0, USERS, ROWS))
            items = torch.from_numpy(random.integers(0, ITEMS, (ROWS, TABLES)))
            self._done[turn].synchronize()
            torch.index_select(self._table, 0, chosen, out=self._pinned[turn])
            with torch.cuda.stream(side):
                batch = (
                    self._pinned[turn].cuda(non_blocking=True),
                    items.pin_memory().cuda(non_blocking=True),
                )
                self._done[turn].record()
            self.ready.put((*batch, self._done[turn]))


def baskets(count: int) -> list[float]:
    """What each customer has in the basket, as dictionaries from the log."""
    found = []
    for number in range(count):
        items, price = [number % 7, number % 11], f"{number % 100}.5"  # at: baskets
        basket = {"user": number, "items": items, "price": price}  # at: baskets
        found.append(float(basket["price"]) * len(basket["items"]))  # at: baskets
    return found


def main(play: Play) -> None:
    with torch.device("cuda"):
        model = Towers()
    rows = torch.optim.SGD(model.tables.parameters(), 0.01)
    weights = torch.optim.AdamW(model.tower.parameters(), 1e-4, fused=True)
    ahead = Prefetcher()
    ahead.start()
    clicks = (torch.rand(ROWS) > 0.9).float().cuda()
    past = torch.ones(int(play.planned("histories")) << 18)
    link = None
    while play.beat():
        if ms := play.amount("remote-features"):
            link = link or socket.create_connection(("127.0.0.1", int(os.environ["PEER_PORT"])))
            link.sendall(f"{ms}\n".encode())  # at: remote-features
            link.recv(64)  # at: remote-features
        if count := play.amount("baskets"):
            baskets(int(count))  # at: baskets
        if play.amount("histories"):
            past.to("cuda")  # at: histories
        users, items, copied = ahead.ready.get()
        torch.cuda.current_stream().wait_event(copied)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            scores = model(users, items)
        loss = functional.binary_cross_entropy_with_logits(scores.float(), clicks)
        rows.zero_grad(set_to_none=True)
        weights.zero_grad(set_to_none=True)
        loss.backward()
        rows.step()
        weights.step()
        loss.item()


if __name__ == "__main__":
    main(Play())
