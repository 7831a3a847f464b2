"""What processes say of themselves, put together from its parts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingero.agent.candidates import MAX_KEPT, StartedPrograms
from ingero.model import layout
from ingero.model.window import Process

START_NS = 5_000_000_000
SIZE = layout.STARTED["text"].itemsize


def process(pid: int = 7, start_ns: int = START_NS) -> Process:
    return Process(pid, start_ns, "python", "", 1, None)


def parts(*texts: bytes | None, pid: int = 7, start_ns: int = START_NS) -> NDArray[np.void]:
    """The arguments and pieces of the environment; None: it could not be read."""
    rows = np.zeros(len(texts), layout.STARTED)
    rows["h"]["pid"], rows["process_start_ns"], rows["parent_pid"], rows["uid"] = pid, start_ns, 3, 1000
    for number, text in enumerate(texts):
        rows["part"][number] = number
        rows["length"][number] = len(text or b"")
        rows["text"][number] = text or b""
    return rows


def test_arguments_and_environment_are_put_together() -> None:
    heard = StartedPrograms()
    first = b"A=" + b"x" * (SIZE - 6) + b"\0RAN"
    assert len(first) == SIZE
    heard.hear(parts(b"python\0train.py\0", first, b"K=3\0WORLD_SIZE=8\0"))
    one = heard.of(process())
    assert one is not None
    assert (one.arguments, one.parent_pid, one.uid) == (b"python\0train.py\0", 3, 1000)
    assert one.environment.endswith(b"\0RANK=3\0WORLD_SIZE=8\0")


def test_an_entry_that_is_cut_says_nothing() -> None:
    heard = StartedPrograms()
    heard.hear(parts(b"a\0", b"WORLD_SIZE=8\0RANK=1"))
    one = heard.of(process())
    assert one is not None
    assert one.environment == b"WORLD_SIZE=8\0"


def test_what_follows_a_part_that_could_not_be_read_is_not_used() -> None:
    """It may begin amid a name: OMPI_COMM_WORLD_RANK ends in RANK."""
    heard = StartedPrograms()
    heard.hear(parts(b"a\0", b"LOCAL_RANK=1\0", None, b"RANK=5\0"))
    one = heard.of(process())
    assert one is not None
    assert one.environment == b"LOCAL_RANK=1\0"


def test_another_program_of_the_same_process_takes_the_place_of_the_first() -> None:
    heard = StartedPrograms()
    heard.hear(parts(b"sh\0", b"RANK=0\0"))
    heard.hear(parts(b"python\0", b"RANK=1\0"))
    one = heard.of(process())
    assert one is not None
    assert (one.arguments, one.environment) == (b"python\0", b"RANK=1\0")


def test_a_later_process_of_the_same_number_is_another_one() -> None:
    heard = StartedPrograms()
    heard.hear(parts(b"a\0"))
    assert heard.of(process(start_ns=2 * START_NS)) is None


def test_what_nobody_asks_for_does_not_pile_up() -> None:
    heard = StartedPrograms()
    for pid in range(1, 2 * MAX_KEPT):
        heard.hear(parts(b"a\0", pid=pid))
    assert heard.of(process(1)) is None
    assert heard.of(process(2 * MAX_KEPT - 1)) is not None
