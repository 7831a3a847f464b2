"""Provokes one kind of wait at a time, each in a thread of its own.

Prints `ready PID`, then for every line `ACT ARG...` starts a thread that makes one CUDA
call and acts, and prints what happened as a JSON line and `done`. The thread lives only
for its act, so that everything accounted to it is the act: tid, CLOCK_MONOTONIC at its
first and last Python line, its own run_delay from /proc at the last, and what the act adds.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ingero.scenarios import cuda

Said = dict[str, Any]
RUNTIME = cuda.stub_runtime()
ACTS: dict[str, Callable[..., Said | None]] = {}
LIBC = ctypes.CDLL(None, use_errno=True)
LATER_S = 0.12


def act(function: Callable[..., Said | None]) -> Callable[..., Said | None]:
    ACTS[function.__name__] = function
    return function


def later(do: Callable[[], object], seconds: float = LATER_S) -> Said:
    """Do something in another thread after a while; which thread that is."""
    known: Said = {"waker_pid": os.getpid()}
    started = threading.Event()

    def wait_then_do() -> None:
        known["waker_tid"] = threading.get_native_id()
        started.set()
        time.sleep(seconds)
        do()

    threading.Thread(target=wait_then_do, daemon=True).start()
    started.wait()
    return known


def run_delay_ns() -> int:
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1])


def hurry() -> None:
    """Before everybody else from here on: nothing is to wait for between the last look and the end."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))


