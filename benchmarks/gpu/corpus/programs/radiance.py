"""A scene as two networks of coordinates, a coarse and a fine one, learnt from rays; the step is a graph."""

from __future__ import annotations

import torch
from protocol import Play
from torch import nn

RAYS, COARSE, FINE, WIDTH, LAYERS, WAVES = 4096, 64, 128, 512, 8, 10


class Field(nn.Module):
    """Colour and density at a point."""

    def __init__(self) -> None:
        super().__init__()
        layers, before = list[nn.Module](), 6 * WAVES
        for _ in range(LAYERS):
            layers += [nn.Linear(before, WIDTH), nn.ReLU(inplace=True)]
            before = WIDTH
        self.layers = nn.Sequential(*layers, nn.Linear(WIDTH, 4))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        scales = 2.0 ** torch.arange(WAVES, device=points.device)
        angles = (points[..., None] * scales).flatten(-2)
        return self.layers(torch.cat([angles.sin(), angles.cos()], -1).bfloat16()).float()


def rendered(told: torch.Tensor, depths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Colours of rays, and how much each point of them counts."""
    gaps = torch.diff(depths, dim=1, append=depths[:, -1:] + 0.1)
    dense = told[..., 3].relu() * gaps
    clear = torch.exp(-(dense.cumsum(1) - dense))
    counts = clear * (1 - torch.exp(-dense))
    return (counts[..., None] * told[..., :3].sigmoid()).sum(1), counts


class Learning:
    def __init__(self) -> None:
        with torch.device("cuda"):
            self.coarse, self.fine = Field().bfloat16(), Field().bfloat16()
            self.starts, self.ways = torch.rand(RAYS, 1, 3), torch.randn(RAYS, 1, 3)
            self.colours = torch.rand(RAYS, 3)
            self.even = torch.linspace(0, 1, COARSE)
            self.loss = torch.zeros(())
        weights = [*self.coarse.parameters(), *self.fine.parameters()]
        self.optimizer = torch.optim.Adam(weights, 1e-5, fused=True, capturable=True)

    def step(self) -> None:
        depths = self.even + torch.rand(RAYS, COARSE, device=self.starts.device) / COARSE
        rough, counts = rendered(self.coarse(self.starts + depths[..., None] * self.ways), depths)
        shares = (counts.detach() + 1e-4).cumsum(1)
        wanted = torch.rand(RAYS, FINE, device=shares.device) * shares[:, -1:]
        nearest = torch.searchsorted(shares, wanted).clamp_max(COARSE - 1)
        closer = depths.gather(1, nearest).sort(1).values
        exact, _ = rendered(self.fine(self.starts + closer[..., None] * self.ways), closer)
        loss = (rough - self.colours).square().mean() + (exact - self.colours).square().mean()
        loss.backward()
        self.optimizer.step()
        self.loss.copy_(loss.detach())

    def warm(self) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.optimizer.zero_grad(set_to_none=True)
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()

    def captured(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):  # at: ray-counts
            self.step()  # at: ray-counts
        return graph


def main(play: Play) -> None:
    learning = Learning()
    learning.warm()
    graph, turn = learning.captured(), 0
    while play.beat():
        turn += 1
        for _ in range(int(play.amount("ray-counts"))):
            graph = learning.captured()  # at: ray-counts
        graph.replay()
        if turn % 4 == 0:
            learning.loss.item()


if __name__ == "__main__":
    main(Play())
