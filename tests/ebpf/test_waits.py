"""Every wait lands in its bucket, by the precedence of docs/accounting.md, and ends with its waker."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from ingero.model.layout import Bucket
from tests.ebpf.accounts import MS, Performance, Stage, adds_up, stage
from tests.ebpf.tracing import Tracer

# act, its arguments, the least it must take (ms)
SLEEPS = (
    ("time_sleep", ("0.15",), 150),
    ("select_timeout", ("0.15",), 150),
    ("poll_timeout", ("0.15",), 150),
    ("epoll_timeout", ("0.15",), 150),
    ("timerfd", ("0.15",), 150),
)
LOCKS = ("lock", "condition", "mutex")
PEERS = (
    ("pipe_read",),
    ("pipe_write",),
    ("eventfd",),
    ("unix_socket",),
    ("loopback", "127.0.0.1"),
    ("loopback", "::1"),
    ("loopback_accept", "127.0.0.1"),
    ("loopback_accept", "::1"),
    ("loopback_timeout",),
    ("loopback_epoll",),
    ("udp_loopback",),
)
WAITED_MS = 100  # of the 120 an act waits at least; what is missing went by before it waited


@pytest.fixture(scope="module")
def acting(tracer: Tracer) -> Iterator[Stage]:
    with stage(tracer) as running:
        yield running


def only(played: Performance, bucket: str, least_ms: int) -> None:
    """The provoked wait is in this bucket and in no other, and everything adds up."""
    adds_up(played)
    assert played.ns[bucket] >= least_ms * MS, played.ns
    others = set(played.ns) - {bucket, "host_cpu", "cuda_cpu", "runqueue"}
    assert sum(played.ns[name] for name in others) < least_ms * MS // 5, played.ns


@pytest.mark.parametrize("act, words, least_ms", SLEEPS, ids=[name for name, *_ in SLEEPS])
def test_a_timeout_that_nothing_else_ended_is_sleep_and_the_timer_woke_it(
    acting: Stage, act: str, words: tuple[str, ...], least_ms: int
) -> None:
    played = acting.play(act, *words)
    only(played, "sleep", least_ms - 1)
    assert played.main_waker("sleep") == ("WAKER_IRQ_TIMER", 0, 0)
    assert not played.wakers_of("sleep")["comm"][0]


@pytest.mark.parametrize("act", LOCKS)
def test_a_lock_is_lock_wait_and_whoever_released_it_is_named(acting: Stage, act: str) -> None:
    played = acting.play(act)
    only(played, "lock_wait", WAITED_MS)
    assert played.main_waker("lock_wait") == ("WAKER_TASK", acting.pid, played.said["waker_tid"])


def test_threads_that_fight_for_the_interpreter_wait_for_a_lock(acting: Stage) -> None:
    played = acting.play("gil", "0.3")
    adds_up(played)
    # Three threads, one interpreter: two thirds of the time, less what they wait for cores.
    assert played.ns["lock_wait"] > 0.4 * played.wall_ns
    assert played.ns["lock_wait"] + played.ns["runqueue"] + played.ns["host_cpu"] > 0.98 * played.wall_ns
    named = played.wakers_of("lock_wait")
    assert set(named["waker_pid"][named["waker_tid"] > 0].tolist()) == {acting.pid}


@pytest.mark.parametrize("words", PEERS, ids=["-".join(words) for words in PEERS])
def test_a_peer_on_this_host_is_peer_wait_and_named(acting: Stage, words: tuple[str, ...]) -> None:
    played = acting.play(*words)
    only(played, "peer_wait", WAITED_MS)
    assert played.main_waker("peer_wait") == ("WAKER_TASK", acting.pid, played.said["waker_tid"])


@pytest.mark.parametrize("act", ["waitpid", "poll_pidfd"])
def test_waiting_for_a_child_is_peer_wait_and_the_child_woke_us(acting: Stage, act: str) -> None:
    played = acting.play(act)
    only(played, "peer_wait", 140)
    kind, waker_pid, _ = played.main_waker("peer_wait")
    assert kind == "WAKER_TASK"
    assert waker_pid not in (0, acting.pid)
    assert bytes(played.wakers_of("peer_wait")["comm"][0]) == b"sleep"


def test_the_parent_of_a_vfork_waits_for_its_child(acting: Stage, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    only(acting.play("vfork_child", tmp_path / "pipe"), "peer_wait", 100)


def test_a_stopped_thread_is_unexplained_and_its_sleep_goes_on_as_sleep(acting: Stage) -> None:
    played = acting.play("stopped_in_sleep", "0.5")
    adds_up(played)
    assert played.ns["unexplained"] > 80 * MS
    # The kernel restarts the sleep under another system call, which says nothing by itself.
    assert played.ns["sleep"] > 500 * MS - played.ns["unexplained"] - 50 * MS


@pytest.mark.parametrize("act", ["poll_pipe", "epoll_pipe"])
def test_a_poll_over_several_windows_is_what_ended_it_in_all_of_them(acting: Stage, act: str) -> None:
    played = acting.play(act, "0.9", window_s=0.2)
    only(played, "peer_wait", 880)
    assert played.main_waker("peer_wait") == ("WAKER_TASK", acting.pid, played.said["waker_tid"])
    within = played.rows[played.rows["ns"][:, Bucket.PEER_WAIT] > 0]
    assert len(np.unique(within["window_ns"])) >= 4
    # Told late, it still lies in the windows it covered and fills none beyond its length.
    lengths = {window.start_ns: window.end_ns - window.start_ns for window in played.windows}
    for start_ns in np.unique(played.rows["window_ns"]).tolist():
        mine = played.rows[played.rows["window_ns"] == start_ns]["ns"].sum()
        assert int(mine) <= lengths[start_ns] + 20 * MS


def test_two_long_polls_in_a_row_are_told_apart(acting: Stage) -> None:
    played = acting.play("two_long_polls", "0.5", window_s=0.15)
    adds_up(played)
    assert played.ns["peer_wait"] >= 480 * MS
    assert played.ns["sleep"] >= 490 * MS


# --- the network: two namespaces and a wire between them -------------------------------------


@contextmanager
def namespaces(name: str) -> Iterator[tuple[str, str]]:
    """Two network namespaces joined by a veth; 10.9.9.1 and fd09::1 here, .2 and ::2 there."""
    here, there, mac = f"{name}a", f"{name}b", "02:00:00:09:09:0"
    commands = f"""
        ip netns add {here}
        ip netns add {there}
        ip netns exec {here} sysctl -qw net.ipv6.conf.default.accept_dad=0
        ip netns exec {there} sysctl -qw net.ipv6.conf.default.accept_dad=0
        ip link add {here} netns {here} address {mac}1 type veth peer {there} netns {there} address {mac}2
        ip -n {here} addr add 10.9.9.1/24 dev {here}
        ip -n {there} addr add 10.9.9.2/24 dev {there}
        ip -n {here} addr add fd09::1/64 dev {here} nodad
        ip -n {there} addr add fd09::2/64 dev {there} nodad
        ip -n {here} link set {here} up
        ip -n {there} link set {there} up
        ip -n {here} neigh replace fd09::2 lladdr {mac}2 dev {here}
        ip -n {there} neigh replace fd09::1 lladdr {mac}1 dev {there}
    """
    try:
        for line in commands.strip().splitlines():
            subprocess.run(line.split(), check=True)
        yield here, there
    finally:
        for each in (here, there):
            subprocess.run(["ip", "netns", "del", each], check=False)


SERVER = """
import socket, sys, time
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.create_server((sys.argv[1], 7788), family=family) as s:
    print("listening", flush=True)
    one, _ = s.accept()
    time.sleep(0.15)
    one.sendall(b"x")
    one.close()
"""


@pytest.fixture(scope="module")
def wire() -> Iterator[tuple[str, str]]:
    with namespaces("ingw") as names:
        yield names


@pytest.mark.parametrize("address", ["10.9.9.2", "fd09::2"])
@pytest.mark.parametrize("act", ["remote_recv", "remote_poll", "remote_epoll"])
def test_a_peer_elsewhere_is_net_wait(acting: Stage, wire: tuple[str, str], act: str, address: str) -> None:
    here, there = wire
    server = subprocess.Popen(
        ["ip", "netns", "exec", there, "python3", "-c", SERVER, address], stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        server.stdout.readline()
        played = acting.play(act, here, address, 7788)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    only(played, "net_wait", WAITED_MS)
    assert played.main_waker("net_wait")[0] == "WAKER_IRQ_NET"