def spin(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


# --- on a core, or wanting one ---------------------------------------------------------


@act
def spin_on(core: str, seconds: str) -> None:
    os.sched_setaffinity(0, {int(core)})
    spin(float(seconds))


@act
def doze_on(core: str, rounds: str) -> None:
    """Short sleeps and short work: many wake-ups that must wait for the core."""
    os.sched_setaffinity(0, {int(core)})
    for _ in range(int(rounds)):
        time.sleep(0.002)
        spin(0.002)


@act
def spin_in_group(tasks: str, seconds: str) -> None:
    Path(tasks).write_text(str(threading.get_native_id()))
    spin(float(seconds))


@act
def gpu_spin(core: str, blocks: str) -> None:
    if core != "any":
        os.sched_setaffinity(0, {int(core)})
    RUNTIME.launch(cuda.stub_kernel(), int(blocks))
    RUNTIME.cudaStreamSynchronize(None)


@act
def gpu_block(blocks: str) -> None:
    event = RUNTIME.event(cuda.EVENT_BLOCKING_SYNC)
    RUNTIME.launch(cuda.stub_kernel(), int(blocks))
    RUNTIME.cudaEventRecord(event, None)
    RUNTIME.cudaEventSynchronize(event)


@act
def gpu_rounds(core: str, rounds: str, blocks: str) -> Said:
    """Work for the GPU and a spinning wait for it, again and again; what it took."""
    os.sched_setaffinity(0, {int(core)})
    began = time.monotonic_ns()
    for _ in range(int(rounds)):
        RUNTIME.launch(cuda.stub_kernel(), int(blocks))
        RUNTIME.cudaStreamSynchronize(None)
    return {"took_ns": time.monotonic_ns() - began}


@act
def fed_then_waits(rounds: str, busy_ms: str, wait_ms: str, again: str) -> None:
    """Gives the GPU work, waits for somebody, gives a little more or not, and waits for the GPU."""
    for _ in range(int(rounds)):
        reading, writing = os.pipe()
        RUNTIME.launch(cuda.stub_kernel(), int(busy_ms) * 1000)
        later(lambda fd=writing: os.write(fd, b"x"), float(wait_ms) / 1000)  # type: ignore[misc]
        os.read(reading, 1)
        if again == "1":
            RUNTIME.launch(cuda.stub_kernel(), 1)
        RUNTIME.cudaStreamSynchronize(None)
        os.close(reading)
        os.close(writing)


@act
def lagged_then_waits(rounds: str, wait_ms: str) -> None:
    """Always one piece of work of 10 ms ahead of the GPU; in the last round somebody is waited for first."""
    events = [RUNTIME.event(0) for _ in range(2)]
    reading, writing = os.pipe()
    for number in range(int(rounds)):
        RUNTIME.launch(cuda.stub_kernel(), 10_000)
        RUNTIME.cudaEventRecord(events[number % 2], None)
        if number == int(rounds) - 1:
            later(lambda: os.write(writing, b"x"), float(wait_ms) / 1000)
            os.read(reading, 1)
        if number:
            RUNTIME.cudaEventSynchronize(events[(number - 1) % 2])


@act
def polled(rounds: str, busy_ms: str, idle_ms: str) -> None:
    """Gives the GPU work, looks at it again and again with naps between, then sleeps with nothing given."""
    event = RUNTIME.event(0)
    for _ in range(int(rounds)):
        RUNTIME.launch(cuda.stub_kernel(), int(busy_ms) * 1000)
        RUNTIME.cudaEventRecord(event, None)
        while RUNTIME.try_call("cudaEventQuery", event):
            time.sleep(0.002)
        time.sleep(float(idle_ms) / 1000)


@act
def watched_event(seconds: str) -> None:
    """A thread that gives the GPU nothing and looks at another one's event now and then."""
    event = RUNTIME.event(0)
    busy = threading.Thread(target=lambda: _occupy(event, float(seconds)))
    busy.start()
    until = time.monotonic() + float(seconds) / 2
    while time.monotonic() < until:
        RUNTIME.try_call("cudaEventQuery", event)
        time.sleep(0.01)
    busy.join()


def _occupy(event: int, seconds: float) -> None:
    RUNTIME.launch(cuda.stub_kernel(), int(seconds * 1e6))
    RUNTIME.cudaEventRecord(event, None)


@act
def read_back(blocks: str, megabytes: str, patience: str) -> None:
    """A result copied to pageable memory, the wait for it spinning (1) or blocking (4)."""
    RUNTIME.cudaSetDeviceFlags(int(patience))
    result, host = RUNTIME.malloc(int(megabytes) << 20), ctypes.create_string_buffer(1)
    RUNTIME.launch(cuda.stub_kernel(), int(blocks))
    RUNTIME.cudaMemcpy(ctypes.addressof(host), result, int(megabytes) << 20, cuda.DEVICE_TO_HOST)
    RUNTIME.cudaFree(result)
    RUNTIME.cudaSetDeviceFlags(cuda.SCHEDULE_SPIN)


# --- asleep ----------------------------------------------------------------------------


@act
def fed_then_idle(rounds: str, busy_ms: str, idle_ms: str) -> None:
    """Gives the GPU work, sleeps while it works, waits for it, then sleeps with nothing given."""
    for _ in range(int(rounds)):
        RUNTIME.launch(cuda.stub_kernel(), 1000)
        time.sleep(float(busy_ms) / 1000)
        RUNTIME.cudaDeviceSynchronize()
        time.sleep(float(idle_ms) / 1000)


@act
def fed_then_idle_by_event(rounds: str, ahead: str) -> None:
    """The same with events; `ahead`: waits for the event of the round before, with work queued behind it."""
    events = [RUNTIME.event(0) for _ in range(2)]
    for number in range(int(rounds)):
        RUNTIME.launch(cuda.stub_kernel(), 1000)
        RUNTIME.cudaEventRecord(events[number % 2], None)
        if ahead == "0" or number:
            RUNTIME.cudaEventSynchronize(events[(number - int(ahead)) % 2])
        time.sleep(0.02)


@act
def time_sleep(seconds: str) -> None:
    time.sleep(float(seconds))


@act
def select_timeout(seconds: str) -> None:
    select.select([], [], [], float(seconds))


@act
def poll_timeout(seconds: str) -> None:
    """On one descriptor, which says what it waits for, and yet only the timeout comes."""
    reading, writing = os.pipe()
    poller = select.poll()
    poller.register(reading, select.POLLIN)
    poller.poll(float(seconds) * 1e3)
    os.close(reading)
    os.close(writing)


@act
def epoll_timeout(seconds: str) -> None:
    with select.epoll() as poller:
        poller.poll(float(seconds))


class Interval(ctypes.Structure):
    """struct itimerspec."""

    _fields_ = [
        ("every_s", ctypes.c_long),
        ("every_ns", ctypes.c_long),
        ("s", ctypes.c_long),
        ("ns", ctypes.c_long),
    ]


@act
def timerfd(seconds: str) -> None:
    fd = LIBC.timerfd_create(time.CLOCK_MONOTONIC, 0)
    when = Interval(0, 0, 0, int(float(seconds) * 1e9))
    assert LIBC.timerfd_settime(fd, 0, ctypes.byref(when), None) == 0
    os.read(fd, 8)
    os.close(fd)


@act
def stopped_in_sleep(seconds: str) -> None:
    """Stopped and continued while asleep: the kernel then restarts the sleep."""
    helper = subprocess.Popen(
        ["/bin/sh", "-c", f"sleep 0.1; kill -STOP {os.getpid()}; sleep 0.1; kill -CONT {os.getpid()}"]
    )
    LIBC.usleep(int(float(seconds) * 1e6))
    helper.wait()


# --- locks -----------------------------------------------------------------------------


@act
def lock() -> Said:
    held = threading.Lock()
    held.acquire()
    known = later(held.release)
    with held:
        return known


@act
def condition() -> Said:
    ready = threading.Condition()

    def tell() -> None:
        with ready:
            ready.notify()

    with ready:
        known = later(tell)
        ready.wait()
    return known


@act
def mutex() -> Said:
    """A POSIX mutex held by another thread."""
    memory = ctypes.create_string_buffer(64)
    assert LIBC.pthread_mutex_init(memory, None) == 0
    known: Said = {"waker_pid": os.getpid()}
    held = threading.Event()

    def hold() -> None:
        known["waker_tid"] = threading.get_native_id()
        LIBC.pthread_mutex_lock(memory)
        held.set()
        time.sleep(LATER_S)
        LIBC.pthread_mutex_unlock(memory)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    LIBC.pthread_mutex_lock(memory)
    LIBC.pthread_mutex_unlock(memory)
    holder.join()
    return known


@act
def gil(seconds: str) -> None:
    """Python threads that all want to compute."""
    rivals = [threading.Thread(target=spin, args=(float(seconds) + 0.1,)) for _ in range(2)]
    for rival in rivals:
        rival.start()
    spin(float(seconds))
    for rival in rivals:
        rival.join()


# --- another process or thread -----------------------------------------------------------


@act
def pipe_read() -> Said:
    reading, writing = os.pipe()
    known = later(lambda: os.write(writing, b"x"))
    os.read(reading, 1)
    return known


@act
def pipe_write() -> Said:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 65536)
    except BlockingIOError:
        os.set_blocking(writing, True)
    known = later(lambda: os.read(reading, 1 << 20))
    os.write(writing, b"x" * 65536)
    return known


