"""Trains on a graph whose features do not fit on the device."""

from __future__ import annotations

import time

from runbook import Run
from torchlet import Device

from gnn.storage import Journal, MappedFeatures, ReadFeatures, Saver


def run_epoch(run: Run, device: Device) -> None:
    features = MappedFeatures(run["features"]) if run.get("nodes") else None
    swept = ReadFeatures(run["features"]) if run.get("sweep_mb") else None
    saver = Saver(run["state"]) if run.get("state") else None
    journal = Journal(run["state"]) if run.get("state") else None
    host, table, step = device.pinned(8 << 20), device.empty(64 << 20), 0
    while True:
        if features:
            features.gather(run["nodes"], run["spread"])
        if swept:
            swept.sweep(run["sweep_mb"])
        device.upload(table, host, 4 << 20)
        for hop in range(run["hops"]):
            device.launch(run["hop_us"], kind=hop)
        device.synchronize()
        step += 1
        if saver and run.get("save_every") and step % run["save_every"] == 0:
            (saver.save_later if run.get("save_later") else saver.save)(run["save_mb"])
        if journal and run.get("journal"):
            journal.add(f'{{"step": {step}, "time": {time.time():.3f}}}', run.get("durable", False))
        run.step()


if __name__ == "__main__":
    run_epoch(Run(), Device())
