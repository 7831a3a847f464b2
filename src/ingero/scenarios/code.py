"""The program that a made-up job runs: train.py and its loader, as far as their lines matter.

A place is where the thread is. Its stack is the way there through Python and, above
that, through the libraries, as the walker would have read it.
"""

from __future__ import annotations

from enum import IntEnum

from ingero.model.stack import Frame, ResolvedStack

TRAIN, LOADER = "/workspace/train.py", "/workspace/loader.py"
TORCH = "/usr/local/lib/python3.12/site-packages/torch"


class ProgramPlace(IntEnum):
    """What the thread is at."""

    NOWHERE = 0
    NEXT_BATCH = 1
    PREPARE = 2
    METRICS = 3
    COPY = 4
    FORWARD = 5
    REPLAY = 6
    REDUCE = 7
    WAIT = 8
    LOG = 9
    START = 10
    LOAD_CODE = 11
    ALLOCATE = 12
    LOAD_ITEM = 13


def _user(function: str, line: int, file: str = TRAIN) -> Frame:
    return Frame("python", function, file, line, None)


def _torch(function: str, file: str, line: int) -> Frame:
    return Frame("python", function, f"{TORCH}/{file}", line, None)


def _native(function: str, module: str) -> Frame:
    return Frame("native", function, None, None, module)


_MAIN = (_user("main", 96), _user("<module>", 118))
_STEP = (_user("train_step", 71), *_MAIN)
_LINEAR = (
    _native("cudaLaunchKernel", "libcudart.so.12"),
    _torch("Linear.forward", "nn/modules/linear.py", 125),
    _torch("Module._call_impl", "nn/modules/module.py", 1750),
)
_FRAMES: dict[ProgramPlace, tuple[Frame, ...]] = {
    ProgramPlace.NEXT_BATCH: (
        _torch("_MultiProcessingDataLoaderIter._try_get_data", "utils/data/dataloader.py", 1251),
        _torch("_BaseDataLoaderIter.__next__", "utils/data/dataloader.py", 708),
        *(_user("main", 93), _MAIN[1]),
    ),
    ProgramPlace.PREPARE: (_user("augment", 41), _user("train_step", 64), *_MAIN),
    ProgramPlace.METRICS: (_user("write_metrics", 84), _user("main", 101), _MAIN[1]),
    ProgramPlace.COPY: (_native("cuMemcpyHtoDAsync_v2", "libcuda.so.1"), _user("to_device", 48), *_STEP),
    ProgramPlace.FORWARD: (*_LINEAR, _user("Model.forward", 27), *_STEP),
    ProgramPlace.REPLAY: (_torch("CUDAGraph.replay", "cuda/graphs.py", 88), _user("train_step", 74), *_MAIN),
    ProgramPlace.REDUCE: (
        _torch("all_reduce", "distributed/distributed_c10d.py", 2810),
        *(_user("train_step", 76), *_MAIN),
    ),
    ProgramPlace.WAIT: (_native("cudaStreamSynchronize", "libcudart.so.12"), _user("train_step", 78), *_MAIN),
    ProgramPlace.LOG: (_user("log_loss", 55), _user("main", 98), _MAIN[1]),
    ProgramPlace.START: (_torch("_lazy_init", "cuda/__init__.py", 372), _user("main", 87), _MAIN[1]),
    ProgramPlace.LOAD_CODE: (
        _native("cuLibraryLoadData", "libcuda.so.1"),
        _user("Model.warm_up", 33),
        *_MAIN,
    ),
    ProgramPlace.ALLOCATE: (_native("cudaMalloc", "libcudart.so.12"), _user("Model.__init__", 19), *_MAIN),
    ProgramPlace.LOAD_ITEM: (
        _user("Images.__getitem__", 23, LOADER),
        _torch("_MapDatasetFetcher.fetch", "utils/data/_utils/fetch.py", 52),
        _torch("_worker_loop", "utils/data/_utils/worker.py", 351),
    ),
}
_FIRST = 0x1D5EED00


def stack_hash(place: int) -> int:
    return _FIRST + place if place else 0


def stacks() -> list[ResolvedStack]:
    return [ResolvedStack(stack_hash(place), frames) for place, frames in _FRAMES.items()]
