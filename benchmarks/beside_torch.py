"""A job with PyTorch loaded, that computes on the CPU and calls the stub device.

    beside_torch.py FOLDER

Run by a Python that has PyTorch. FOLDER holds the stub's libraries. Says `ready PID`, begins
at the first line it reads, answers the next one with what it did, and goes on until its
input ends. Runs without ingero.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import sys

import torch  # type: ignore[import-not-found,unused-ignore]

KERNEL = "_Z9vectorAddPKfS0_Pfi"


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


def main(folder: str) -> None:
    ctypes.CDLL(f"{folder}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    runtime = ctypes.CDLL(f"{folder}/libcudart.so.12")
    runtime.cudaLaunchKernel.argtypes = (
        ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
    )  # fmt: skip
    kernels = ctypes.CDLL(f"{folder}/libstubkernels.so")
    kernel, one = ctypes.cast(kernels[KERNEL], ctypes.c_void_p).value, Dim3(1, 1, 1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 16))
    optimizer = torch.optim.AdamW(model.parameters())
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    steps = failed = 0
    while True:
        loss = model(torch.randn(32, 256)).softmax(1).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        for _ in range(20):
            failed += runtime.cudaLaunchKernel(kernel, one, one, None, 0, None) != 0
        failed += runtime.cudaDeviceSynchronize() != 0
        steps += 1
        if select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                return
            print(json.dumps({"steps": steps, "failed": failed, "torch": torch.__version__}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
