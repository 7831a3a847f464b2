"""How the job uses the device, and who else uses it."""

from __future__ import annotations

from random import Random

from benchmarks.truth.drawn import Case, Draw, amid, any_loader, call_cost, gpu_work
from benchmarks.truth.props import OtherJob


def pageable_copies(random: Random) -> Draw:
    """Batches are copied from pageable memory."""
    usual = gpu_work(random) | {"batch_bytes": random.randint(24, 64) << 20, "sync": "lagged"}
    return Draw(usual, {"pinned": False}, stub=call_cost(random), amid=amid(random))


def small_copies(random: Random) -> Draw:
    """The batch goes over in many small copies."""
    usual = gpu_work(random, 5, 9) | {"batch_bytes": random.randint(4, 8) << 20, "sync": "end"}
    later = {"pinned": False, "copies": random.randint(500, 1000)}
    return Draw(usual, later, stub=call_cost(random) | {"INGERO_STUB_PAGEABLE_GBPS": "2"}, amid=amid(random))


def syncs(random: Random) -> Draw:
    """A result is looked at after every layer."""
    layers = random.randint(30, 80)
    usual = gpu_work(random) | {"kernels": layers, "sync": "lagged", "layer_us": random.uniform(60, 110)}
    usual["blocks"] = round(usual["layer_us"] * random.uniform(1.4, 2.0))
    return Draw(usual, {"sync": "layer"}, stub=call_cost(random), amid=amid(random))


def tiny_kernels(random: Random) -> Draw:
    """The same work in many tiny kernels instead of few large ones."""
    gpu_us, kernels = random.randint(4000, 6000), random.randint(1000, 1600)
    usual = gpu_work(random) | {"kernels": 20, "blocks": gpu_us // 20, "sync": "end"}
    later = {"kernels": kernels, "blocks": max(gpu_us // kernels, 1)}
    return Draw(usual, later, stub=call_cost(random), amid=amid(random))


def churn(random: Random) -> Draw:
    """Device memory is allocated and freed in every step."""
    usual = gpu_work(random, 5, 9) | {"sync": "lagged", "layer_us": 0}
    usual["layer_us"] = usual["blocks"] * random.uniform(0.3, 0.5)
    later = {"buffers": random.randint(8, 20), "buffer_bytes": random.randint(1, 64) << 20}
    stub = call_cost(random) | {"INGERO_STUB_ALLOC_US": str(random.randint(80, 250))}
    return Draw(usual, later, stub=stub, amid=amid(random))


def leak(random: Random) -> Draw:
    """Device memory is allocated in every step and never freed."""
    usual = gpu_work(random) | any_loader(random)
    stub = call_cost(random) | {"INGERO_STUB_MEMORY": "80g", "INGERO_STUB_ALLOC_US": "30"}
    return Draw(usual, {"kept_bytes": random.randint(4, 32) << 20}, stub=stub, amid=amid(random))


def too_large(random: Random) -> Draw:
    """The device has not the memory that a step asks for."""
    usual = gpu_work(random) | any_loader(random)
    stub = call_cost(random) | {"INGERO_STUB_MEMORY": f"{random.randint(4, 24)}g"}
    return Draw(usual, {"wanted_bytes": random.randint(30, 60) << 30}, stub=stub, amid=amid(random))


def errors(random: Random) -> Draw:
    """A call is given a pointer that is none, and nobody looks at what it returns."""
    usual = gpu_work(random) | any_loader(random)
    later = {"stale_pointer_every": random.randint(1, 20)}
    return Draw(usual, later, stub=call_cost(random), amid=amid(random))


def recapture(random: Random) -> Draw:
    """A graph is captured anew for every step instead of being launched again."""
    kernels = random.randint(400, 900)
    usual = gpu_work(random) | {"graph": "replay", "kernels": kernels, "sync": "end"}
    usual["blocks"] = round(random.uniform(4, 8) * 1000 / kernels)
    return Draw(usual, {"graph": "capture"}, stub=call_cost(random), amid=amid(random))


def shared(random: Random) -> Draw:
    """A second job computes on the same device."""
    usual = gpu_work(random) | {"blocking": True}
    other = gpu_work(random) | {"blocking": True, "pause_ms": random.choice((0, 0, 4))}
    draw = Draw(usual, props=[OtherJob(other)], stub=call_cost(random), amid=amid(random))
    draw.watch_all = True  # who else uses a device is not seen from one of them
    return draw


CASES = (
    Case("pageable-copies", ("copy-bound",), pageable_copies),
    Case("small-copies", ("copy-bound",), small_copies, frozenset({"sync-heavy"})),
    Case("sync-every-layer", ("sync-heavy",), syncs, frozenset({"launch-bound"})),
    Case("tiny-kernels", ("launch-bound",), tiny_kernels),
    Case("allocations-in-the-loop", ("alloc-churn",), churn, frozenset({"sync-heavy"}), lined=True),
    Case(
        "memory-never-freed", ("gpu-memory-leak",), leak, frozenset({"alloc-churn"}), timed=False, lined=True
    ),
    Case("more-than-the-memory", ("cuda-oom",), too_large, frozenset({"cuda-error"}), timed=False),
    Case("calls-that-fail", ("cuda-error",), errors, timed=False),
    Case("capture-every-step", ("graph-trouble",), recapture, frozenset({"launch-bound"})),
    Case("two-jobs-one-gpu", ("gpu-shared",), shared, blames=True),
)
