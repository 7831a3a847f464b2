"""A graph network: messages along edges, scattered to nodes; every graph has another size."""

from __future__ import annotations

import torch
from protocol import Play
from torch import nn
from torch.nn import functional

WIDTH, NODES, EDGES = 256, 120_000, 3_000_000


class Passing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(WIDTH, WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, nodes: torch.Tensor, sources: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        sent = functional.relu(self.message(nodes)).index_select(0, sources)
        got = torch.zeros_like(nodes).index_add_(0, targets, sent)
        return nodes + self.norm(functional.relu(self.update(torch.cat([nodes, got], 1))))


def relations(biases: torch.Tensor, count: int) -> None:
    """One relation after the other, each with next to nothing to do."""
    for number in range(count):
        biases[number % len(biases)].mul_(0.999)  # at: relations


def tidy(count: int, device: torch.device) -> None:
    for _ in range(count):
        pairs = torch.empty(128 << 20, dtype=torch.uint8, device=device)  # at: tidy
        del pairs
        torch.cuda.empty_cache()  # at: tidy


def all_pairs(free: int) -> torch.Tensor | None:
    """Wants the matrix of all pairs, then half of it, then makes do without."""
    for part in (3.0, 1.5):
        try:
            return torch.empty(int(part * free), dtype=torch.uint8, device="cuda")  # at: all-pairs
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
    return None


def main(play: Play) -> None:
    layers = nn.ModuleList(Passing() for _ in range(4)).cuda()
    head = nn.Linear(WIDTH, 40).cuda()
    optimizer = torch.optim.Adam([*layers.parameters(), *head.parameters()], 1e-3, fused=True)
    features, labels = torch.randn(NODES, WIDTH).cuda(), torch.randint(0, 40, (NODES,)).cuda()
    biases, turn = torch.ones(64, WIDTH).cuda(), 0
    torch.set_float32_matmul_precision("high")
    while play.beat():
        share, turn = 1 - turn % 8 / 16, turn + 1
        count, edges = int(NODES * share), int(EDGES * share)
        sources = torch.randint(0, count, (edges,), device=features.device)
        targets = torch.randint(0, count, (edges,), device=features.device)
        nodes = features[:count]
        for layer in layers:
            nodes = layer(nodes, sources, targets)
        loss = functional.cross_entropy(head(nodes), labels[:count])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        if many := play.amount("relations"):
            relations(biases, int(many))  # at: relations
        if many := play.amount("tidy"):
            tidy(int(many), features.device)  # at: tidy
        if play.amount("all-pairs") and turn % 20 == 0:
            all_pairs(torch.cuda.mem_get_info()[0])  # at: all-pairs


if __name__ == "__main__":
    main(Play())
