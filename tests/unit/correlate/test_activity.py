"""What a thread does on a core, from samples of it."""

from __future__ import annotations

import pytest

from ingero.correlate.activity import call_of, kind_of_call
from ingero.model.stack import Frame


def native(function: str, module: str) -> Frame:
    return Frame("native", function, None, None, module)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cuLaunchKernelEx", "launch"),
        ("cudaMemcpyAsync", "copy"),
        ("cuMemcpyDtoHAsync_v2", "copy"),
        ("cudaStreamSynchronize", "sync"),
        ("cudaStreamBeginCapture", "capture"),
        ("cuGraphLaunch", "graph"),
        ("cudaMalloc", "alloc"),
        ("cudaFreeHost", "free"),
        ("cuModuleLoadData", "module"),
        ("ncclAllReduce", "collective"),
        ("something", ""),
    ],
)
def test_calls_are_told_by_their_names(name: str, kind: str) -> None:
    assert kind_of_call(name) == kind


def test_a_call_that_was_not_watched_is_among_the_native_frames() -> None:
    frames = [
        native("libcuda.so.580.1+0x221674", "/usr/lib/libcuda.so.580.1"),
        native("cuMemcpyHtoDAsync_v2", "/usr/lib/libcuda.so.580.1"),
        native("cudaMemcpyAsync", "/opt/lib/libcudart.so.13"),
        native("at::copy", "libtorch_cuda.so"),
        Frame("python", "load", "train.py", 7, None),
    ]
    assert call_of(frames) == "copy"
    assert call_of(frames[3:]) == ""
