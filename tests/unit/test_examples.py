"""The examples do what they say, against the interfaces frameworks document.

The frameworks are too large for a test environment: what stands in for each has the names, arguments and
order of calls of its real base class, lightning 2.6 (`Callback`, `Trainer`) and ray 2.60 (`ray.train`).
"""

from __future__ import annotations

import importlib.util
import inspect
import pickle
import socket
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ingero.annotate
from ingero.agent.annotations import parse
from ingero.annotate import Annotator

EXAMPLES = Path(__file__).parents[2] / "examples"
Heard = Callable[[], list[dict[str, str]]]


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    """What a listening agent understands of what was sent since it was last asked."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as agent:
        agent.bind(str(tmp_path / "annotate.sock"))
        monkeypatch.setenv("INGERO_RUN_DIR", str(tmp_path))
        monkeypatch.setattr(ingero.annotate, "annotate", Annotator())

        def understood() -> list[dict[str, str]]:
            found = []
            while True:
                try:
                    message = parse(agent.recv(4096), 2**62)
                except BlockingIOError:
                    return found
                assert message is not None
                found.append(message.labels)

        yield understood


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_snippet_says_its_labels(heard: Heard) -> None:
    snippet = load("annotate")
    snippet.annotate(step=1, epoch=0)
    snippet.annotate(step=2)
    assert heard() == [{"step": "1", "epoch": "0"}, {"step": "2"}]


def test_the_snippet_does_nothing_without_an_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGERO_RUN_DIR", str(tmp_path))
    snippet = load("annotate")
    snippet.annotate(step=1)


class Callback:
    """As lightning.pytorch.callbacks.Callback has them."""

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None: ...
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None: ...
    def on_train_end(self, trainer: Any, pl_module: Any) -> None: ...


def test_lightning_labels_training_batches_and_not_validation(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    lightning = types.SimpleNamespace(Callback=Callback, LightningModule=object, Trainer=object)
    monkeypatch.setitem(sys.modules, "lightning", types.ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", lightning)  # type: ignore[arg-type]
    labels = load("lightning_callback").StepLabels()
    for name, method in inspect.getmembers(Callback, inspect.isfunction):
        assert list(inspect.signature(getattr(type(labels), name)).parameters) == list(
            inspect.signature(method).parameters
        )
    trainer = types.SimpleNamespace(global_step=7, current_epoch=2)
    labels.on_train_batch_start(trainer, None, None, 7)
    labels.on_validation_start(trainer, None)
    labels.on_train_end(trainer, None)
    assert heard() == [
        {"step": "7", "epoch": "2", "phase": "train"},
        {"step": "", "phase": "validation"},
        {"step": "", "epoch": "", "phase": ""},
    ]


def test_ray_workers_label_their_reports_and_actors_their_calls(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    train = types.ModuleType("ray.train")
    train.report = lambda metrics, checkpoint=None, **more: reported.append((metrics, checkpoint, more))  # type: ignore[attr-defined]
    train.get_context = lambda: types.SimpleNamespace(get_world_rank=lambda: 3)  # type: ignore[attr-defined]
    ray = types.ModuleType("ray")
    ray.train = train  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.train", train)
    example = load("ray_labels")
    report = example.labelled_report()
    report({"loss": 0.5})
    report({"loss": 0.4}, "checkpoint", checkpoint_dir_name="x")
    assert reported == [
        ({"loss": 0.5}, None, {}),
        ({"loss": 0.4}, "checkpoint", {"checkpoint_dir_name": "x"}),
    ]
    assert heard() == [{"report": "0", "rank": "3"}, {"report": "1"}, {"report": "2"}]

    class Generator:
        @example.labelled("request")
        def generate(self, prompt: str) -> str:
            if not prompt:
                raise ValueError
            return prompt.upper()

    # Ray sends a method by value: with the globals it uses, and what it closes over.
    method: Any = Generator.generate
    used = [method.__globals__[name] for name in method.__code__.co_names if name in method.__globals__]
    assert used
    for part in [
        *used,
        *(cell.cell_contents for cell in method.__closure__ if not callable(cell.cell_contents)),
    ]:
        pickle.dumps(part)

    generator = Generator()
    assert generator.generate("a") == "A"
    with pytest.raises(ValueError):
        generator.generate("")
    assert heard() == [{"request": "1"}, {"request": ""}, {"request": "2"}, {"request": ""}]
