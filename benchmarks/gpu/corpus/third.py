"""A third set: jobs of yet other makes, by somebody who had not met the diagnosis either.

What is expected is what somebody who knows such jobs would say first; more than one kind only
where either is a fair name for it.
"""

from __future__ import annotations

from typing import Any

from benchmarks.gpu.corpus.cases import Amount, Case

STARVED = ("data-starvation",)
IDLE = ("slowdown", "gpu-idle")
MANY_CLIENTS = {"clients": 12, "pause_ms": 0, "burst": 1}


def own(
    program: str, work: str, name: str, amount: Amount, expected: tuple[str, ...], when: str, **more: Any
) -> Case:
    """What the job does to itself."""
    return Case(
        f"{program}-{name}",
        expected,
        ((name, amount),),
        work=work,
        when=when,
        program=f"{program}.py",
        **more,
    )


def others(program: str, work: str, around: str, expected: tuple[str, ...], **more: Any) -> Case:
    """What is done to it, amid the recording."""
    return Case(
        f"{program}-{around}",
        expected,
        around=(around,),
        work=work,
        when="amid",
        program=f"{program}.py",
        lined=False,
        **more,
    )


FAULTY = (
    own("contrastive", "pairs", "retrieval-home", (2e5, 5e5), ("copy-bound",), "amid"),
    own("contrastive", "pairs-loader", "blur-behind", (80, 160), STARVED, "amid", cores=6),
    own(
        "contrastive",
        "pairs-loader",
        "new-workers",
        (3, 6),
        (*STARVED, "periodic-spike"),
        "start",
        cores=6,
    ),
    own("experts", "routed", "plain-adam", (1, 1), ("launch-bound",), "amid"),
    own("experts", "routed", "count-words", (1200, 2400), ("sync-heavy",), "start"),
    own("experts", "routed", "keep-gates", (3, 6), ("gpu-memory-leak",), "start"),
    own("experts", "routed", "release", (14, 24), ("alloc-churn",), "amid"),
    own("video", "clips", "cold-frames", (1500, 2500), ("disk-wait", *STARVED), "start"),
    own("video", "clips", "remote-clips", (160, 260), ("slow-peer", *STARVED), "amid", around=("peer",)),
    Case(
        "video-two-faults",
        ("copy-bound", *STARVED),
        (("float-views", (2, 4)), ("annotations", (30e3, 60e3))),
        work="clips",
        when="start",
        program="video.py",
        must=("copy-bound", "data-starvation"),
    ),
    own("speech", "waves", "outer-tool", (20, 40), (*STARVED, *IDLE), "amid"),
    own("speech", "waves", "word-errors", (1400, 2500), ("periodic-spike", *STARVED), "start"),
    others("speech", "waves-loader", "hogs", ("cpu-contention",), cores=3),
    others("speech", "waves-loader", "quota", ("cpu-throttled",)),
    own("replay", "memory", "priorities", (1e5, 2e5), STARVED, "start"),
    own("replay", "memory", "imagined", (25, 50), ("gil-contention",), "amid"),
    own("replay", "memory", "metrics", (100, 200), ("disk-wait",), "start"),
    own("radiance", "replayed", "ray-counts", (1, 3), ("graph-trouble",), "amid"),
    others("radiance", "replayed", "second-job", ("gpu-shared",)),
    own("particles", "pairs", "all-images", (3, 6), ("cuda-oom",), "start"),
    own("lora", "adapt", "tidy-up", (1.2e5, 2.2e5), ("gc-pause",), "start"),
    own("lora", "adapt", "reference-layers", (3, 6), ("copy-bound",), "amid"),
    own("lora", "adapt", "anomalies", (1, 1), ("sync-heavy", "launch-bound"), "start"),
    own("segment", "service", "linger", (60, 120), IDLE, "start", settings=MANY_CLIENTS),
)


def sound(name: str, program: str, work: str, **more: Any) -> Case:
    return Case(f"sound-{name}", work=work, program=f"{program}.py", **more)


SOUND = (
    sound("contrastive", "contrastive", "pairs", whole=True),
    sound("contrastive-loader", "contrastive", "pairs-loader", cores=8),
    sound("experts-accumulating", "experts", "routed", settings={"chunks": 2}),
    sound("experts-hogs-elsewhere", "experts", "routed", around=("hogs-elsewhere",)),
    sound("video-evaluated", "video", "clips-evaluated"),
    sound("speech-lengths", "speech", "waves"),
    sound("replay", "replay", "memory", whole=True),
    sound("radiance", "radiance", "replayed"),
    sound("particles", "particles", "pairs", whole=True),
    sound("lora-polled", "lora", "adapt-polled"),
    sound("segment-idle", "segment", "service", settings={"clients": 1, "pause_ms": 300, "burst": 1}),
    sound("segment-bursts", "segment", "service", settings={"clients": 2, "pause_ms": 800, "burst": 20}),
)

THIRD = (*FAULTY, *SOUND)
