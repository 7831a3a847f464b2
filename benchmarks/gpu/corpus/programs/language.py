"""A recurrent language model: mixed precision with a scaler, two chunks to an update.

Works: lstm; cells (a GRU unrolled in Python, far too little for the card).
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import torch
from protocol import Play
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, ROWS, LENGTH = 32000, 1536, 256, 128
State = tuple[torch.Tensor, torch.Tensor]


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor, state: State | None) -> tuple[torch.Tensor, State]:
        hidden, state = self.lstm(self.embed(tokens), state)
        return self.head(hidden), state


def word_accuracy(logits: torch.Tensor, wanted: torch.Tensor, count: int) -> float:
    hits = (logits.argmax(-1) == wanted).flatten()
    right = 0
    for word in range(count):
        right += int(hits[word].item())  # at: word-accuracy
    return right / count


def note_parameters(log: logging.Logger, model: nn.Module, lines: int) -> None:
    values = model.head.weight.detach().flatten()[:lines].tolist()
    for number, value in enumerate(values):
        size = "ok" if abs(value) < 1 else "large"  # at: wordy
        log.info("head.weight[%d] = %+.6f (%s)", number, value, size)  # at: wordy


def lstm(play: Play) -> None:
    log = logging.getLogger("train")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(logging.FileHandler(Path(os.environ["SCRATCH"]) / "train.log"))
    corpus = np.random.default_rng(1).integers(0, VOCABULARY, (ROWS, 1 << 14))
    with torch.device("cuda"):
        model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=True)
    scaler = torch.amp.GradScaler("cuda")
    state: State | None = None
    history, at = [], 0
    while play.beat():
        for _ in range(2):
            at = (at + LENGTH) % (corpus.shape[1] - LENGTH - 1)
            chunk = torch.from_numpy(corpus[:, at : at + LENGTH + 1]).cuda()
            with torch.autocast("cuda", dtype=torch.float16):
                logits, state = model(chunk[:, :-1], state)
                loss = functional.cross_entropy(logits.flatten(0, 1).float(), chunk[:, 1:].flatten()) / 2
            scaler.scale(loss).backward()
            state = (state[0].detach(), state[1].detach())
            flat = logits.detach().flatten(0, 1)
            if rows := play.amount("fetch-logits"):
                flat[: int(rows)].cpu()  # at: fetch-logits
            if words := play.amount("word-accuracy"):
                word_accuracy(logits.detach(), chunk[:, 1:], int(words))  # at: word-accuracy
            if mib := play.amount("keep-logits"):
                history.append(flat[: int(mib) * 16].clone())  # at: keep-logits
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        if lines := play.amount("wordy"):
            note_parameters(log, model, int(lines))  # at: wordy


def cells(play: Play) -> None:
    embed, cell, head = nn.Embedding(500, 256).cuda(), nn.GRUCell(256, 256).cuda(), nn.Linear(256, 500).cuda()
    optimizer = torch.optim.Adam([*embed.parameters(), *cell.parameters(), *head.parameters()], 1e-3)
    tokens = torch.randint(0, 500, (32, 65)).cuda()
    while play.beat():
        hidden, losses = torch.zeros(32, 256).cuda(), []
        for place in range(64):
            hidden = cell(embed(tokens[:, place]), hidden)
            losses.append(functional.cross_entropy(head(hidden), tokens[:, place + 1]))
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()


if __name__ == "__main__":
    {"lstm": lstm, "cells": cells}[(begun := Play()).work](begun)