@act
def eventfd() -> Said:
    fd = os.eventfd(0)
    known = later(lambda: os.eventfd_write(fd, 1))
    os.eventfd_read(fd)
    return known


@act
def unix_socket() -> Said:
    left, right = socket.socketpair()
    known = later(lambda: right.sendall(b"x"))
    left.recv(1)
    return known


def connected(family: int, address: str) -> tuple[socket.socket, socket.socket]:
    with socket.create_server((address, 0), family=socket.AddressFamily(family)) as server:
        one = socket.create_connection(server.getsockname()[:2])
        other, _ = server.accept()
    return one, other


@act
def loopback(address: str) -> Said:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    one, other = connected(family, address)
    known = later(lambda: other.sendall(b"x"))
    one.recv(1)
    return known


@act
def loopback_accept(address: str) -> Said:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        known = later(lambda: socket.create_connection(server.getsockname()[:2]))
        server.accept()
    return known


KEPT: list[socket.socket] = []


@act
def listen(path: str) -> None:
    """From here on this process is a server."""
    KEPT.append(socket.socket(socket.AF_UNIX))
    KEPT[-1].bind(path)
    KEPT[-1].listen()


@act
def loopback_timeout() -> Said:
    """A socket with a timeout polls: one descriptor, which tells."""
    one, other = connected(socket.AF_INET, "127.0.0.1")
    one.settimeout(10)
    known = later(lambda: other.sendall(b"x"))
    one.recv(1)
    return known


