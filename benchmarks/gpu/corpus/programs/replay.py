"""Learns to play from what it remembers: frames are kept on the host, a sample is sent in every step.

An actor in a process of its own sends new frames, some at a time.
"""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import os
import queue
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from protocol import Play
from torch import nn
from torch.nn import functional

ROWS, KEPT, STACK, SIDE, ACTIONS, WIDTHS = 768, 4096, 4, 84, 18, (64, 128, 256)
FRESH, PAUSE_S, REST_S = 4, 0.02, 0.002


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, 1, 1), nn.Conv2d(width, width, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(functional.relu(self.first(functional.relu(x))))


def values() -> nn.Module:
    layers, before = list[nn.Module](), STACK
    for width in WIDTHS:
        layers += [nn.Conv2d(before, width, 3, 1, 1), nn.MaxPool2d(3, 2, 1)]
        layers += [Residual(width), Residual(width)]
        before = width
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(512), nn.ReLU(), nn.Linear(512, ACTIONS))


def act(sent: Any) -> None:
    """Plays until nobody is there any more."""
    parent, random = os.getppid(), np.random.default_rng(4)
    while os.getppid() == parent:
        frames = random.integers(0, 255, (FRESH, STACK, SIDE, SIDE), np.uint8)
        with contextlib.suppress(queue.Full):
            sent.put(frames, timeout=1)
        time.sleep(PAUSE_S)


class Sums:
    """Priorities as a tree: each node is the sum of the two below."""

    def __init__(self) -> None:
        self._sums = [1.0] * (2 * KEPT)

    def update(self, chosen: list[int], errors: list[float], count: int) -> None:
        sums = self._sums
        for number in range(count):
            at = chosen[number % len(chosen)] + KEPT
            change = errors[number % len(errors)] - sums[at]
            while at:
                sums[at] += change  # at: priorities
                at //= 2  # at: priorities


def imagine(play: Play) -> None:
    """A second world, simulated by a thread in Python; it rests for a moment in between."""
    speed = 0.0
    while True:
        until = time.perf_counter() + play.amount("imagined") / 1e3
        while time.perf_counter() < until:
            for number in range(200):
                speed = 0.99 * speed + number % 7 - 3.0  # at: imagined
        time.sleep(REST_S)


def note(book: sqlite3.Connection, turn: int, count: int) -> None:
    for number in range(count):
        book.execute("INSERT INTO metrics VALUES (?, ?, ?)", (turn, f"q{number}", number / 7))  # at: metrics
        book.commit()  # at: metrics


def main(play: Play) -> None:
    sent: Any = multiprocessing.Queue(8)
    multiprocessing.Process(target=act, args=(sent,), daemon=True).start()
    kept = torch.randint(0, 255, (KEPT, STACK, SIDE, SIDE), dtype=torch.uint8)
    now, later = (torch.zeros(ROWS, STACK, SIDE, SIDE, dtype=torch.uint8).pin_memory() for _ in range(2))
    with torch.device("cuda"):
        model = values()
        model(torch.zeros(2, STACK, SIDE, SIDE))
    model = model.to(memory_format=torch.channels_last)
    slow = copy.deepcopy(model).requires_grad_(False)
    pairs = [[each.detach() for each in net.parameters()] for net in (slow, model)]
    optimizer = torch.optim.Adam(model.parameters(), 1e-5, fused=True)
    actions, rewards = torch.randint(0, ACTIONS, (ROWS, 1)).cuda(), torch.rand(ROWS).cuda()
    sums, errors = Sums(), np.ones(KEPT, np.float32)
    book = sqlite3.connect(Path(os.environ["SCRATCH"]) / "metrics.db")
    book.execute("CREATE TABLE metrics (step, name, value)")
    if play.planned("imagined"):
        threading.Thread(target=imagine, args=(play,), daemon=True).start()
    turn = 0
    while play.beat():
        turn += 1
        with contextlib.suppress(queue.Empty):
            place = turn * FRESH % KEPT
            kept[place : place + FRESH] = torch.from_numpy(sent.get_nowait())
        chosen = torch.randint(0, KEPT - 1, (ROWS,))
        torch.index_select(kept, 0, chosen, out=now)
        torch.index_select(kept, 0, chosen + 1, out=later)
        seen, next_seen = (part.cuda(non_blocking=True).float() / 255 for part in (now, later))
        with torch.autocast("cuda", dtype=torch.bfloat16):
            with torch.no_grad():
                best = model(next_seen).argmax(1, keepdim=True)
                goal = rewards + 0.99 * slow(next_seen).gather(1, best)[:, 0].float()
            wrong = model(seen).gather(1, actions)[:, 0].float() - goal
        loss = functional.huber_loss(wrong, torch.zeros_like(wrong))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        torch._foreach_lerp_(*pairs, 0.005)
        told = wrong.detach().abs().cpu()
        errors[chosen.numpy()] = told.numpy()
        if count := play.amount("priorities"):
            sums.update(chosen.tolist(), told.tolist(), int(count))  # at: priorities
        if count := play.amount("metrics"):
            note(book, turn, int(count))  # at: metrics


if __name__ == "__main__":
    main(Play())
