"""What is recorded on a card, and what should be said of it.

Amounts, when a trouble begins (from the start, or amid the recording) and whether the job's end is
recorded are drawn by seed. `LAST` is recorded last and not looked at while the diagnosis is worked on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

Amount = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Case:
    """`expected`: one of these must come first; none: healthy. `must`: these must be told, too.

    `troubles`: what the job itself does (programs/troubles.py, programs/fit.py); `around`:
    what others do. `when`: amid, start, or by seed.
    """

    name: str
    expected: tuple[str, ...] = ()
    troubles: tuple[tuple[str, Amount], ...] = ()
    around: tuple[str, ...] = ()
    work: str = "medium"
    settings: dict[str, Any] = field(default_factory=dict)
    must: tuple[str, ...] = ()
    when: str = ""
    cores: int = 4
    program: str = "fit.py"
    lined: bool = True
    whole: bool = False  # recorded from its first call to its end, as `trace -- COMMAND`

    @property
    def healthy(self) -> bool:
        return not self.expected

    def drawn(self, seed: int) -> Draw:
        random = Random(f"{seed}:{self.name}")
        troubles = [(name, round(random.uniform(*amount), 2)) for name, amount in self.troubles]
        when = self.when or random.choice(("amid", "start"))
        return Draw(troubles, self.healthy or when == "start", random.random() < 0.5)


@dataclass(frozen=True, slots=True)
class Draw:
    troubles: list[tuple[str, float]]
    from_start: bool
    to_the_end: bool  # the job's end is in the recording


CONVOLUTIONS = "convolutions"
WORKERS = {"input": {"workers": 4, "batch": 8}}

FIRST = (
    Case("pageable-medium", ("copy-bound",), (("pageable", (250, 600)),), when="amid"),
    Case("activations-medium", ("copy-bound",), (("fetch-activations", (200, 600)),), when="amid"),
    Case(
        "activations-convolutions",
        ("copy-bound",),
        (("fetch-activations", (100, 400)),),
        work=CONVOLUTIONS,
        when="start",
    ),
    Case("decode-medium", ("data-starvation",), (("decode", (25, 80)),), when="amid"),
    Case(
        "decode-unlogged",
        ("data-starvation",),
        (("decode", (30, 60)),),
        settings={"log_every": 0},
        when="amid",
    ),
    Case(
        "slow-workers",
        ("data-starvation",),
        (("slow-worker", (50, 120)),),
        settings=WORKERS,
        when="amid",
        cores=6,
    ),
    Case(
        "hogs-medium",
        ("cpu-contention",),
        around=("hogs",),
        settings={"log_every": 10},
        work="small",
        cores=2,
        when="amid",
        lined=False,
    ),
    Case(
        "hogs-convolutions",
        ("cpu-contention",),
        around=("hogs",),
        settings=WORKERS,
        work=CONVOLUTIONS,
        cores=2,
        when="amid",
        lined=False,
    ),
    Case("quota-small", ("cpu-throttled",), around=("quota",), work="small", when="amid", lined=False),
    Case("lock-small", ("gil-contention",), (("hold-the-lock", (1, 1)),), work="small", when="amid"),
    Case("collect-medium", ("gc-pause",), (("collect", (6e5, 2e6)),), when="start"),
    Case("notes-convolutions", ("disk-wait",), (("notes", (4000, 16000)),), work=CONVOLUTIONS, when="amid"),
    Case("checkpoints-medium", ("disk-wait", "periodic-spike"), (("checkpoints", (300, 900)),), when="start"),
    Case("items-convolutions", ("sync-heavy",), (("items", (800, 2500)),), work=CONVOLUTIONS, when="start"),
    # The small model is launch-bound by itself (eager-small), which is as true.
    Case(
        "synchronise-small",
        ("sync-heavy", "launch-bound"),
        (("synchronise", (150, 500)),),
        work="small",
        when="start",
    ),
    Case("tiny-medium", ("launch-bound",), (("tiny", (6000, 14000)),), when="amid"),
    Case("eager-small", ("launch-bound",), work="small", when="start"),
    Case("eager-inference", ("launch-bound",), work="inference", when="start", cores=2),
    Case("recapture-medium", ("graph-trouble",), (("recapture", (300, 900)),), when="amid"),
    Case("second-job", ("gpu-shared",), around=("second-job",), work="wide", when="amid", lined=False),
    Case("leak-medium", ("gpu-memory-leak",), (("leak", (8, 32)),), when="start"),
    Case(
        "peer-convolutions",
        ("slow-peer",),
        (("ask-a-peer", (30, 120)),),
        around=("peer",),
        work=CONVOLUTIONS,
        when="amid",
    ),
    Case("healthy-medium", whole=True),
    Case("healthy-wide", work="wide", settings={"log_every": 0}),
    Case("healthy-evaluation", (), settings={"always": [["evaluation", 40]]}, work="wide"),
    Case("healthy-growing", work="growing"),
    Case("healthy-two-models", work="two-models"),
    Case("healthy-loader", work=CONVOLUTIONS, settings=WORKERS, cores=8, whole=True),
    Case("healthy-server", work="decoder", settings={"requests": 150}, program="serve.py"),
    Case("healthy-hog-beside", work="wide", around=("one-hog",)),
    Case("healthy-accumulating", work="medium", settings={"log_every": 10}),
)

LAST = (
    Case("pageable-convolutions", ("copy-bound",), (("pageable", (100, 400)),), work=CONVOLUTIONS),
    Case("decode-convolutions", ("data-starvation",), (("decode", (15, 60)),), work=CONVOLUTIONS),
    Case("items-loader", ("data-starvation",), (("slow-item", (5, 15)),), settings={"input": {"workers": 0}}),
    Case("spikes-wide", ("periodic-spike",), (("spikes", (350, 600)),), work="wide"),
    Case("empty-cache-medium", ("alloc-churn",), (("empty-cache", (12, 30)),)),
    Case("out-of-memory", ("cuda-oom",), (("out-of-memory", (1, 1)),), work=CONVOLUTIONS),
    Case(
        "burst-job",
        ("gpu-shared", "periodic-spike"),
        around=("burst-job",),
        work="wide",
        lined=False,
        when="amid",
    ),
    Case("many-copies", ("copy-bound",), (("many-copies", (800, 2500)),), work=CONVOLUTIONS),
    Case("nap-medium", ("slowdown", "gpu-idle"), (("nap", (30, 90)),), when="amid"),
    Case("locked-medium", ("data-starvation", "slowdown", "gpu-idle"), (("locked", (30, 90)),), when="amid"),
    Case(
        "hogs-and-pageable",
        ("copy-bound", "cpu-contention"),
        (("pageable", (250, 500)),),
        around=("hogs",),
        work="small",
        cores=2,
        must=("copy-bound", "cpu-contention"),
        lined=False,
    ),
    Case(
        "quota-convolutions",
        ("cpu-throttled",),
        around=("quota",),
        settings=WORKERS,
        work=CONVOLUTIONS,
        when="amid",
        lined=False,
    ),
    Case(
        "lock-convolutions",
        ("gil-contention",),
        (("hold-the-lock", (1, 1)),),
        work="small",
        settings={"log_every": 1},
    ),
    Case("healthy-convolutions", work=CONVOLUTIONS, whole=True),
    Case("healthy-bursty", work="decoder", settings={"requests": 40}, program="serve.py"),
    Case("healthy-decoder", work="decoder"),
    Case("healthy-rare-notes", work="medium", settings={"always": [["checkpoints", 4]]}),
    Case("healthy-quiet", work=CONVOLUTIONS, settings={"log_every": 0}),
)

SETS = {"first": FIRST, "last": LAST, "all": (*FIRST, *LAST)}
