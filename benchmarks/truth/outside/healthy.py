"""Jobs with which nothing is wrong, and what in them could mislead."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from benchmarks.truth.outside import around, faulty
from benchmarks.truth.outside.job import Job

Draw = Callable[[Random], Job]


def steady_pictures(rng: Random) -> Job:
    return Job(
        "steady-pictures",
        faulty.PICTURES,
        faulty.pictures(rng, mix_rounds=1, layer_us=rng.randint(2500, 4000)),
        why="the device is busy nearly all the time",
    )


def nobody_asks(rng: Random) -> Job:
    return Job(
        "nobody-asks",
        faulty.API,
        faulty.api(rng, users=1, think_s=2.5),
        around=(around.Client(),),
        why="a server that is hardly ever asked",
        measured=False,
    )


def bursts(rng: Random) -> Job:
    return Job(
        "bursts",
        faulty.API,
        faulty.api(rng, users=3, burst=rng.randint(15, 30), think_s=rng.uniform(1.2, 2)),
        around=(around.Client(),),
        why="a server that is asked in bursts, with rests between",
        measured=False,
    )


def evaluations(rng: Random) -> Job:
    return Job(
        "evaluations",
        faulty.PICTURES,
        faulty.pictures(rng, mix_rounds=1, layer_us=2500, eval_every=rng.randint(60, 90), eval_batches=120),
        why="evaluates every so many steps: the training steps stop meanwhile",
    )


def growing_batch(rng: Random) -> Job:
    return Job(
        "growing-batch",
        faulty.LANGUAGE,
        faulty.language(rng, accumulate=2, grow=rng.uniform(1.0015, 1.0025)),
        why="the batches grow on purpose: each step does more on the device, and takes longer",
        measured=False,
    )


def two_models(rng: Random) -> Job:
    return Job(
        "two-models",
        faulty.ACTORS,
        {
            "actors": 1,
            "batch": 64,
            "layers": 6,
            "layer_us": rng.randint(1500, 2200),
            "target_us": 900,
            "policy_us": 300,
            "actor_rest_s": 0.03,
        },
        why="two models take turns on the device, from two threads",
    )


def rare_synchronisation(rng: Random) -> Job:
    return Job(
        "rare-synchronisation",
        faulty.LANGUAGE,
        faulty.language(rng, accumulate=4, sync_every=rng.randint(15, 25), spin=True),
        why="waits for the device every so many steps only; long waits there are work that was queued",
    )


def tuned_then_steady(rng: Random) -> Job:
    return Job(
        "tuned-then-steady",
        faulty.LANGUAGE,
        faulty.language(rng, warm_up_s=3, stop_after_s=14),
        whole=True,
        stub={"INGERO_STUB_INIT_MS": "600"},
        why="tries its kernels for some seconds first, then runs steadily",
    )


def saved_meanwhile(rng: Random) -> Job:
    return Job(
        "saved-meanwhile",
        faulty.GRAPH,
        faulty.graph(rng, hops=6, hop_us=4000, save_mb=24, save_every=rng.randint(25, 40), save_later=True),
        around=(around.Disk(state=True),),
        why="a thread of its own writes the state and waits for the disk; no step does",
    )


def start_to_exit(rng: Random) -> Job:
    return Job(
        "start-to-exit",
        "embed/run_once.py",
        {"documents": rng.randint(350, 450), "words": 2000, "layers": 8, "layer_us": 2600},
        whole=True,
        stub={"INGERO_STUB_INIT_MS": "400"},
        why="a short job, watched from its start to its end",
    )


def even_ranks(rng: Random) -> Job:
    return Job(
        "even-ranks",
        faulty.RANKS,
        faulty.ranks(rng, layer_us=4000),
        around=(around.Devices(3),),
        why="ranks that arrive together, but for what chance does",
    )


def patient_chat(rng: Random) -> Job:
    return Job(
        "patient-chat",
        faulty.CHAT,
        faulty.chat(rng, layer_us=1500),
        why="an event loop asks every millisecond whether the device is through",
    )


def graph_replayed(rng: Random) -> Job:
    return Job(
        "graph-replayed",
        faulty.SAMPLER,
        faulty.sampler(rng, graphs=True, blocks=300, block_us=15),
        why="one graph, captured once and launched again and again",
    )


def busy_workers(rng: Random) -> Job:
    return Job(
        "busy-workers",
        faulty.DETECTION,
        faulty.detection(rng, batch=4, passes=rng.randint(80, 120), layer_us=5000),
        why="worker processes compute a lot and still keep ahead of the device",
    )


def polite_neighbour(rng: Random) -> Job:
    return Job(
        "polite-neighbour",
        faulty.PICTURES,
        faulty.pictures(rng, mix_rounds=1, layer_us=rng.randint(2800, 3600)),
        around=(around.Commands("exec gzip -6 -c < /dev/urandom > /dev/null", 2, nice=19),),
        why="programs of the lowest priority use what is left of the cores, as they should",
    )


def asked_ahead(rng: Random) -> Job:
    return Job(
        "asked-ahead",
        faulty.ONLINE,
        faulty.online(rng, layer_us=4500, layers=6, ahead=3, compaction_s=rng.uniform(0.006, 0.012)),
        around=(around.Peer("featstore", "tcp", "store", blamed=False),),
        why="a store answers slowly, but is asked ahead: no step waits for it",
    )


ALL: tuple[Draw, ...] = (
    steady_pictures,
    nobody_asks,
    bursts,
    evaluations,
    growing_batch,
    two_models,
    rare_synchronisation,
    tuned_then_steady,
    saved_meanwhile,
    start_to_exit,
    even_ranks,
    patient_chat,
    graph_replayed,
    busy_workers,
    polite_neighbour,
    asked_ahead,
)
