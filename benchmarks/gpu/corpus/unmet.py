"""Jobs of other makes than those the diagnosis was worked out on; written without a look at it.

What is expected is what somebody who knows such jobs would say first; more than one kind where
either is a fair name for it.
"""

from __future__ import annotations

from typing import Any

from benchmarks.gpu.corpus.cases import Amount, Case

STARVED = ("data-starvation",)
IDLE = ("slowdown", "gpu-idle")
BUSY_SERVICE = {"clients": 24, "pause_ms": 0, "burst": 1}


def ill(
    program: str, work: str, name: str, amount: Amount, expected: tuple[str, ...], when: str, **more: Any
) -> Case:
    """One trouble of a job's own."""
    made = f"{program}-{name}" if work != "unet-loader" else f"loader-{name}"
    return Case(made, expected, ((name, amount),), work=work, when=when, program=f"{program}.py", **more)


def outside(name: str, expected: tuple[str, ...], program: str, work: str, around: str, **more: Any) -> Case:
    """What others do to it, amid the recording."""
    return Case(
        name,
        expected,
        around=(around,),
        work=work,
        when="amid",
        program=f"{program}.py",
        lined=False,
        **more,
    )


ILL = (
    ill("language", "lstm", "fetch-logits", (2000, 8000), ("copy-bound",), "amid"),
    ill("language", "lstm", "word-accuracy", (1000, 2500), ("sync-heavy",), "amid"),
    ill("language", "lstm", "keep-logits", (16, 48), ("gpu-memory-leak",), "start"),
    ill("language", "lstm", "wordy", (4000, 12000), (*STARVED, *IDLE), "start"),
    Case("language-cells", ("launch-bound",), work="cells", when="start", program="language.py", lined=False),
    ill("diffusion", "unet", "average-on-host", (0.6, 1.0), ("copy-bound",), "amid"),
    ill("diffusion", "unet", "jitter", (10, 30), STARVED, "start"),
    ill("diffusion", "unet", "cold-shards", (48, 128), ("disk-wait", *STARVED), "amid"),
    ill("diffusion", "unet", "snapshots", (9, 16), ("disk-wait", "periodic-spike"), "start"),
    ill("diffusion", "unet-loader", "sharpen", (30, 60), STARVED, "amid", cores=6),
    outside("loader-hogs", ("cpu-contention",), "diffusion", "unet-loader", "hogs", cores=2),
    outside("loader-quota", ("cpu-throttled",), "diffusion", "unet-loader", "quota"),
    ill("adversarial", "gan", "measured", (1000, 2500), ("sync-heavy",), "start"),
    ill("adversarial", "gan", "sheets", (4000, 16000), ("disk-wait",), "amid"),
    ill("adversarial", "gan", "cool-down", (30, 80), IDLE, "start"),
    ill("adversarial", "gan", "gallery-lock", (90, 160), (*STARVED, *IDLE), "amid"),
    ill("adversarial", "gan", "gallery-text", (1, 1), ("gil-contention",), "start"),
    ill("policy", "ppo", "pendulum", (60e3, 150e3), STARVED, "amid"),
    ill("policy", "ppo-pipes", "pendulum-behind", (60e3, 150e3), STARVED, "start", cores=6),
    ill("policy", "ppo", "fields", (4000, 9000), ("copy-bound",), "amid"),
    ill("policy", "ppo", "transitions", (8e5, 1.6e6), ("gc-pause",), "amid"),
    ill("recommender", "towers", "histories", (150, 400), ("copy-bound",), "start"),
    ill("recommender", "towers", "baskets", (30e3, 80e3), STARVED, "start"),
    ill("recommender", "towers", "remote-features", (20, 70), ("slow-peer",), "amid", around=("peer",)),
    outside("recommender-second-job", ("gpu-shared",), "recommender", "towers", "second-job"),
    ill("decode", "replayed", "new-lengths", (1, 3), ("graph-trouble",), "amid"),
    ill("decode", "replayed", "ended", (100, 220), ("sync-heavy",), "start"),
    ill("graphs", "nodes", "relations", (5000, 10000), ("launch-bound",), "start"),
    ill("graphs", "nodes", "tidy", (6, 16), ("alloc-churn",), "start"),
    ill("graphs", "nodes", "all-pairs", (1, 1), ("cuda-oom",), "start"),
    ill(
        "batching",
        "service",
        "merge-pairs",
        (300, 800),
        ("gil-contention", *STARVED),
        "start",
        settings=BUSY_SERVICE,
    ),
    ill("gpt", "produced", "slow-producers", (1.5e6, 3e6), STARVED, "amid", cores=6),
    Case(
        "adversarial-two-faults",
        ("disk-wait", "sync-heavy"),
        (("sheets", (6000, 14000)), ("measured", (1200, 2400))),
        work="gan",
        when="start",
        program="adversarial.py",
        must=("disk-wait", "sync-heavy"),
    ),
)


def well(name: str, program: str, work: str, **more: Any) -> Case:
    return Case(f"well-{name}", work=work, program=f"{program}.py", **more)


WELL = (
    well("loader", "diffusion", "unet-loader", cores=6),
    well("small-checkpoint", "diffusion", "unet", settings={"keep_every": 60}, whole=True),
    well("adversarial", "adversarial", "gan"),
    well("policy", "policy", "ppo", whole=True),
    well("recommender", "recommender", "towers"),
    well("decode", "decode", "replayed", whole=True),
    well("graphs", "graphs", "nodes"),
    well("service-busy", "batching", "service", settings=BUSY_SERVICE),
    well("service-idle", "batching", "service", settings={"clients": 1, "pause_ms": 300, "burst": 1}),
    well("service-bursts", "batching", "service", settings={"clients": 2, "pause_ms": 700, "burst": 24}),
    well("gpt-quiet", "gpt", "quiet"),
    well("gpt-polled", "gpt", "polled"),
    well("gpt-evaluated", "gpt", "evaluated", whole=True),
    well("gpt-hog-beside", "gpt", "accumulating", around=("hogs-elsewhere",)),
    well("gpt-produced", "gpt", "produced", cores=6),
)

UNMET = (*ILL, *WELL)
