"""Trains a picture classifier: a thread decodes ahead, the main thread mixes and feeds the device."""

from __future__ import annotations

import numpy as np
from runbook import Run
from torchlet import Device

from image_classifier.dataset import Pictures, Prefetcher


def mixup(batch: np.ndarray, rounds: int) -> np.ndarray:
    for _ in range(rounds):
        batch = 0.7 * batch + 0.3 * batch[::-1]
    return batch


def evaluate(device: Device, batches: int, us: float) -> None:
    for _ in range(batches):
        device.launch(us, kind=1)
        device.launch(us / 4, kind=2)
    device.synchronize()


def main() -> None:
    run, device = Run(), Device()
    pictures, size = Pictures(), int(run["batch"])
    ahead = Prefetcher(pictures, size) if run.get("prefetch", True) else None
    weights, host = device.empty(64 << 20), device.pinned(8 << 20)
    step = 0
    while True:
        if run.get("inline_decode"):
            batch = pictures.batch(step * size, size)
        else:
            batch = ahead.next() if ahead else np.zeros((size, 8, 8, 3), np.float32)
        batch = mixup(batch, run["mix_rounds"])
        device.upload(weights, host, min(batch.nbytes, 8 << 20))
        for layer in range(run["layers"]):
            device.launch(run["layer_us"], kind=layer)
        if step % run["log_every"] == 0:
            device.item(weights)
        else:
            device.synchronize()
        step += 1
        run.step()
        if run.get("eval_every") and step % run["eval_every"] == 0:
            evaluate(device, run["eval_batches"], run["layer_us"])


if __name__ == "__main__":
    main()
