"""Pretrains a small language model with gradient accumulation."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from pathlib import Path

from runbook import Run
from torchlet import SLEEPS, SPINS, Device

from lm.telemetry import Telemetry
from lm.tokens import Packer


class Node:
    """Of the graph that autograd keeps; points back at its parent."""

    def __init__(self, parent: Node | None) -> None:
        self.parent, self.children = parent, []
        if parent:
            parent.children.append(self)


def grown_graph(nodes: int) -> list[Node]:
    root = Node(None)
    made = [root]
    for number in range(nodes):
        made.append(Node(made[number // 2]))
    return made


def current_revision() -> str:
    """For the run's record."""
    said = subprocess.run(["git", "--version"], capture_output=True, text=True, check=False)
    return said.stdout.strip()


def forward_backward(device: Device, run: Run, tokens: list[int], scale: float) -> None:
    device.launch(40 + len(tokens) % 8, kind=3)
    for layer in range(run["layers"]):
        device.launch(run["layer_us"] * scale, kind=layer)


def main() -> None:
    run = Run()
    device = Device(waits=SPINS if run.get("spin") else SLEEPS)
    packer, telemetry = Packer(run["vocabulary"]), Telemetry()
    loss, kept = device.empty(4096), grown_graph(run.get("graph_nodes", 0))
    if run.get("warm_up_s"):
        warm_up(device, run["warm_up_s"])
    step, scale, began = 0, 1.0, time.monotonic()
    while not run.get("stop_after_s") or time.monotonic() - began < run["stop_after_s"]:
        for _ in range(run["accumulate"]):
            tokens = packer.pack(run["sequence"])
            forward_backward(device, run, tokens, scale)
        device.launch(run["layer_us"], kind=1)  # the optimiser
        if step % run["sync_every"] == 0:
            device.item(loss)
        if run.get("collect"):
            gc.collect()
        if run.get("print_rows"):
            telemetry.table(step, run["print_rows"])
        if run.get("stamp_revision"):
            telemetry.note({"step": step, "revision": current_revision()})
        if run.get("dump_tensors"):
            Path(run.folder, "stats.json").write_text(json.dumps(telemetry.tensors(run["dump_tensors"])))
        scale *= run.get("grow", 1.0)
        step += 1
        run.step()
    device.synchronize()
    print(f"done after {step} steps, {len(kept)} nodes", file=sys.stderr)


def warm_up(device: Device, seconds: float) -> None:
    """Tries which kernels are quickest, as autotuners do."""
    until, number = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        device.launch(300 + 100 * (number % 7), kind=number)
        device.synchronize()
        sum(value * value for value in range(60_000))
        number += 1


if __name__ == "__main__":
    main()