@act
def loopback_epoll() -> Said:
    one, other = connected(socket.AF_INET, "127.0.0.1")
    with select.epoll() as poller:
        poller.register(one, select.EPOLLIN)
        known = later(lambda: other.sendall(b"x"))
        poller.poll()
    return known


@act
def udp_loopback() -> Said:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        known = later(lambda: other.sendto(b"x", one.getsockname()))
        one.recv(1)
    return known


@act
def waitpid() -> None:
    child = os.posix_spawn("/bin/sleep", ["sleep", "0.15"], {})
    os.waitpid(child, 0)


@act
def vfork_child(fifo: str) -> None:
    """The parent of a vfork waits until its child executes something; this one must open a pipe first."""
    opener = subprocess.Popen(["/bin/sh", "-c", f"sleep 0.15; cat {fifo}"])
    first = [(os.POSIX_SPAWN_OPEN, 1, fifo, os.O_WRONLY, 0)]
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}, file_actions=first), 0)
    opener.wait()


@act
def poll_pidfd() -> None:
    child = os.posix_spawn("/bin/sleep", ["sleep", "0.15"], {})
    poller = select.poll()
    poller.register(os.pidfd_open(child), select.POLLIN)
    poller.poll()
    os.waitpid(child, 0)


@act
def poll_pipe(seconds: str) -> Said:
    reading, writing = os.pipe()
    poller = select.poll()
    poller.register(reading, select.POLLIN)
    known = later(lambda: os.write(writing, b"x"), float(seconds))
    poller.poll()
    return known


@act
def epoll_pipe(seconds: str) -> Said:
    reading, writing = os.pipe()
    with select.epoll() as poller:
        poller.register(reading, select.EPOLLIN)
        known = later(lambda: os.write(writing, b"x"), float(seconds))
        poller.poll()
    return known


@act
def two_long_polls(seconds: str) -> Said:
    """One that a write ends, and right after it one that only its timeout ends."""
    known = epoll_pipe(seconds)
    epoll_timeout(seconds)
    assert known is not None
    return known


# --- the network -------------------------------------------------------------------------


def within(namespace: str) -> None:
    """Move this thread into a network namespace."""
    with Path(f"/run/netns/{namespace}").open() as file:
        assert LIBC.setns(file.fileno(), 0x40000000) == 0


@act
def remote_recv(namespace: str, address: str, port: str) -> None:
    within(namespace)
    with socket.create_connection((address, int(port))) as one:
        one.recv(1)


@act
def remote_poll(namespace: str, address: str, port: str) -> None:
    within(namespace)
    with socket.create_connection((address, int(port))) as one:
        one.settimeout(10)
        one.recv(1)


@act
def remote_epoll(namespace: str, address: str, port: str) -> None:
    within(namespace)
    with socket.create_connection((address, int(port))) as one, select.epoll() as poller:
        poller.register(one, select.EPOLLIN)
        poller.poll()


@act
def send_into_the_dark(namespace: str, address: str, port: str, signal_file: str) -> Said:
    """Connects, says so, waits until nothing arrives there any more, and sends."""
    within(namespace)
    with socket.create_connection((address, int(port))) as one:
        Path(signal_file).touch()
        while Path(signal_file).exists():
            time.sleep(0.01)
        one.sendall(b"x" * 1000)
        time.sleep(0.7)
        return {"inode": os.fstat(one.fileno()).st_ino, "port": one.getsockname()[1]}


@act
def accept_and_wait(address: str, port: str, signal_file: str) -> None:
    """Says when it listens, takes one connection, and waits on it for what may not come."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, int(port)), family=family) as server:
        Path(signal_file).touch()
        one, _ = server.accept()
        with one, contextlib.suppress(TimeoutError):
            one.settimeout(1.5)
            one.recv(1)


# --- disk ----------------------------------------------------------------------------------


@act
def read_direct(path: str, blocks: str, tasks: str = "") -> None:
    if tasks:
        Path(tasks).write_text(str(threading.get_native_id()))
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    with mmap.mmap(-1, 1 << 16) as memory:
        for index in range(int(blocks)):
            assert os.preadv(fd, [memory], index << 16) == 1 << 16
    os.close(fd)


@act
def read_at_once(path: str, megabytes: str) -> None:
    """One large read, which takes the disk a while."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    with mmap.mmap(-1, int(megabytes) << 20) as memory:
        os.preadv(fd, [memory], 0)
    os.close(fd)


