"""Trains a recommender on what users do now; each step asks others for features."""

from __future__ import annotations

import queue
import threading

from runbook import Run
from torchlet import Device

from recsys.features import Scorer, Store, push_metrics, resolve


def rows_ahead(store: Store, run: Run, ready: queue.Queue[bytes]) -> None:
    first = 0
    while True:
        ready.put(store.fetch(first, run["rows"]))
        first += run["rows"]


def embed(raw: bytes, width: int) -> list[int]:
    return [sum(raw[at : at + width]) for at in range(0, len(raw), width)]


def main() -> None:
    run, device = Run(), Device()
    table, host = device.empty(256 << 20), device.pinned(4 << 20)
    store = Store(run["store"]) if run.get("store") else None
    scorer = Scorer(run["scorer"]) if run.get("scorer") else None
    ready: queue.Queue[bytes] = queue.Queue(maxsize=run.get("ahead", 1))
    if run.get("ahead") and store:
        threading.Thread(target=rows_ahead, args=(store, run, ready), daemon=True).start()
    step = 0
    while True:
        if run.get("ahead"):
            raw = ready.get()
        elif store:
            raw = store.fetch(step * run["rows"], run["rows"])
        else:
            raw = bytes(run["rows"] * 64)
        if scorer:
            scorer.score(run["rows"])
        if run.get("name_servers"):
            resolve(step % 7, [tuple(each) for each in run["name_servers"]], 0.03)
        if run.get("metrics_port"):
            push_metrics(run["metrics_port"], 3, 0.015)
        embed(raw, 16)
        device.upload(table, host, 1 << 20)
        for layer in range(run["layers"]):
            device.launch(run["layer_us"], kind=layer)
        device.item(table)
        step += 1
        run.step()


if __name__ == "__main__":
    main()
