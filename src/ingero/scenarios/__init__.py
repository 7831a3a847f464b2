"""Problems that can be shown on purpose, and the stub CUDA/NCCL device they run on.

The demo and the tests share what is here. Nothing that detects may know of it.
"""
