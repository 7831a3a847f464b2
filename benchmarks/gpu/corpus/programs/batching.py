"""A service that answers in batches: a thread for each connection, a queue, one loop for the card.

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

import torch
from protocol import Play
from torch import nn
from torch.nn import functional

ROWS, LENGTH, WIDTH, MOST, SIZE = 48, 256, 1024, 8, 256
CLIENTS = """
import socket, sys, threading, time
port, clients, pause, burst = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 1e3, int(sys.argv[4])
def ask():
    link = socket.create_connection(("127.0.0.1", port))
    while True:
        link.sendall(b"q" * 256 * burst)
        left = burst
        while left:
            got = len(link.recv(left))
            if not got: return
            left -= got
        time.sleep(pause)
asking = [threading.Thread(target=ask) for _ in range(clients)]
for each in asking: each.start()
"""
Request = tuple[socket.socket, bytes]


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 8)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embed(words)).mean(1))


def tokens(text: bytes, turns: int) -> list[int]:
    """Merges pairs, in Python."""
    found = list(text)
    for turn in range(turns):
        found = [(found[at] * 31 + turn) % 256 for at in range(len(found))]  # at: merge-pairs
    return found


def receive(link: socket.socket, asked: queue.Queue[Request], play: Play) -> None:
    while True:
        text = b""
        while len(text) < SIZE:
            part = link.recv(SIZE - len(text))
            if not part:
                return
            text += part
        asked.put((link, bytes(tokens(text, int(play.amount("merge-pairs"))))))  # at: merge-pairs


def accept(listening: socket.socket, asked: queue.Queue[Request], play: Play) -> None:
    while True:
        link, _ = listening.accept()
        threading.Thread(target=receive, args=(link, asked, play), daemon=True).start()


def gathered(asked: queue.Queue[Request]) -> list[Request]:
    """Up to MOST that are there; none after a tenth of a second without any."""
    found: list[Request] = []
    with contextlib.suppress(queue.Empty):
        found.append(asked.get(timeout=0.1))  # at: merge-pairs
        while len(found) < MOST:
            found.append(asked.get_nowait())
    return found


@torch.inference_mode()
def main(play: Play) -> None:
    with torch.device("cuda"):
        model = Reader().half().eval()
    asked: queue.Queue[Request] = queue.Queue()
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    threading.Thread(target=accept, args=(listening, asked, play), daemon=True).start()
    shown = [str(play.settings[name]) for name in ("clients", "pause_ms", "burst")]
    port = str(listening.getsockname()[1])
    os.spawnlp(os.P_NOWAIT, "setsid", "setsid", sys.executable, "-c", CLIENTS, port, *shown)
    model(torch.zeros(ROWS * MOST, LENGTH, dtype=torch.long).cuda())
    while play.beat():
        batch = gathered(asked)
        if not batch:
            continue
        words = torch.tensor([list(text) for _, text in batch]).repeat_interleave(ROWS, 0)
        scores = functional.softmax(model(words.cuda()).float(), 1).cpu()
        assert len(scores) == ROWS * len(batch)
        for link, _ in batch:
            link.sendall(b"!")


if __name__ == "__main__":
    main(Play())
