"""Every scenario, in the order `ingero demo all` shows them."""

from __future__ import annotations

from ingero.scenarios.scenario import MS, SECOND, Live, Phase, Program, Scenario, Story, Work

# A training job slows down at night: somebody starts a CPU-hungry program on its machine.
#
# The GPU looks fine on every dashboard; it only gets its work later. Then the program ends.

INCIDENT = Scenario(
    name="incident",
    summary="another program takes a training job's cores for a while",
    finding="cpu-contention",
    story=Story(
        phases=(
            Phase("python3 train.py trains; two workers prepare its batches", 8, host_ns=8 * MS),
            Phase(
                "somebody starts stress-ng on all cores",
                8,
                host_ns=8 * MS,
                batch_wait_ns=3 * MS,
                per_core=2,
                cpu_share=0.99,
            ),
            Phase("stress-ng has ended", 4, host_ns=8 * MS),
        ),
        workers=2,
        neighbours=Program("stress-ng-cpu", "stress-ng --cpu 8", tuple(range(5190, 5198))),
    ),
    live=Live(
        work=Work(host_us=6000, workers=1, item_us=2000),
        seconds=12,
        cores=2,
        neighbours=2,
        between=(4, 9),
        says=(
            (0, "a Python job trains; a worker prepares its batches"),
            (4, "busy-neighbour starts on the cores of the job"),
            (9, "busy-neighbour has ended"),
        ),
    ),
)


# A job that starts: contexts, code loaded on first use. Slow once, and nothing to fix at night.

COLD_START = Scenario(
    name="cold-start",
    summary="a job creates its context and loads its code, then runs well",
    finding="cold-start",
    story=Story(
        phases=(
            Phase(
                "python3 train.py starts: context, then code on first use",
                5,
                context_ns=1100 * MS,
                modules=45,
                module_ns=62 * MS,
                cpu_share=0.31,
            ),
            Phase("python3 train.py trains", 7),
        ),
    ),
    live=Live(
        work=Work(modules=14),
        seconds=10,
        says=((0, "a Python job starts: context, then code, then it trains"),),
        stub={"INGERO_STUB_INIT_MS": "1200", "INGERO_STUB_LOAD_MS": "180"},
    ),
)


# Batches copied from ordinary memory: the CPU moves every byte before the bus does.

MEMCPY_BOTTLENECK = Scenario(
    name="memcpy-bottleneck",
    summary="a job copies its batches from pageable memory",
    finding="copy-bound",
    story=Story(
        phases=(
            Phase(
                "python3 train.py trains on large batches in ordinary, pageable memory",
                14,
                host_ns=2 * MS,
                copy_bytes=96 << 20,
                pageable_gbps=5.2,
                gpu_ns=14 * MS,
                cpu_share=0.38,
            ),
        ),
    ),
    live=Live(
        work=Work(batch_bytes=96 << 20, pageable=True, launches=30),
        seconds=8,
        says=((0, "a Python job trains on large batches in pageable memory"),),
    ),
)


# Every two seconds the job itself stops to compute its metrics, and the GPU waits.

PERIODIC_SPIKE = Scenario(
    name="periodic-spike",
    summary="a job stops at regular intervals",
    finding="periodic-spike",
    story=Story(
        phases=(
            Phase(
                "python3 train.py trains, and writes its metrics every two seconds",
                18,
                pause_every_ns=2 * SECOND,
                pause_ns=320 * MS,
            ),
        ),
    ),
    live=Live(
        work=Work(pause_every_s=1.5, pause_ms=300),
        seconds=10,
        says=((0, "a Python job trains, and computes its metrics every 1.5 s"),),
    ),
)


# One greedy program: a backup is compressed on every core, and does not end.

CPU_CONTENTION = Scenario(
    name="cpu-contention",
    summary="another program takes the job's core, and stays",
    finding="cpu-contention",
    story=Story(
        phases=(
            Phase("python3 train.py trains", 6, host_ns=7 * MS),
            Phase(
                "xz begins to compress a backup on all cores", 12, host_ns=7 * MS, per_core=1, cpu_share=0.98
            ),
        ),
        neighbours=Program("xz", "xz -T0 -9 /backup/images.tar", (6120,)),
    ),
    live=Live(
        work=Work(host_us=6000),
        seconds=10,
        cores=1,
        neighbours=2,
        between=(4, 10),
        says=((0, "a Python job trains"), (4, "busy-neighbour starts on its core")),
    ),
)


# Somebody else's process appears on the same card, and the two take turns.

GPU_STEAL = Scenario(
    name="gpu-steal",
    summary="a second process appears on the job's GPU",
    finding="gpu-shared",
    story=Story(
        phases=(
            Phase("python3 train.py trains, alone on its GPU", 6),
            Phase("a notebook begins to compute on the same GPU", 8, gpu_ns=43 * MS),
            Phase("the notebook has ended", 4),
        ),
        rival=Program("jupyter-kernel", "jupyter-kernel --KernelManager.kernel_name=python3", (7020,)),
        rival_phases={1: Phase("", 8, host_ns=MS, launches=24, gpu_ns=46 * MS)},
    ),
    live=Live(
        work=Work(),
        seconds=11,
        rival=Work(name="second-job", launches=20, kernel_us=1000, host_us=500),
        between=(3, 9),
        says=(
            (0, "a Python job trains, alone on its GPU"),
            (3, "second-job starts on the same GPU"),
            (9, "second-job has ended"),
        ),
    ),
)
ALL: tuple[Scenario, ...] = (
    INCIDENT,
    COLD_START,
    MEMCPY_BOTTLENECK,
    PERIODIC_SPIKE,
    CPU_CONTENTION,
    GPU_STEAL,
)
BY_NAME = {scenario.name: scenario for scenario in ALL}
