"""A service marks what is where in pictures: behind a unix socket, in batches.

Settings: clients, pause_ms (between two requests of a client), burst (requests at once).
Its clients are a process of their own.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import sys
import threading
import time
from pathlib import Path

import torch
from protocol import Play
from torch import nn
from torch.nn import functional

SIDE, WIDTH, LAYERS, CLASSES, MOST, LINGERED = 512, 384, 24, 20, 8, 64
CLIENTS = """
import contextlib, socket, sys, threading, time
path, size, answer = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
clients, pause, burst = int(sys.argv[4]), float(sys.argv[5]) / 1e3, int(sys.argv[6])
picture = bytes(range(256)) * (size // 256)
def send(link):
    with contextlib.suppress(OSError):
        for _ in range(burst): link.sendall(picture)
def ask():
    with contextlib.suppress(OSError): asked(socket.socket(socket.AF_UNIX))
def asked(link):
    link.connect(path)
    while True:
        sending = threading.Thread(target=send, args=(link,))
        sending.start()
        left = burst * answer
        while left:
            got = len(link.recv(min(left, 1 << 18)))
            if not got: return
            left -= got
        sending.join()
        time.sleep(pause)
asking = [threading.Thread(target=ask) for _ in range(clients)]
for each in asking: each.start()
"""
Request = tuple[socket.socket, bytearray]


def segmenter() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, WIDTH, 4, 4), nn.ReLU(inplace=True)]
    for number in range(LAYERS):
        wide = 1 << number % 3
        layers += [nn.Conv2d(WIDTH, WIDTH, 3, 1, wide, wide), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Conv2d(WIDTH, CLASSES, 1))


def receive(link: socket.socket, asked: queue.Queue[Request]) -> None:
    while True:
        picture = bytearray(3 * SIDE * SIDE)
        view, got = memoryview(picture), 0
        while got < len(picture):
            count = link.recv_into(view[got:])
            if not count:
                return
            got += count
        asked.put((link, picture))


def accept(listening: socket.socket, asked: queue.Queue[Request]) -> None:
    while True:
        link, _ = listening.accept()
        threading.Thread(target=receive, args=(link, asked), daemon=True).start()


def gathered(asked: queue.Queue[Request], linger_ms: float) -> list[Request]:
    """Up to MOST that are there; or as many as come while it lingers, to have fuller batches."""
    found: list[Request] = []
    with contextlib.suppress(queue.Empty):
        found.append(asked.get(timeout=0.1))
        until = time.monotonic() + linger_ms / 1e3
        while linger_ms and len(found) < LINGERED and (left := until - time.monotonic()) > 0:
            found.append(asked.get(timeout=left))  # at: linger
        while not linger_ms and len(found) < MOST:
            found.append(asked.get_nowait())
    return found


@torch.inference_mode()
def main(play: Play) -> None:
    with torch.device("cuda"):
        model = segmenter().half().eval()
    model = model.to(memory_format=torch.channels_last)
    asked: queue.Queue[Request] = queue.Queue()
    model(torch.zeros(MOST, 3, SIDE, SIDE).cuda().half().contiguous(memory_format=torch.channels_last))
    path = Path(os.environ["SCRATCH"]) / "s"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen(64)
    threading.Thread(target=accept, args=(listening, asked), daemon=True).start()
    shown = [str(play.settings[name]) for name in ("clients", "pause_ms", "burst")]
    sizes = (str(3 * SIDE * SIDE), str(SIDE * SIDE))
    os.spawnlp(os.P_NOWAIT, "setsid", "setsid", sys.executable, "-c", CLIENTS, str(path), *sizes, *shown)
    while play.beat():
        batch = gathered(asked, play.amount("linger"))  # at: linger
        if not batch:
            continue
        raw = torch.stack([torch.frombuffer(picture, dtype=torch.uint8) for _, picture in batch])
        pictures = raw.view(-1, 3, SIDE, SIDE).cuda().half() / 127.5 - 1
        logits = model(pictures.contiguous(memory_format=torch.channels_last))
        masks = functional.interpolate(logits, size=(SIDE, SIDE), mode="bilinear").argmax(1)
        for (link, _), mask in zip(batch, masks.byte().cpu().numpy(), strict=True):
            link.sendall(mask)


if __name__ == "__main__":
    main(Play())
