"""A U-Net learns to take noise away; a moving average of its weights is kept.

Works: unet (latents are on the card); unet-loader (workers read and augment them).
Settings: workers; keep_every: a small checkpoint in every so many steps.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from protocol import Play
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

ROWS, SIDE, LEVELS = 160, 64, (128, 256, 512, 1024)


class Block(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, before)
        self.first = nn.Conv2d(before, after, 3, padding=1)
        self.second = nn.Conv2d(after, after, 3, padding=1)
        self.time = nn.Linear(256, after)
        self.skip = nn.Conv2d(before, after, 1)

    def forward(self, x: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        hidden = self.first(functional.silu(self.norm(x))) + self.time(moment)[:, :, None, None]
        return self.skip(x) + self.second(functional.silu(hidden))


class Unet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(4, LEVELS[0], 3, padding=1)
        self.time = nn.Sequential(nn.Linear(64, 256), nn.SiLU(), nn.Linear(256, 256))
        befores = (LEVELS[0], *LEVELS[:-1])
        self.down = nn.ModuleList(Block(a, b) for a, b in zip(befores, LEVELS, strict=True))
        self.up = nn.ModuleList(Block(b + a, a) for a, b in zip(befores, LEVELS, strict=True))
        self.leave = nn.Conv2d(LEVELS[0], 4, 3, padding=1)

    def forward(self, x: torch.Tensor, when: torch.Tensor) -> torch.Tensor:
        angles = when[:, None].float() * torch.arange(1, 33, device=x.device) / 100
        moment = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        x, kept = self.enter(x), []
        for block in self.down:
            kept.append(x)
            x = functional.avg_pool2d(block(x, moment), 2)
        for block in reversed(self.up):
            x = functional.interpolate(x, scale_factor=2.0)
            x = block(torch.cat([x, kept.pop()], 1), moment)
        return self.leave(x)


class Latents(Dataset[torch.Tensor]):
    def __init__(self, sharpen: Any) -> None:
        self._sharpen = sharpen

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, number: int) -> torch.Tensor:
        latent = np.full((4, SIDE, SIDE), number % 7, np.float32)
        for _ in range(int(self._sharpen.value)):
            latent = 1.2 * latent - 0.1 * (np.roll(latent, 1, 1) + np.roll(latent, 1, 2))  # at: sharpen
            latent = np.clip(latent, -3.0, 3.0)  # at: sharpen
        return torch.from_numpy(latent[:, :, ::-1].copy())


def jitter(count: int) -> torch.Tensor:
    """Crops, flips and colours pictures one by one."""
    random, made = np.random.default_rng(), []
    for _ in range(count):
        picture = random.integers(0, 255, (288, 288, 3), dtype=np.uint8)  # at: jitter
        top, left = random.integers(0, 32, 2)
        cropped = picture[top : top + 256, left : left + 256].astype(np.float32) / 255  # at: jitter
        grey = cropped.mean(2, keepdims=True)  # at: jitter
        coloured = np.clip((cropped - grey) * 1.3 + grey**0.9, 0, 1)  # at: jitter
        made.append((coloured[:, ::-1] - 0.5).transpose(2, 0, 1))
    return torch.from_numpy(np.stack(made))  # at: jitter


class Shards:
    """Training data on the disk, never in the page cache."""

    def __init__(self, mib: int) -> None:
        path = Path(os.environ["SCRATCH"]) / "shard"
        self._size = mib << 20
        path.write_bytes(os.urandom(1 << 20) * mib)
        self._file = os.open(path, os.O_RDONLY)
        os.fsync(self._file)

    def read(self) -> int:
        os.posix_fadvise(self._file, 0, self._size, os.POSIX_FADV_DONTNEED)
        got = 0
        while got < self._size:
            got += len(os.pread(self._file, 4 << 20, got))  # at: cold-shards
        return got


def save(path: Path, *parts: list[torch.Tensor]) -> None:
    with path.open("wb") as file:
        torch.save(parts, file)  # at: snapshots
        file.flush()  # at: snapshots
        os.fsync(file.fileno())  # at: snapshots


def main(play: Play) -> None:
    with torch.device("cuda"):
        model = Unet()
    model = model.to(memory_format=torch.channels_last)
    weights = [each.detach() for each in model.parameters()]
    average = [each.clone() for each in weights]
    on_host: list[torch.Tensor] = []
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    fixed = torch.randn(ROWS, 4, SIDE, SIDE).cuda()
    shards = Shards(int(play.planned("cold-shards"))) if play.planned("cold-shards") else None
    latents = Latents(play.shared("sharpen"))
    workers, keep_every = play.settings.get("workers", 4), play.settings.get("keep_every", 0)
    loading = play.work == "unet-loader"
    batches = iter(DataLoader(latents, ROWS, num_workers=workers, pin_memory=True)) if loading else None
    scratch, turn = Path(os.environ["SCRATCH"]), 0
    while play.beat():
        turn += 1
        if pictures := play.amount("jitter"):
            jitter(int(pictures)).pin_memory().cuda(non_blocking=True)  # at: jitter
        if shards and play.amount("cold-shards"):
            shards.read()  # at: cold-shards
        clean = next(batches).cuda(non_blocking=True) if batches else fixed  # at: sharpen
        noise, when = torch.randn_like(clean), torch.randint(0, 1000, (ROWS,), device=clean.device)
        share = (when / 1000)[:, None, None, None]
        noisy = ((1 - share) * clean + share * noise).to(memory_format=torch.channels_last)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = functional.mse_loss(model(noisy, when).float(), noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        torch._foreach_lerp_(average, weights, 0.001)
        if part := play.amount("average-on-host"):
            on_host = on_host or [torch.zeros(each.shape) for each in weights]
            for shadow, weight in list(zip(on_host, weights, strict=True))[: int(part * len(weights))]:
                shadow.copy_(weight)  # at: average-on-host
        if (every := play.amount("snapshots")) and turn % int(every) == 0:
            save(scratch / "snapshot.pt", weights, average)  # at: snapshots
        if keep_every and turn % keep_every == 0:
            torch.save(average[:4], scratch / "small.pt")
        if turn % 10 == 0:
            loss.item()


if __name__ == "__main__":
    main(Play())
