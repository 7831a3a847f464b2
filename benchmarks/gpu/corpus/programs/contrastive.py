"""Pictures and captions learn to find each other: two towers, one loss over all pairs.

Works: pairs (all on the card); pairs-loader (workers crop and mirror the pictures).
Settings: workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from protocol import Play
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

ROWS, SIDE, PATCH, WIDTH, LAYERS = 192, 128, 8, 768, 8
WORDS, LENGTH, TEXT, TEXT_LAYERS = 16384, 64, 512, 6
KEPT, BORDER = 256, 16


def tower(width: int, layers: int) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        width, width // 64, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


class Towers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.places = nn.Parameter(torch.randn((SIDE // PATCH) ** 2, WIDTH) / 50)
        self.see, self.seen = tower(WIDTH, LAYERS), nn.Linear(WIDTH, TEXT)
        self.embed = nn.Embedding(WORDS, TEXT)
        self.read, self.told = tower(TEXT, TEXT_LAYERS), nn.Linear(TEXT, TEXT)
        self.scale = nn.Parameter(torch.tensor(10.0))

    def pictures(self, raw: torch.Tensor) -> torch.Tensor:
        patches = self.patches(raw.to(self.places.dtype) / 127.5 - 1).flatten(2).transpose(1, 2)
        return functional.normalize(self.seen(self.see(patches + self.places).mean(1)), dim=1)

    def captions(self, words: torch.Tensor) -> torch.Tensor:
        return functional.normalize(self.told(self.read(self.embed(words)).mean(1)), dim=1)


class Pictures(Dataset[torch.Tensor]):
    """Some that are kept, cropped and mirrored anew each time."""

    def __init__(self, blur: Any) -> None:
        random = np.random.default_rng(3)
        self._kept = random.integers(0, 255, (KEPT, SIDE + BORDER, SIDE + BORDER, 3), np.uint8)
        self._blur = blur

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, number: int) -> torch.Tensor:
        top, left = number * 7 % BORDER, number * 5 % BORDER
        picture = self._kept[number % KEPT, top : top + SIDE, left : left + SIDE]
        if turns := int(self._blur.value):
            soft = picture.astype(np.float32)
            for _ in range(turns):
                beside = np.roll(soft, 1, 0) + np.roll(soft, 1, 1)  # at: blur-behind
                soft = np.clip(0.5 * soft + 0.25 * beside, 0, 255)  # at: blur-behind
            picture = soft.astype(np.uint8)
        if number % 2:
            picture = picture[:, ::-1]
        return torch.from_numpy(np.ascontiguousarray(picture.transpose(2, 0, 1)))


def epochs(play: Play) -> Iterator[torch.Tensor]:
    """A short epoch is a new set of workers."""
    pictures = Pictures(play.shared("blur-behind"))
    workers = play.settings.get("workers", 4)
    loader = DataLoader(pictures, ROWS, num_workers=workers, pin_memory=True)
    while True:
        left = -1
        for batch in loader:  # at: new-workers blur-behind
            yield batch
            most = int(play.amount("new-workers"))
            left = (left if left > 0 else most) - 1
            if most and not left:
                break  # at: new-workers


def retrieve(found: torch.Tensor, bank: torch.Tensor) -> float:
    """How near each picture is to each caption ever seen, for a plot."""
    scores = (found @ bank.T).float()
    home = scores.cpu().numpy()  # at: retrieval-home
    return float(home[:, :64].max())


def main(play: Play) -> None:
    with torch.device("cuda"):
        model = Towers().bfloat16()
        bank = torch.randn(int(play.planned("retrieval-home")), TEXT, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5, fused=True)
    fixed = torch.randint(0, 255, (ROWS, 3, SIDE, SIDE), dtype=torch.uint8).cuda()
    words = torch.randint(0, WORDS, (ROWS, LENGTH)).cuda()
    mates = torch.arange(ROWS).cuda()
    batches = epochs(play) if play.work == "pairs-loader" else None
    turn = 0
    while play.beat():
        turn += 1
        raw = next(batches).cuda(non_blocking=True) if batches else fixed  # at: new-workers blur-behind
        found, told = model.pictures(raw), model.captions(words)
        logits = (model.scale * found @ told.T).float()
        loss = functional.cross_entropy(logits, mates) + functional.cross_entropy(logits.T, mates)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if play.amount("retrieval-home"):
            retrieve(found.detach(), bank)  # at: retrieval-home
        if turn % 20 == 0:
            loss.item()


if __name__ == "__main__":
    main(Play())
