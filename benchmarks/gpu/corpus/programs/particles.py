"""Bodies attract each other: all pairs, some rows of them at a time, in plain tensor code."""

from __future__ import annotations

import torch
from protocol import Play

BODIES, ROWS, TURNS, EPSILON = 32768, 2048, 2, 1e-3
IMAGES, TRY_EVERY = 1 << 12, 4  # all rows and images at once: more than any card has


def tried(places: torch.Tensor, tries: int) -> torch.Tensor | None:
    """All pairs with all images at once, else with half of them, and so on; None if none fits."""
    for number in range(tries):
        try:
            return places.new_empty(len(places), len(places), IMAGES >> number)  # at: all-images
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()  # at: all-images
    return None


def pull(some: torch.Tensor, places: torch.Tensor, masses: torch.Tensor) -> torch.Tensor:
    """What all bodies do to some."""
    squares = (some * some).sum(1, keepdim=True) + (places * places).sum(1) - 2 * some @ places.T
    strength = masses * (squares.clamp_min(0) + EPSILON).rsqrt().pow(3)
    return strength @ places - strength.sum(1, keepdim=True) * some


def pulls(places: torch.Tensor, masses: torch.Tensor, tries: int) -> torch.Tensor:
    found = []
    for number, some in enumerate(places.split(ROWS)):
        if tries and number % TRY_EVERY == 0:
            tried(places, tries)  # at: all-images
        found.append(pull(some, places, masses))
    return torch.cat(found)


@torch.inference_mode()
def main(play: Play) -> None:
    with torch.device("cuda"):
        places, speeds = torch.randn(BODIES, 3), torch.randn(BODIES, 3) / 10
        masses = torch.rand(BODIES) / BODIES
    while play.beat():
        for _ in range(TURNS):
            speeds += 1e-4 * pulls(places, masses, int(play.amount("all-images")))
            places += 1e-4 * speeds
        energy = (masses[:, None] * speeds.square()).sum()
        assert energy.item() >= 0


if __name__ == "__main__":
    main(Play())
