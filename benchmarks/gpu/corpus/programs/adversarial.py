"""Two networks against each other, each with an optimizer of its own, and a thread that shows pictures."""

from __future__ import annotations

import itertools
import os
import threading
import time
from pathlib import Path

import numpy as np
import torch
from protocol import Play
from torch import nn

ROWS, LATENT = 1536, 128


def generator() -> nn.Module:
    widths, layers = (1024, 512, 256, 128), list[nn.Module]()
    layers += [nn.ConvTranspose2d(LATENT, 1024, 4), nn.BatchNorm2d(1024), nn.ReLU(inplace=True)]
    for before, after in itertools.pairwise(widths):
        layers += [
            nn.ConvTranspose2d(before, after, 4, 2, 1),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers, nn.ConvTranspose2d(128, 3, 4, 2, 1), nn.Tanh())


def critic() -> nn.Module:
    widths, layers = (3, 128, 256, 512, 1024), list[nn.Module]()
    for before, after in itertools.pairwise(widths):
        layers += [nn.Conv2d(before, after, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True)]
    return nn.Sequential(*layers, nn.Conv2d(1024, 1, 4))


class Gallery:
    """Shows what was made last, from a thread beside the training."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self.lock = threading.Lock()
        self.sheet = np.zeros(1 << 18, np.float32)

    def compose(self) -> None:
        """Sorts pixels for as long as the amount says, and keeps the lock meanwhile."""
        while True:
            with self.lock:
                until = time.perf_counter() + self._play.amount("gallery-lock") / 1e3
                while time.perf_counter() < until:
                    np.sort(self.sheet)  # at: gallery-lock
            time.sleep(0.002)

    def letters(self) -> None:
        """Pictures as text, dot by dot."""
        while True:
            if not self._play.amount("gallery-text"):
                time.sleep(0.05)
                continue
            shown = []
            for dot in range(100000):
                shown.append(" .:-=+*#%@"[dot * 7919 % 10])  # at: gallery-text
            self.text = "".join(shown)


def measured(count: int, meters: torch.Tensor) -> float:
    """Times each small operation by events, and waits for each."""
    total = 0.0
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(count):
        before.record()  # at: measured
        meters.mul_(0.99)  # at: measured
        after.record()  # at: measured
        after.synchronize()  # at: measured
        total += before.elapsed_time(after)  # at: measured
    return total


def write_sheet(path: Path, sheet: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(file, sheet)  # at: sheets
    os.fdatasync(file)  # at: sheets
    os.close(file)


def main(play: Play) -> None:
    with torch.device("cuda"):
        make, judge = generator(), critic()
    making = torch.optim.Adam(make.parameters(), 2e-4, (0.5, 0.999), fused=True)
    judging = torch.optim.Adam(judge.parameters(), 2e-4, (0.5, 0.999), fused=True)
    real = torch.rand(ROWS, 3, 64, 64).cuda()
    meters = torch.ones(4096).cuda()
    gallery = Gallery(play)
    if play.planned("gallery-lock"):
        threading.Thread(target=gallery.compose, daemon=True).start()
    if play.planned("gallery-text"):
        threading.Thread(target=gallery.letters, daemon=True).start()
    sheet, scratch = os.urandom(int(play.planned("sheets")) << 10), Path(os.environ["SCRATCH"])
    while play.beat():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            fake = make(torch.randn(ROWS, LATENT, 1, 1, device=real.device))
            loss = (1 - judge(real)).relu().mean() + (1 + judge(fake.detach())).relu().mean()
        judging.zero_grad(set_to_none=True)
        loss.backward()
        judging.step()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            fooled = -judge(fake).mean()
        making.zero_grad(set_to_none=True)
        fooled.backward()
        making.step()
        if count := play.amount("measured"):
            measured(int(count), meters)  # at: measured
        if play.amount("sheets"):
            write_sheet(scratch / "sheet.raw", sheet)  # at: sheets
        if ms := play.amount("cool-down"):
            time.sleep(ms / 1e3)  # at: cool-down
        if play.planned("gallery-lock"):
            with gallery.lock:  # at: gallery-lock
                gallery.sheet[: 64 * 64] = fake[0, 0].detach().float().flatten().cpu().numpy()
        fooled.item()


if __name__ == "__main__":
    main(Play())
