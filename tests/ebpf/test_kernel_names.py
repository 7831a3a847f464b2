"""Launches have the names of their kernels: heard, learnt amid a run, and never another's."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ingero.agent import launched_kernels
from ingero.discover import kernel_handles
from ingero.model.layout import Why
from tests.ebpf.real_runs import Place, left_alone, probed_pages, until
from tests.ebpf.tracing import NAMES, WORKLOADS, Tracer, Workload, tracing, workload

pytestmark = pytest.mark.shapes
STUB = ("-L", "STUB", "-l:libcudart.so.12", "-Wl,-rpath,STUB")
SCALE = "void model::scale<float, 4>(float*, float)"
ADD_FLOAT = "model::add(float const*, float const*, float*)"
ADD_DOUBLE = "model::add(double const*, double const*, double*)"
ALL = {SCALE, ADD_FLOAT, ADD_DOUBLE}
EXACT = ("--max-overhead", "off")  # every launch is counted
LAUNCHES = ("cuLaunchKernel", "cuLaunchKernelEx", "cudaLaunchKernel", "cudaLaunchKernelExC")


@pytest.fixture
def kernels(compiled: Callable[..., str]) -> str:
    return compiled("kernels.cc", *STUB)


@pytest.fixture(scope="session")
def handles(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program that names handles, and the driver it does it with."""
    folder = tmp_path_factory.mktemp("handles")
    source = str(WORKLOADS / "named_handles.c")
    flags = ("-O0", "-fcf-protection=none")  # functions begin as those of the real driver do
    library = str(folder / "libcuda.so.1")
    subprocess.run(["gcc", *flags, "-DDRIVER", "-shared", "-fPIC", source, "-o", library], check=True)
    program = str(folder / "named_handles")
    subprocess.run(["gcc", *flags, source, "-o", program, library, f"-Wl,-rpath,{folder}"], check=True)
    return program


@pytest.fixture
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names must be learnt, and quickly: this driver's handles lead to none."""
    monkeypatch.setattr(launched_kernels, "ROUND_NS", 300_000_000)
    monkeypatch.setattr(kernel_handles, "FEWEST", 1_000_000)


def tell(job: Workload, line: str) -> None:
    assert job.process.stdin is not None
    job.process.stdin.write(line + "\n")
    job.process.stdin.flush()
    job.wait_done()


def named(tracer: Tracer, *pids: int) -> Counter[str | None]:
    """Launches recorded so far, by name."""
    found: Counter[str | None] = Counter()
    for window in tracer.windows:
        for row in window.calls:
            if int(row["h"]["pid"]) in pids and NAMES[int(row["op"])] in LAUNCHES:
                kernel = window.kernels.get(int(row["kernel"]))
                found[kernel.text if kernel else None] += 1
    return found


def learning(tracer: Tracer) -> bool:
    kernels = tracer.agent._kernels
    assert kernels is not None
    return kernels._rounds.on


@contextmanager
def taught(program: str, *more: str) -> Iterator[tuple[Tracer, Workload]]:
    """A job that has all its handles, a trace that came later, and a round that is over."""
    with workload(program, "warm", "20", *more) as job, tracing(pids=(job.pid,), record_all=True) as tracer:
        tracer.until_target(job.pid)
        job.go()
        tracer.tick()  # sees launches without a name, and looks
        assert learning(tracer)
        job.go()
        tracer.tick()
        tracer.until(lambda: tracer.tick() and not learning(tracer))
        yield tracer, job


def test_names_asked_for_under_the_trace_are_heard(tracer: Tracer, kernels: str) -> None:
    with workload(kernels, "cold", "10") as job:
        tracer.until_target(job.pid)
        job.go()
        tracer.tick()
        assert named(tracer, job.pid) == dict.fromkeys(ALL, 10)
        assert not learning(tracer)


def test_names_given_before_the_trace_are_read_where_the_driver_keeps_them(kernels: str) -> None:
    with workload(kernels, "warm", "20") as job, tracing(pids=(job.pid,), record_all=True) as tracer:
        tracer.until_target(job.pid)
        job.go()
        tracer.tick()
        assert named(tracer, job.pid) == dict.fromkeys(ALL, 20)
        assert not learning(tracer)


