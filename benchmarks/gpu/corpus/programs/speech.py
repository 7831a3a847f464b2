"""Speech becomes text: spectrograms, a transformer, and a loss that aligns them.

Works: waves (spectrograms on the card, of changing lengths; a line of notes for each step);
waves-loader (spectrograms by workers).
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import torch
from protocol import Play
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

ROWS, FRAMES, HOP, WINDOW, MELS = 64, 400, 160, 400, 80
WIDTH, HEADS, LAYERS, WORDS, SAID = 1024, 16, 10, 512, 40
LENGTHS, SCORED_EVERY, WORKERS = (400, 300, 200), 12, 3


def spectrogram(waves: torch.Tensor, window: torch.Tensor, mels: torch.Tensor) -> torch.Tensor:
    power = torch.stft(waves, WINDOW, HOP, window=window, return_complex=True).abs().square()
    return (power.transpose(-1, -2) @ mels + 1e-6).log()


class Utterances(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self._noise = torch.randn(1 << 20)
        self._window, self._mels = torch.hann_window(WINDOW), torch.rand(WINDOW // 2 + 1, MELS)

    def __len__(self) -> int:
        return 1 << 24

    def __getitem__(self, number: int) -> torch.Tensor:
        start = number * 977 % ((1 << 20) - FRAMES * HOP)
        wave = self._noise[start : start + FRAMES * HOP] * (0.5 + number % 8 / 8)
        return spectrogram(wave, self._window, self._mels)[:FRAMES].half()


class Listener(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(MELS, WIDTH), nn.Linear(WIDTH, WORDS)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)

    def forward(self, heard: torch.Tensor) -> torch.Tensor:
        return self.leave(self.layers(self.enter(heard))).float().log_softmax(2)


class Tape:
    """An utterance as it is stored, packed."""

    def __init__(self) -> None:
        steps = np.random.default_rng(2).integers(-40, 40, FRAMES * HOP)
        self._packed = gzip.compress(steps.cumsum().astype(np.int16).tobytes(), 6)

    def unpacked(self) -> np.ndarray:
        command = ["gzip", "-dc"]
        done = subprocess.run(command, input=self._packed, stdout=subprocess.PIPE)  # at: outer-tool
        return np.frombuffer(done.stdout, np.int16)


def distance(told: list[int], meant: list[int]) -> int:
    """How many words must change."""
    row = list(range(len(meant) + 1))
    for number, word in enumerate(told, 1):
        corner, row[0] = row[0], number
        for at, other in enumerate(meant, 1):
            best = min(row[at] + 1, row[at - 1] + 1, corner + (word != other))  # at: word-errors
            corner, row[at] = row[at], best  # at: word-errors
    return row[-1]


def score(guesses: torch.Tensor, meant: list[list[int]], pairs: int) -> float:
    told, wrong = guesses[:, : SAID + 20].tolist(), 0
    for number in range(pairs):
        wrong += distance(told[number % len(told)], meant[number % len(meant)])  # at: word-errors
    return wrong / SAID


def main(play: Play) -> None:
    loading = play.work == "waves-loader"
    loader = DataLoader(Utterances(), ROWS, num_workers=WORKERS, pin_memory=True) if loading else None
    batches = iter(loader) if loader else None
    with torch.device("cuda"):
        model = Listener().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5, fused=True)
    most = ROWS * FRAMES // min(LENGTHS)
    waves = torch.randn(most, FRAMES * HOP).cuda()
    window, mels = torch.hann_window(WINDOW).cuda(), torch.rand(WINDOW // 2 + 1, MELS).cuda()
    words = torch.randint(1, WORDS, (most, SAID))
    meant, words = words.tolist(), words.cuda()
    tape, notes = Tape(), (Path(os.environ["SCRATCH"]) / "notes.jsonl").open("w")
    turn = 0
    while play.beat():
        turn += 1
        for _ in range(int(play.amount("outer-tool"))):
            tape.unpacked()  # at: outer-tool
        if batches:
            heard, length = next(batches).cuda(non_blocking=True), FRAMES
        else:
            length = LENGTHS[turn % len(LENGTHS)]
            rows = ROWS * FRAMES // length
            heard = spectrogram(waves[:rows, : length * HOP], window, mels)[:, :length]
        logs, rows = model(heard.bfloat16()), len(heard)
        loss = functional.ctc_loss(
            logs.transpose(0, 1), words[:rows], [length] * rows, [SAID] * rows, zero_infinity=True
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if (pairs := play.amount("word-errors")) and turn % SCORED_EVERY == 0:
            score(logs.detach().argmax(2), meant, int(pairs))  # at: word-errors
        notes.write(json.dumps({"step": turn, "loss": loss.item()}) + "\n")


if __name__ == "__main__":
    main(Play())