@act
def read_uncached(path: str, blocks: str, tasks: str = "") -> None:
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    if tasks:
        Path(tasks).write_text(str(threading.get_native_id()))
    for index in range(int(blocks)):
        assert len(os.pread(fd, 1 << 16, index << 16)) == 1 << 16
    os.close(fd)


@act
def fault_file(path: str, blocks: str, tasks: str = "") -> None:
    """Touches pages of a mapped file that are not in memory."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    with mmap.mmap(fd, int(blocks) << 16, prot=mmap.PROT_READ) as memory:
        memory.madvise(mmap.MADV_RANDOM)
        if tasks:
            Path(tasks).write_text(str(threading.get_native_id()))
        for index in range(int(blocks)):
            memory[index << 16]
    os.close(fd)


@act
def fsync(path: str, rounds: str) -> Said:
    took_ns = 0
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    for index in range(int(rounds)):
        os.pwrite(fd, b"x" * 262144, index * 262144)
        before_ns = time.monotonic_ns()
        os.fsync(fd)
        took_ns += time.monotonic_ns() - before_ns
    os.close(fd)
    return {"took_ns": took_ns}


# --- memory ----------------------------------------------------------------------------------


@act
def read_much(path: str) -> Said:
    """Fills the page cache beyond the group's limit again and again."""
    total = 0
    with Path(path).open("rb", buffering=0) as file:
        while part := file.read(1 << 20):
            total += len(part)
    return {"bytes": total}


@act
def touch(megabytes: str) -> Said:
    before = Path("/proc/thread-self/stat").read_text().rsplit(")", 1)[1].split()
    with mmap.mmap(-1, int(megabytes) << 20) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for at in range(0, int(megabytes) << 20, 4096):
            memory[at] = 1
    after = Path("/proc/thread-self/stat").read_text().rsplit(")", 1)[1].split()
    return {"minor_faults": int(after[7]) - int(before[7]), "major_faults": int(after[9]) - int(before[9])}


# --- threads and processes ---------------------------------------------------------------------


@act
def fork_child(seconds: str) -> Said:
    """A child process that sleeps, spins, and tells its own times."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        start_ns = time.monotonic_ns()
        time.sleep(float(seconds))
        spin(float(seconds))
        told = {"start_ns": start_ns, "end_ns": time.monotonic_ns(), "run_delay_ns": run_delay_ns()}
        os.write(writing, json.dumps(told).encode())
        os._exit(7)
    os.waitpid(child, 0)
    return {"child": child, "told": json.loads(os.read(reading, 4096))}


@act
def signal_child() -> Said:
    """A child that is stopped for a while."""
    child = os.posix_spawn("/bin/sleep", ["sleep", "0.1"], {})
    os.kill(child, signal.SIGSTOP)
    time.sleep(0.2)
    os.kill(child, signal.SIGCONT)
    os.waitpid(child, 0)
    return {"child": child}


def perform(name: str, words: list[str], said: Said) -> None:
    said["tid"] = threading.get_native_id()
    said["start_ns"] = time.monotonic_ns()
    RUNTIME.cudaStreamQuery(None)
    said.update(ACTS[name](*words) or {})
    hurry()
    said["run_delay_ns"] = run_delay_ns()
    said["end_ns"] = time.monotonic_ns()


def main() -> None:
    RUNTIME.cudaFree(None)
    print("ready", os.getpid(), flush=True)
    for line in sys.stdin:
        name, *words = line.split()
        said: Said = {}
        actor = threading.Thread(target=perform, args=(name, words, said))
        actor.start()
        actor.join()
        print(json.dumps(said))
        print("done", flush=True)


if __name__ == "__main__":
    main()
