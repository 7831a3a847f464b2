"""Ray: a worker labels its own process, because that is the one that uses the GPU.

Ray's own callbacks (`ray.train.UserCallback`) run in the controller, which has no GPU and
may be on another machine. So in Ray Train wrap what every worker already calls:

    def train_func(config):
        report = labelled_report()
        for epoch in range(config["epochs"]):
            for batch in loader:
                ...
            report({"loss": loss})              # the report's number becomes `report`

and in an actor label each call:

    @ray.remote(num_gpus=1)
    class Generator:
        @labelled("request")
        def generate(self, prompt): ...         # request=1, 2, 3, ... while it runs
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import ray.train

from ingero.annotate import annotate  # or the function of annotate.py beside this file


def labelled_report(key: str = "report") -> Callable[..., None]:
    """`ray.train.report` that says how many reports there were, and the worker's rank."""
    annotate(**{key: 0, "rank": ray.train.get_context().get_world_rank()})
    numbers = itertools.count(1)

    def report(metrics: dict[str, Any], checkpoint: Any = None, **more: Any) -> None:
        ray.train.report(metrics, checkpoint, **more)
        annotate(**{key: next(numbers)})

    return report


def labelled(key: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For a method of an actor: numbered calls, and no label between them."""

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        number = 0  # Ray sends it to the worker with the method; an iterator cannot be sent everywhere

        @functools.wraps(method)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal number
            number += 1
            annotate(**{key: number})
            try:
                return method(*args, **kwargs)
            finally:
                annotate(**{key: ""})

        return wrapper

    return decorate
