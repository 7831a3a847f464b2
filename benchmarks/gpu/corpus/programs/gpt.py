"""A small GPT in training, as different people drive it.

Works: quiet (never waits for the card by itself), polled (asks an event whether the step is
done), evaluated (measures itself now and then), growing (longer texts with time),
accumulating (four chunks to an update), produced (texts come from processes, by a queue).
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch
import torch.multiprocessing as processes
from protocol import Play
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, HEADS, LAYERS, ROWS, LENGTH = 8192, 1024, 16, 8, 32, 512


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.queries, self.leave = (
            nn.Linear(WIDTH, 3 * WIDTH, bias=False),
            nn.Linear(WIDTH, WIDTH, bias=False),
        )
        self.gate, self.wide = (
            nn.Linear(WIDTH, 3 * WIDTH, bias=False),
            nn.Linear(WIDTH, 3 * WIDTH, bias=False),
        )
        self.narrow = nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        parts = self.queries(self.before(x)).view(rows, length, 3, HEADS, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.leave(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        inner = self.between(x)
        return x + self.narrow(functional.silu(self.gate(inner)) * self.wide(inner))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.norm(self.blocks(self.embed(words[:, :-1]))))
        return functional.cross_entropy(logits.flatten(0, 1).float(), words[:, 1:].flatten())


def tokenise(merges: int) -> int:
    found = 0
    for merge in range(merges):
        found = (found * 31 + merge) % 65521  # at: slow-producers
    return found


def produce(made: Any, merges: Any) -> None:
    """Texts without end, or until nobody is there any more."""
    parent = os.getppid()
    torch.set_num_threads(1)
    while os.getppid() == parent:
        words = torch.randint(0, VOCABULARY, (ROWS, LENGTH + 1))
        words[0, 0] = tokenise(int(merges.value)) % VOCABULARY  # at: slow-producers
        made.put(words, timeout=30)


def produced(play: Play) -> Any:
    made = processes.Queue(6)
    merges = play.shared("slow-producers")
    for _ in range(2):
        processes.Process(target=produce, args=(made, merges), daemon=True).start()
    return made


def main(play: Play) -> None:
    made = produced(play) if play.work == "produced" else None
    with torch.device("cuda"):
        model = Gpt().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    fixed = torch.randint(0, VOCABULARY, (ROWS, 4 * LENGTH)).cuda()
    chunks = 4 if play.work == "accumulating" else 1
    done, turn = torch.cuda.Event(), 0
    while play.beat():
        turn += 1
        length = min(LENGTH // 2 * (1 + turn // 60), 4 * LENGTH) if play.work == "growing" else LENGTH + 1
        for _ in range(chunks):
            if made:
                words = made.get().pin_memory().cuda(non_blocking=True)  # at: slow-producers
            else:
                words = fixed[:, :length]
            (model(words) / chunks).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if play.work == "polled":
            while not done.query():
                time.sleep(0.0005)
            done.record()
        if play.work == "evaluated" and turn % 50 == 0:
            evaluate(model, fixed)
        if play.work in ("produced", "growing") and turn % 5 == 0:
            torch.cuda.current_stream().synchronize()


def evaluate(model: Gpt, fixed: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad():
        losses = [model(fixed[:, at : at + LENGTH + 1]) for at in range(0, LENGTH, 64)]
    model.train()
    return torch.stack(losses).mean().item()


if __name__ == "__main__":
    main(Play())
