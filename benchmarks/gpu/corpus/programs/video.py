"""Clips are told apart by convolutions in space and time; a thread reads them from a file, two ahead.

Works: clips; clips-evaluated (every 25 steps the net is measured on others).
"""

from __future__ import annotations

import json
import os
import queue
import random
import socket
import threading
from pathlib import Path

import torch
from protocol import Play
from torch import nn
from torch.nn import functional

ROWS, FRAMES, SIDE, CLASSES, WIDTHS = 40, 16, 112, 100, (64, 128, 256, 512)
FILE_MIB, PIECE, BUFFERS = 256, 1 << 16, 4
Buffer = tuple[torch.Tensor, torch.cuda.Event]


class Block(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        stride = 1 if before == after else 2
        self.first = nn.Conv3d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv3d(after, after, 3, 1, 1, bias=False)
        self.one, self.two = nn.BatchNorm3d(after), nn.BatchNorm3d(after)
        self.skip = nn.Conv3d(before, after, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = functional.relu(self.one(self.first(x)))
        return functional.relu(self.two(self.second(hidden)) + self.skip(x))


def net() -> nn.Module:
    stem = nn.Conv3d(3, WIDTHS[0], (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False)
    befores = (WIDTHS[0], *WIDTHS[:-1])
    blocks = [Block(before, after) for before, after in zip(befores, WIDTHS, strict=True)]
    ends = (nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(WIDTHS[-1], CLASSES))
    return nn.Sequential(stem, nn.BatchNorm3d(WIDTHS[0]), nn.ReLU(), *blocks, *ends)


class Reader(threading.Thread):
    """Fills pinned buffers with clips; one that is back may still be on its way to the card."""

    def __init__(self, play: Play) -> None:
        super().__init__(daemon=True)
        path = Path(os.environ["SCRATCH"]) / "clips"
        path.write_bytes(os.urandom(1 << 20) * FILE_MIB)
        self._play, self._file = play, os.open(path, os.O_RDONLY)
        os.fsync(self._file)
        if play.planned("cold-frames"):
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_RANDOM)
        self._link: socket.socket | None = None
        self.ready: queue.Queue[Buffer] = queue.Queue(2)
        self.free: queue.Queue[Buffer] = queue.Queue()
        for _ in range(BUFFERS):
            clips = torch.zeros(ROWS, 3, FRAMES, SIDE, SIDE, dtype=torch.uint8).pin_memory()
            self.free.put((clips, torch.cuda.Event()))

    def run(self) -> None:
        places = random.Random(5)
        while True:
            clips, done = self.free.get()
            done.synchronize()
            if ms := self._play.amount("remote-clips"):
                self.fetch(ms)  # at: remote-clips
            if count := self._play.amount("cold-frames"):
                self.frames(int(count), places)  # at: cold-frames
            view = memoryview(clips.numpy()).cast("B")
            start = places.randrange((FILE_MIB << 20) - len(view))
            os.preadv(self._file, [view], start)
            self.ready.put((clips, done))

    def frames(self, count: int, places: random.Random) -> None:
        """Frame by frame, each at a place of its own, none of them in memory."""
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        for _ in range(count):
            os.pread(self._file, PIECE, places.randrange(FILE_MIB << 4) * PIECE)  # at: cold-frames

    def fetch(self, ms: float) -> None:
        if not self._link:
            self._link = socket.create_connection(("127.0.0.1", int(os.environ["PEER_PORT"])))
        self._link.sendall(f"{ms}\n".encode())  # at: remote-clips
        self._link.recv(64)  # at: remote-clips


def annotated(lines: list[str], count: int) -> float:
    """Boxes of what is seen in the frames."""
    area = 0.0
    for number in range(count):
        note = json.loads(lines[number % len(lines)])  # at: annotations
        for left, top, right, low in note["boxes"]:  # at: annotations
            area += (right - left) * (low - top) / SIDE**2  # at: annotations
    return area


def main(play: Play) -> None:
    with torch.device("cuda"):
        model = net()
    model = model.to(memory_format=torch.channels_last_3d)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9, fused=True)
    reader, turn = Reader(play), 0
    reader.start()
    labels = torch.randint(0, CLASSES, (ROWS,)).cuda()
    box = [10, 20, 60, 70]
    lines = [json.dumps({"clip": number, "boxes": [box, box], "who": "anna"}) for number in range(997)]
    while play.beat():
        turn += 1
        raw, done = reader.ready.get()  # at: remote-clips cold-frames
        for _ in range(int(play.amount("float-views"))):
            raw.float().cuda()  # at: float-views
        if count := play.amount("annotations"):
            annotated(lines, int(count))  # at: annotations
        clips = raw.cuda(non_blocking=True)
        done.record()
        reader.free.put((raw, done))
        clips = (clips.float() / 127.5 - 1).contiguous(memory_format=torch.channels_last_3d)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(clips).float(), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if play.work == "clips-evaluated" and turn % 25 == 0:
            evaluate(model, clips, labels)
        if turn % 5 == 0:
            loss.item()


def evaluate(model: nn.Module, clips: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
        right = [(model(clips.roll(shift, 0)).argmax(1) == labels).float().mean() for shift in range(6)]
    model.train()
    return torch.stack(right).mean().item()


if __name__ == "__main__":
    main(Play())
