"""A mixture of experts learns: each word is sent to two of many small networks, of fixed capacity.

Settings: chunks (an update after so many batches).
"""

from __future__ import annotations

import torch
from protocol import Play
from torch import nn
from torch.nn import functional

WIDTH, HIDDEN, HEADS, LAYERS, EXPERTS, CHOSEN, SPARE = 1024, 512, 16, 8, 64, 2, 1.25
ROWS, LENGTH, WORDS = 40, 1024, 2048


class Tidy:
    """Gives memory back wherever it is asked to, as often as it may."""

    left = 0

    def __call__(self) -> None:
        if self.left > 0:
            self.left -= 1
            torch.cuda.empty_cache()  # at: release


class Experts(nn.Module):
    """Each expert has weights of its own: they are stacked for the turn."""

    def __init__(self, tidy: Tidy) -> None:
        super().__init__()
        self.tidy = tidy
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.wide = nn.ParameterList(torch.randn(WIDTH, HIDDEN) / 32 for _ in range(EXPERTS))
        self.wide_bias = nn.ParameterList(torch.zeros(1, HIDDEN) for _ in range(EXPERTS))
        self.narrow = nn.ParameterList(torch.randn(HIDDEN, WIDTH) / 32 for _ in range(EXPERTS))
        self.narrow_bias = nn.ParameterList(torch.zeros(1, WIDTH) for _ in range(EXPERTS))
        self.choice, self.gates = torch.zeros(1), torch.zeros(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, room = len(x), int(len(x) * CHOSEN * SPARE / EXPERTS)
        gates = self.router(x).float().softmax(1)
        weight, choice = gates.topk(CHOSEN)
        self.choice, self.gates = choice.detach(), gates.detach()
        expert, order = choice.flatten().sort()
        numbers = torch.arange(EXPERTS, device=x.device)
        starts = torch.searchsorted(expert, numbers)
        place = torch.arange(count * CHOSEN, device=x.device) - starts[expert]
        slot = torch.where(place < room, expert * room + place, EXPERTS * room)
        sent = x.new_zeros(EXPERTS * room + 1, WIDTH).index_copy(0, slot, x.index_select(0, order // CHOSEN))
        self.tidy()  # at: release
        mine = sent[:-1].view(EXPERTS, room, WIDTH)
        hidden = functional.gelu(torch.bmm(mine, torch.stack([*self.wide])) + torch.stack([*self.wide_bias]))
        self.tidy()  # at: release
        said = torch.bmm(hidden, torch.stack([*self.narrow])) + torch.stack([*self.narrow_bias])
        said = torch.cat([said.view(-1, WIDTH), said.new_zeros(1, WIDTH)])
        back = said.index_select(0, slot.index_select(0, order.argsort())).view(count, CHOSEN, WIDTH)
        self.tidy()  # at: release
        return (back * weight[:, :, None].to(back.dtype)).sum(1)


class Layer(nn.Module):
    def __init__(self, tidy: Tidy) -> None:
        super().__init__()
        self.before, self.between = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.queries = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.leave = nn.Linear(WIDTH, WIDTH, bias=False)
        self.experts = Experts(tidy)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        parts = self.queries(self.before(x)).view(rows, length, 3, HEADS, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.leave(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.experts(self.between(x).flatten(0, 1)).view_as(x)


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tidy = Tidy()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer(self.tidy) for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words[:, :-1])
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x)).flatten(0, 1).float()
        return functional.cross_entropy(logits, words[:, 1:].flatten())


def counted(layers: list[Layer], count: int) -> int:
    """How many words each expert got, one expert after the other."""
    most = 0
    for number in range(count):
        choice = layers[number // EXPERTS % LAYERS].experts.choice
        most = max(most, int((choice == number % EXPERTS).sum().item()))  # at: count-words
    return most


def main(play: Play) -> None:
    with torch.device("cuda"):
        model = Mixture().bfloat16()
    fused = torch.optim.Adam(model.parameters(), 1e-5, fused=True)
    plain = torch.optim.Adam(model.parameters(), 1e-5, foreach=False)
    words = torch.randint(0, WORDS, (ROWS, LENGTH + 1)).cuda()
    chunks, turn = play.settings.get("chunks", 1), 0
    layers: list[Layer] = list(model.layers)
    history: list[torch.Tensor] = []
    while play.beat():
        turn += 1
        model.tidy.left = int(play.amount("release"))
        for _ in range(chunks):
            loss = model(words) / chunks
            loss.backward()
        if play.amount("plain-adam"):
            plain.step()  # at: plain-adam
        else:
            fused.step()
        fused.zero_grad(set_to_none=True)
        if count := play.amount("count-words"):
            counted(layers, int(count))  # at: count-words
        for layer in layers[: int(play.amount("keep-gates"))]:
            history.append(layer.experts.gates)  # at: keep-gates
        if turn % 10 == 0:
            loss.item()


if __name__ == "__main__":
    main(Play())