@pytest.mark.usefixtures("short_rounds")
def test_names_given_before_the_trace_are_learnt_from_launches(kernels: str) -> None:
    with taught(kernels) as (tracer, job):
        before = named(tracer, job.pid)
        assert before[None] == 60  # of the first second, named in the store once they are learnt
        assert {each.name.text for window in tracer.windows for each in window.kernels_learnt} == ALL
        job.go()
        tracer.tick()
        assert named(tracer, job.pid) - before == dict.fromkeys(ALL, 20)


@pytest.mark.usefixtures("short_rounds")
def test_learning_changes_no_count_and_writes_one_record_for_each_kernel(kernels: str) -> None:
    with workload(kernels, "warm", "500") as job, tracing(pids=(job.pid,)) as tracer:
        tracer.until_target(job.pid)
        job.go()
        tracer.tick()
        assert learning(tracer)
        job.go()
        tracer.tick()
        counts = tracer.counts(job.pid)
        assert sum(counts.get(name, 0) for name in LAUNCHES) == 2 * 3 * 500
        assert not {"cudaLaunchKernel", "cudaLaunchKernelExC"} & set(counts)
        rows = tracer.gather("calls", job.pid)
        assert ((rows["why"] & Why.WHY_NAME) > 0).sum() == 3
        weights = sum(int(row["weight"]) for row in rows if NAMES[int(row["op"])] in LAUNCHES)
        unsampled = tracer.agent._reader.operations.unsampled()
        assert weights + int(unsampled["calls"].sum()) == 2 * 3 * 500
        assert not tracer.losses()


@pytest.mark.usefixtures("short_rounds")
def test_after_a_round_the_runtimes_launches_are_left_alone(kernels: str) -> None:
    with taught(kernels) as (tracer, job):
        assert any("libcuda.so" in path for path in probed_pages(job.pid))
        rounds = tracer.agent._kernels._rounds  # type: ignore[union-attr]
        leaving = rounds._session._leaving
        tracer.until(lambda: tracer.tick() and all(each.gone() for each in leaving))
        job.go()
        rows = tracer.calls(job.pid)
        assert not rows["host_function"][-60:].any()  # nobody notes them any more
        again = rounds.number
        tracer.tick()
        assert (learning(tracer), rounds.number) == (False, again)  # nothing is missing


@pytest.mark.usefixtures("short_rounds")
def test_launches_the_program_makes_itself_are_called_by_their_place(handles: str) -> None:
    with workload(handles) as job:
        tell(job, "name 1000 before")
        with tracing(pids=(job.pid,), record_all=True) as tracer:
            tracer.until_target(job.pid)
            tell(job, "launch 1000 3")
            tracer.tick()
            (place,) = named(tracer, job.pid)
            assert place is not None
            assert place.startswith("named_handles+0x")
            assert not any(each.known for each in tracer.windows[-1].kernels.values())
            assert not learning(tracer)  # no runtime to learn from
            tell(job, "name 1000 after")
            tell(job, "launch 1000 2")
            tracer.tick()
            assert named(tracer, job.pid) == {place: 3, "after": 2}


def test_a_handle_means_what_it_was_last_given_for(tracer: Tracer, handles: str) -> None:
    with workload(handles) as job:
        tracer.until_target(job.pid)
        tell(job, "name 1000 first")
        tell(job, "launch 1000 2")
        tell(job, "name 1000 second")
        tell(job, "launch 1000 3")
        tell(job, "alias 2000 1000")
        tell(job, "launch 2000 4")
        tracer.tick()
        assert named(tracer, job.pid) == {"first": 2, "second": 7}
        tell(job, "name 2000 third")
        tell(job, "launch 2000 1")
        tell(job, "launch 1000 1")
        tracer.tick()
        assert named(tracer, job.pid) == {"first": 2, "second": 8, "third": 1}


