"""Who may label what, and how much of it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from ingero.agent import annotations as labels
from ingero.agent.annotations import Annotations
from ingero.annotate import CALLER, OWN, message
from ingero.discover import processes

ME = (os.getpid(), os.getuid())


def nobody_traced(_: int) -> bool:
    return False


@pytest.fixture
def heard() -> Annotations:
    return Annotations(nobody_traced)


@pytest.fixture
def child() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "60"])
    yield process.pid
    process.kill()
    process.wait()


def taken(heard: Annotations, *live: int) -> list[tuple[int, str, str]]:
    found, _ = heard.take(dict.fromkeys(live), ())
    return [(each.pid, each.key, each.value) for each in found]


def test_a_process_labels_itself(heard: Annotations) -> None:
    assert heard.hear(message({"step": 1}), ME) == ""
    assert taken(heard, ME[0]) == [(ME[0], "step", "1")]
    assert taken(heard, ME[0]) == []
    assert heard.take_losses() == {}


def test_a_process_of_the_same_user_can_be_named(heard: Annotations, child: int) -> None:
    assert heard.hear(message({"step": 1}, child), ME) == ""
    assert taken(heard, child) == [(child, "step", "1")]


def test_a_process_of_another_user_cannot_be_named(heard: Annotations, child: int) -> None:
    stranger = (ME[0], ME[1] + 4242)
    assert heard.hear(message({"step": 1, "epoch": 2}, child), stranger) == "not a process of yours"
    assert heard.hear(message({"step": 1}, CALLER), stranger) == "not a process of yours"
    assert taken(heard, child) == []
    assert heard.take_losses() == {"annotation_refused": 3}


def test_root_can_name_every_process_that_exists(heard: Annotations, child: int) -> None:
    assert heard.hear(message({"step": 1}, child), (ME[0], 0)) == ""
    assert heard.hear(message({"step": 1}, 4_000_000_000), (ME[0], 0)) == "not a process of yours"


def test_the_caller_is_the_nearest_traced_process_above_or_the_parent(child: int) -> None:
    assert Annotations(nobody_traced).hear(message({"a": 1}, CALLER), (child, ME[1])) == ""
    by_parent = Annotations(nobody_traced)
    by_parent.hear(message({"a": 1}, CALLER), (child, ME[1]))
    assert taken(by_parent, ME[0]) == [(ME[0], "a", "1")]
    above = os.getppid()
    if above > 1 and labels.processes.user_ids(above) == {ME[1]}:
        traced = Annotations(lambda pid: pid == above)
        traced.hear(message({"a": 1}, CALLER), (child, ME[1]))
        assert taken(traced, above) == [(above, "a", "1")]


def test_nobody_is_named_by_a_sender_that_is_gone_or_in_another_namespace(
    heard: Annotations, child: int
) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert heard.hear(message({"step": 1}, child), (gone.pid, ME[1])) == "not a process of yours"
    assert heard.hear(message({"step": 1}, OWN), (0, ME[1])) == "not a process of yours"


def test_a_flood_is_cut_and_counted(heard: Annotations) -> None:
    said = [heard.hear(message({"step": number}), ME) for number in range(labels.PER_PROCESS + 500)]
    assert said.count("too many labels") == 500
    assert len(taken(heard, ME[0])) == labels.PER_PROCESS
    assert heard.take_losses() == {"annotation_rate": 500}
    assert heard.hear(message({"step": 0}), ME) == ""  # the next second is a new one


def test_one_users_flood_leaves_room_for_others(heard: Annotations) -> None:
    for number in range(labels.PER_USER + 100):
        heard.hear(message({"step": number}), (10_000 + number % 20, 77))
    assert heard.hear(message({"step": 1}), ME) == ""
    assert heard.take_losses() == {"annotation_rate": 100}


def test_a_process_has_few_keys_and_others_keep_theirs(heard: Annotations) -> None:
    for number in range(40):
        heard.hear(message({f"key{number}": 1}), (10, 77))
    heard.hear(message({"step": 1}), ME)
    found = taken(heard, 10, ME[0])
    assert len(found) == labels.KEYS_PER_PROCESS + 1
    assert (ME[0], "step", "1") in found
    assert heard.take_losses() == {"annotation_keys": 40 - labels.KEYS_PER_PROCESS}


def test_one_user_cannot_take_the_keys_of_others_and_is_told() -> None:
    """Many processes of one user, each with as many keys as a process may have."""
    everybody = Annotations(lambda _: True)
    said = [
        everybody.hear(message({f"key{pid}-{number}": 1 for number in range(16)}), (pid, 77))
        for pid in range(100, 100 + 80)
    ]
    assert said.count("") == labels.KEYS_PER_USER // 16
    assert set(said) == {"", labels.TOO_MANY_KEYS}
    assert everybody.hear(message({"step": 1, "epoch": 1}), (500, 78)) == ""
    assert (
        everybody.hear(message({"step": 2}), (100 + 79, 77)) == ""
    )  # a key that is known costs nobody anything
    refused = 80 * 16 - labels.KEYS_PER_USER
    assert everybody.take_losses() == {"annotation_keys": refused}
    found = taken(everybody, *range(100, 180), 500)
    assert (500, "step", "1") in found
    assert everybody.take_losses() == {}


def test_keys_of_processes_that_nobody_traces_take_nobodys_place(heard: Annotations) -> None:
    for pid in range(100, 300):
        assert heard.hear(message({f"key{pid}-{number}": 1 for number in range(10)}), (pid, 77)) == ""
    taken(heard)
    assert heard.hear(message({"step": 1}), ME) == ""
    assert taken(heard, ME[0]) == [(ME[0], "step", "1")]
    assert heard.take_losses() == {}


def test_looking_up_processes_is_limited_more_than_labels_are(heard: Annotations, child: int) -> None:
    told = [heard.hear(message({"step": 1}, child), ME) for _ in range(labels.NAMED_PER_USER + 5)]
    assert told.count(labels.TOO_MANY) == 5
    assert heard.hear(message({"step": 1}), ME) == ""


def test_what_a_sender_could_not_send_is_a_loss(heard: Annotations) -> None:
    heard.hear(message({"step": 9}, unsent=7), ME)
    assert heard.take_losses() == {"annotation_unsent": 7}


def test_nonsense_is_a_loss(heard: Annotations) -> None:
    assert heard.hear(b"\xff\x00nonsense", ME) == "not understood"
    assert heard.take_losses() == {"annotation_invalid": 1}


def test_a_label_from_before_the_first_cuda_call_is_kept_for_the_target(heard: Annotations) -> None:
    heard.hear(message({"epoch": 0, "step": 1}), ME)
    heard.hear(message({"step": 2}), ME)
    assert taken(heard) == []
    assert sorted(taken(heard, ME[0])) == [(ME[0], "epoch", "0"), (ME[0], "step", "2")]
    assert taken(heard, ME[0]) == []


def test_a_launchers_label_is_kept_and_the_launcher_told(heard: Annotations, child: int) -> None:
    heard.hear(message({"epoch": 1}), ME)
    found, launchers = heard.take({child: None}, [ME[0]])
    assert [(each.pid, each.value) for each in found] == [(ME[0], "1")]
    assert launchers == [ME[0]]
    assert [each.target for each in labels.launchers_of(launchers, processes.read_process_and_container)] == [
        False
    ]


def test_a_remembered_label_is_not_given_to_a_later_process_of_that_number(heard: Annotations) -> None:
    before = time.monotonic_ns() - 5_000_000_000
    with subprocess.Popen(["sleep", "60"]) as later:
        heard.hear(b"ingero1 %d 0 0\nepoch=0" % before, (later.pid, ME[1]))  # said before it began
        taken(heard)
        assert [pid for pid, _, _ in taken(heard, later.pid)] == []
        later.kill()


def test_strangers_are_forgotten_when_there_are_too_many(heard: Annotations) -> None:
    for pid in range(100_000, 100_000 + labels.MAX_WAITING + 50):
        heard.hear(message({"step": 1}), (pid, pid))
    taken(heard)
    assert len(heard._waiting) <= labels.MAX_WAITING
