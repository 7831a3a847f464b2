"""ingero: why a GPU job is slow, told by accounted time."""

__version__ = "0.1.0"
