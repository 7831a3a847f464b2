"""How the job uses the device, what the device answers, and who else is on it."""

from __future__ import annotations

from random import Random

from benchmarks.truth.drawn import Case, Draw
from benchmarks.truth.held_out.shape import fit, gpu_ms, shape
from benchmarks.truth.props import OtherJob


def looks(random: Random) -> Draw:
    """A number is copied back after every layer or two, as `.item()` does."""
    layer_us, kernels = random.uniform(60, 110), random.randint(40, 90)
    usual = shape(random, 5, 9, sync="stream", streams=1, layer_us=layer_us, kernels=kernels)
    usual["blocks"] = round(layer_us * random.uniform(1.3, 1.8))
    return fit(random, usual, {"look_layers": random.randint(1, 2)})


def no_graph(random: Random) -> Draw:
    """What was one graph is launched kernel by kernel again, with Python between them."""
    kernels = random.randint(300, 600)
    usual = shape(random, 5, 9, kernels=kernels, graph="replay", streams=1)
    usual["blocks"] = random.randint(8, 13)
    return fit(random, usual, {"graph": "", "layer_us": random.uniform(12, 20)})


def results_to_pageable(random: Random) -> Draw:
    """What the device computed is copied back into pageable memory."""
    usual = shape(random, 5, 9, result_bytes=random.randint(28, 64) << 20)
    return fit(random, usual, {"result_pinned": False})


def many_sizes(random: Random) -> Draw:
    """Buffers of several sizes live for one step; most are not from a pool."""
    usual = shape(random, 6, 10, sync="lagged", buffer_bytes=random.randint(8, 96) << 20)
    draw = fit(random, usual, {"buffers_mixed": True, "buffers": random.randint(15, 27)})
    draw.stub["INGERO_STUB_ALLOC_US"] = str(random.randint(150, 300))
    return draw


def slow_leak(random: Random) -> Draw:
    """A little is kept every few steps, beside buffers that are given back."""
    later = {"kept_bytes": random.randint(1, 4) << 20, "kept_every": random.randint(3, 6)}
    usual = shape(random, 5, 9, buffers_mixed=True, buffers=3, buffer_bytes=8 << 20)
    draw = fit(random, usual, later)
    draw.stub |= {"INGERO_STUB_MEMORY": "40g", "INGERO_STUB_ALLOC_US": "30"}
    return draw


def illegal_access(random: Random) -> Draw:
    """A kernel writes where it may not: the wait for it fails, and every call after that.

    The driver tells, and the runtime passes it on.
    """
    usual = shape(random, 6, 12, sync="end")
    draw = fit(random, usual)
    after = round(random.uniform(1.8, 3) * 1000 / (gpu_ms(usual) + 2))
    draw.faulty_stub["INGERO_STUB_FAIL"] = (
        f"cuEventSynchronize:{after}+=700,cuMemcpyHtoDAsync_v2:{after + 1}+=700"
    )
    return draw


def too_large_once(random: Random) -> Draw:
    """A pool is asked once for more than there is; the job goes on with less."""
    later = {"wanted_once": True, "wanted_bytes": random.randint(10, 40) << 30}
    draw = fit(random, shape(random, 5, 12), later)
    draw.stub["INGERO_STUB_MEMORY"] = f"{random.randint(3, 8)}g"
    draw.amid = True  # it happens once
    return draw


def old_driver(random: Random) -> Draw:
    """The driver is older than the runtime: every call says so from the first on."""
    draw = fit(random, shape(random, 5, 12))
    asked = ("cudaGetDeviceCount", "cudaSetDeviceFlags", "cudaMalloc", "cudaMallocHost")
    draw.faulty_stub["INGERO_STUB_FAIL"] = ",".join(f"{name}:1+=35" for name in asked)
    draw.attach_first = True
    return draw


def many_shapes(random: Random) -> Draw:
    """Batches have come to have more shapes than there are graphs kept."""
    kernels = random.randint(500, 1000)
    usual = shape(random, 4, 8, kernels=kernels, graph="replay", streams=1, shapes=2, graphs_kept=4)
    usual["blocks"] = max(round(random.uniform(4, 7) * 1000 / kernels), 1)
    return fit(random, usual, {"shapes": random.randint(20, 60)})


def bursts_of_another(random: Random) -> Draw:
    """Another job comes to the device in bursts."""
    usual = shape(random, 6, 12)
    other = shape(random, 8, 14) | {
        "burst_steps": random.randint(15, 40),
        "rest_ms": random.uniform(100, 300),
    }
    draw = fit(random, usual, None, OtherJob(other, "fit"))
    draw.watch_all = True  # who else uses a device is not seen from one of them
    return draw


CASES = (
    Case("looks-at-every-layer", ("sync-heavy",), looks, frozenset({"launch-bound"})),
    Case("graph-given-up", ("launch-bound",), no_graph),
    Case("results-to-pageable", ("copy-bound",), results_to_pageable, frozenset({"sync-heavy"})),
    Case("buffers-of-many-sizes", ("alloc-churn",), many_sizes, frozenset({"sync-heavy"}), lined=True),
    Case("slow-leak", ("gpu-memory-leak",), slow_leak, frozenset({"alloc-churn"}), timed=False, lined=True),
    Case("illegal-access", ("cuda-error",), illegal_access, frozenset({"gpu-fault"}), timed=False),
    Case("too-large-once", ("cuda-oom",), too_large_once, frozenset({"cuda-error"}), timed=False),
    Case("old-driver", ("version-mismatch",), old_driver, frozenset({"cuda-error"}), timed=False),
    Case("more-shapes-than-graphs", ("graph-trouble",), many_shapes, frozenset({"launch-bound"})),
    Case("bursts-of-another-job", ("gpu-shared",), bursts_of_another, blames=True),
)