def test_a_handle_asked_for_before_every_launch_is_told_once(
    tracer: Tracer, handles: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As CUDA 13 does; again when what it is made from is called otherwise."""
    kernels = tracer.agent._kernels
    assert kernels is not None
    heard, hear = [], kernels._book.hear
    monkeypatch.setattr(kernels._book, "hear", lambda names: (heard.extend(names["handle"]), hear(names)))
    with workload(handles) as job:
        tracer.until_target(job.pid)
        tell(job, "name 1000 first")
        for _ in range(50):
            tell(job, "alias 2000 1000")
            tell(job, "launch 2000 1")
        tell(job, "name 1000 second")
        for _ in range(50):
            tell(job, "alias 2000 1000")
            tell(job, "launch 2000 1")
        tracer.tick()
        assert named(tracer, job.pid) == {"first": 50, "second": 50}
    assert Counter(heard) == {0x1000: 2, 0x2000: 2}


def test_processes_with_the_same_handles_keep_their_own_names(tracer: Tracer, handles: str) -> None:
    with workload(handles) as one, workload(handles) as other:
        tracer.until_target(one.pid)
        tracer.until_target(other.pid)
        tell(one, "name 1000 ours")
        tell(other, "name 1000 theirs")
        tell(one, "launch 1000 5")
        tell(other, "launch 1000 6")
        tracer.tick()
        assert named(tracer, one.pid) == {"ours": 5}
        assert named(tracer, other.pid) == {"theirs": 6}


def test_names_that_cannot_be_read_are_none_and_wild_ones_are_tamed(tracer: Tracer, handles: str) -> None:
    with workload(handles) as job:
        tracer.until_target(job.pid)
        tell(job, "name 1000 good")
        tell(job, "launch 1000 1")
        tell(job, "name 1000 @unmapped")
        tell(job, "launch 1000 1")
        tell(job, "name 2000 @endless")
        tell(job, "launch 2000 1")
        tell(job, "name 3000 @long:60000")
        tell(job, "launch 3000 1")
        tell(job, "name 4000 \x1b[31mred\x07\u202eeman\x01")
        tell(job, "launch 4000 1")
        tell(job, "name 5000 @nowhere")
        tell(job, "launch 5000 1")
        tracer.tick()
        found = named(tracer, job.pid)
        assert found.pop("good") == 1
        assert found.pop("red eman") == 1
        (long,) = (name for name in found if name and name.startswith("kkk"))
        assert len(long) <= 2048
        assert found.pop(long) == 1
        (place,) = (name for name in found if name)
        assert found == {None: 2, place: 1}  # 5000 got no handle at all: only its place is known
        assert tracer.losses().get("user_read") == 2


@pytest.mark.usefixtures("short_rounds")
def test_a_runtime_linked_into_the_program_is_learnt_from_where_it_has_symbols(
    compiled: Callable[..., str], handles: str
) -> None:
    parts = (
        "STUB/libcudart_static.a",
        "-pthread",
        "-ldl",
        "-L",
        "STUB",
        "-l:libcuda.so.1",
        "-Wl,-rpath,STUB",
    )
    with taught(compiled("kernels.cc", *parts, name="kernels_static")) as (tracer, job):
        before = named(tracer, job.pid)
        job.go()
        tracer.tick()
        assert named(tracer, job.pid) - before == dict.fromkeys(ALL, 20)
    stripped = compiled("kernels.cc", *parts, "-s", name="kernels_stripped")
    with workload(stripped, "warm") as job, tracing(pids=(job.pid,), record_all=True) as tracer:
        tracer.until_target(job.pid)
        job.go()
        tracer.tick()
        found = named(tracer, job.pid)
        assert found.total() == 30
        assert all(name and name.startswith("kernels_stripped+0x") for name in found)


def test_a_trace_amid_a_run_says_which_kernels_were_launched(place: Place, kernels: str) -> None:
    with workload(kernels, "warm", "50") as job, place.tracing("--pid", str(job.pid), *EXACT) as run:
        run.until_probed(job.pid)
        deadline = time.monotonic() + 6
        launches = 0
        while time.monotonic() < deadline:
            (said,) = job.go()
            launches += said["launches"]
            time.sleep(0.1)
        run.stop()
        answer = json.loads(place.ingero("query", "--kernels", "--json", "--db", str(place.db)).stdout)
        assert answer["launches"] == launches
        assert answer["named_share"] == 1
        assert {each["kernel"] for each in answer["kernels"]} == ALL
        assert {each["short"] for each in answer["kernels"]} == {"model::scale", "model::add"}
        assert {row[0] for row in place.sql("SELECT kernel_name FROM calls WHERE op LIKE 'cuLaunch%'")} == ALL
        shown = place.ingero("query", "--kernels", "--db", str(place.db)).stdout
        assert "100 % of the launches have a name" in shown
        until(lambda: left_alone(job.pid), "the probes are gone", 60)  # perf uprobes go one by one
