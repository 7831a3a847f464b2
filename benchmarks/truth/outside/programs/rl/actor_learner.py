"""Actors fill a replay buffer, a learner takes batches from it; both use the device in turn."""

from __future__ import annotations

import random
import threading
import time

from runbook import Run
from torchlet import Device

from rl.replay import Replay


def act(device: Device, replay: Replay, run: Run) -> None:
    stream, state = device.stream(), [0.0] * 16
    while True:
        device.launch(run["policy_us"], stream, 1)
        device.synchronize(stream)
        state = [0.9 * value + random.random() for value in state]
        replay.add(tuple(state), run.get("tidy_s", 0))
        time.sleep(run.get("actor_rest_s", 0.004))


def learn(device: Device, replay: Replay, run: Run) -> None:
    stream, loss = device.stream(), device.empty(4096)
    while True:
        batch = replay.sample(run["batch"])
        sum(state[0] for state in batch)
        for layer in range(run["layers"]):
            device.launch(run["layer_us"], stream, layer)
        device.synchronize(stream)
        if run.get("target_us"):
            for layer in range(run["layers"]):
                device.launch(run["target_us"], stream, layer + 2)
            device.synchronize(stream)
        device.item(loss)
        run.step()


def main() -> None:
    run, device = Run(), Device()
    replay = Replay(5000)
    for number in range(run["actors"]):
        threading.Thread(target=act, args=(device, replay, run), daemon=True, name=f"actor-{number}").start()
    learn(device, replay, run)


if __name__ == "__main__":
    main()
