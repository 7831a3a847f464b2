"""Reinforcement learning: environments step on the CPU, a policy acts, and learns from what is kept.

Works: ppo (environments in numpy, here); ppo-pipes (each group of them in a process behind a pipe).
"""

from __future__ import annotations

import gc
import itertools
import math
import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from protocol import Play
from torch import nn

SEEN, ACTIONS, TURNS, WIDTH, ROWS, UPDATES = 384, 16, 6, 4096, 32768, 6
GROUPS, EACH, KEPT = 4, 16, 1 << 19


def physics(turns: int) -> float:
    """A pendulum in small steps."""
    angle, speed = 0.5, 0.0
    for _ in range(turns):
        speed -= 0.001 * math.sin(angle)  # at: pendulum pendulum-behind
        angle += 0.001 * speed  # at: pendulum pendulum-behind
    return angle


class World:
    def __init__(self, seed: int, count: int) -> None:
        self._random = np.random.default_rng(seed)
        self._state = self._random.standard_normal((count, SEEN), np.float32)
        self._push = self._random.standard_normal((ACTIONS, SEEN), np.float32) / 10

    def step(self, actions: np.ndarray, turns: int) -> np.ndarray:
        self._state = np.tanh(self._state + self._push[actions])
        if turns:
            self._state[0, 0] = physics(turns)  # at: pendulum pendulum-behind
        return self._state


def behind(link: Connection, seed: int, turns: Any) -> None:
    world = World(seed, EACH)
    while True:
        try:
            actions = link.recv()
        except EOFError:
            return
        link.send(world.step(actions, int(turns.value)))


class Pipes:
    """Worlds in processes of their own, asked in every turn."""

    def __init__(self, play: Play) -> None:
        turns, self._links = play.shared("pendulum-behind"), []
        for seed in range(GROUPS):
            here, there = multiprocessing.Pipe()
            multiprocessing.Process(target=behind, args=(there, seed, turns), daemon=True).start()
            there.close()
            self._links.append(here)

    def step(self, actions: np.ndarray, _: int) -> np.ndarray:
        for link, part in zip(self._links, np.split(actions, GROUPS), strict=True):
            link.send(part)
        return np.concatenate([link.recv() for link in self._links])  # at: pendulum-behind


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = (SEEN, WIDTH, WIDTH, WIDTH, WIDTH)
        layers = list[nn.Module]()
        for before, after in itertools.pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.act, self.value = nn.Linear(WIDTH, ACTIONS), nn.Linear(WIDTH, 1)

    def forward(self, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.body(seen)
        return self.act(hidden), self.value(hidden)


def remember(seen: np.ndarray, count: int) -> list[torch.Tensor]:
    """Field by field, transition by transition."""
    rows = [torch.from_numpy(row[:8]) for row in seen]
    return [rows[number % len(rows)].to("cuda") for number in range(count)]  # at: fields


def learn(policy: Policy, optimizer: torch.optim.Optimizer, kept: torch.Tensor) -> torch.Tensor:
    rows = torch.randint(0, len(kept), (ROWS,), device=kept.device)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits, value = policy(kept[rows])
    chosen = logits.float().log_softmax(1)
    ratio = (chosen[:, 0] - chosen[:, 0].detach()).exp()
    gain = torch.min(ratio, ratio.clamp(0.8, 1.2)).mean()
    loss = value.float().square().mean() - gain + 0.01 * (chosen.exp() * chosen).sum(1).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.detach()


def main(play: Play) -> None:
    world: World | Pipes = Pipes(play) if play.work == "ppo-pipes" else World(1, GROUPS * EACH)
    with torch.device("cuda"):
        policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), 3e-4, fused=True)
    kept = torch.randn(KEPT, SEEN, device="cuda")
    transitions: list[Any] = []
    actions, at = np.zeros(GROUPS * EACH, np.int64), 0
    while play.beat():
        for _ in range(TURNS):
            seen = world.step(actions, int(play.amount("pendulum")))  # at: pendulum pendulum-behind
            shown = torch.from_numpy(seen).cuda()
            with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
                logits, _ = policy(shown)
            actions = torch.distributions.Categorical(logits=logits.float()).sample().cpu().numpy()
            at = (at + len(shown)) % (KEPT - len(shown))
            kept[at : at + len(shown)] = shown
        if count := play.amount("fields"):
            remember(seen, int(count))  # at: fields
        if count := play.amount("transitions"):
            transitions = transitions or [[number, {"reward": number}] for number in range(int(count))]
            gc.collect()  # at: transitions
        losses = [learn(policy, optimizer, kept) for _ in range(UPDATES)]
        torch.stack(losses).mean().item()
        if ms := play.amount("rate-limit"):
            time.sleep(ms / 1e3)  # at: rate-limit


if __name__ == "__main__":
    main(Play())
