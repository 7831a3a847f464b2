"""A filter of system calls, for processes that read what strangers wrote.

What is not listed is refused (EPERM), so that a library that tries something new shows as an error of that
question alone. What only an intruder would do ends the process. Files can be opened for reading only.
The filter is a program for the kernel's classic BPF; this is the only module that writes one.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
from typing import NamedTuple

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2
KILL, REFUSE, UNKNOWN, ALLOW = 0x80000000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS, 0x7FFF0000
# Classic BPF: load a word, jump where it equals or has bits, return.
LOAD, EQUAL, HAS, RETURN = 0x20, 0x15, 0x45, 0x06
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # places in struct seccomp_data
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
TCGETS = 0x5401  # Python asks every file whether it is a terminal
FORK = 0x1200011  # the flags of the C library's fork(): no namespace, no shared memory, no thread
PR_SET_PDEATHSIG = 1


class Processor(NamedTuple):
    audit: int
    calls: dict[str, int]


# What a reader does: look at files and memory, answer, take and give back memory, end. Names are made
# readable in a copy of it (native/_demangle.c) under the same filter: hence pipes, writing, limits, waiting.
ALLOWED = (
    "read", "readv", "pread64", "close", "fstat", "newfstatat", "statx", "lseek", "getdents64",
    "readlinkat", "faccessat", "faccessat2", "fstatfs", "statfs", "dup", "mmap",
    "munmap", "mremap", "mprotect", "madvise", "brk", "futex", "ppoll", "sendto", "recvfrom", "recvmsg",
    "sendmsg", "process_vm_readv", "getpid", "gettid", "getppid", "getuid", "geteuid", "getgid",
    "getegid", "getcwd", "uname", "sysinfo", "getrandom", "clock_gettime", "clock_nanosleep",
    "gettimeofday", "getrusage", "sched_yield", "sched_getaffinity", "rt_sigaction", "rt_sigprocmask",
    "rt_sigreturn", "sigaltstack", "restart_syscall", "set_robust_list", "rseq", "membarrier", "exit",
    "exit_group", "pipe2", "write", "dup3", "close_range", "setitimer", "wait4",
)  # fmt: skip
ALLOWED_ON_X86 = ("dup2", "stat", "lstat", "poll", "access", "readlink", "time")  # older forms of the same
# What nobody but an intruder would try.
ENDED = (
    "execve", "execveat", "ptrace", "process_vm_writev", "socket", "connect", "bind", "clone3",
    "bpf", "perf_event_open", "init_module", "finit_module", "mount", "setns", "unshare", "kill", "tgkill",
    "pidfd_send_signal", "pidfd_getfd", "io_uring_setup",
)  # fmt: skip
# Said not to exist, as on an older kernel, so that whoever tries falls back: how a file is opened lies in
# memory, where no filter can look.
MISSING = ("openat2",)

# Of these an argument decides: which, how it is compared, with what (one of these), what becomes of the call
# then, and else. Of fcntl everything else can be made to send signals.
BY_ARGUMENT = (
    ("openat", 2, HAS, (WRITING,), REFUSE, ALLOW),
    ("ioctl", 1, EQUAL, (TCGETS,), ALLOW, REFUSE),
    ("fcntl", 1, EQUAL, (fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL, fcntl.F_DUPFD_CLOEXEC), ALLOW, REFUSE),
    ("clone", 0, EQUAL, (FORK,), ALLOW, KILL),
    ("prctl", 0, EQUAL, (PR_SET_PDEATHSIG,), ALLOW, REFUSE),
    ("prlimit64", 0, EQUAL, (0,), ALLOW, REFUSE),  # its own limits
)

X86_64 = Processor(0xC000003E, {
    "read": 0, "write": 1, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7, "lseek": 8, "mmap": 9,
    "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15,
    "ioctl": 16, "pread64": 17, "readv": 19, "access": 21, "sched_yield": 24, "mremap": 25, "madvise": 28,
    "dup": 32, "dup2": 33, "setitimer": 38, "getpid": 39, "socket": 41, "connect": 42, "sendto": 44,
    "recvfrom": 45, "sendmsg": 46, "recvmsg": 47, "bind": 49, "clone": 56, "execve": 59, "exit": 60,
    "wait4": 61, "kill": 62, "uname": 63, "fcntl": 72, "getcwd": 79, "readlink": 89, "gettimeofday": 96,
    "getrusage": 98, "sysinfo": 99, "ptrace": 101, "getuid": 102, "getgid": 104, "geteuid": 107,
    "getegid": 108, "getppid": 110, "sigaltstack": 131, "statfs": 137, "fstatfs": 138, "prctl": 157,
    "mount": 165, "init_module": 175, "gettid": 186, "time": 201, "futex": 202, "sched_getaffinity": 204,
    "getdents64": 217, "restart_syscall": 219, "clock_gettime": 228, "clock_nanosleep": 230,
    "exit_group": 231, "tgkill": 234, "openat": 257, "newfstatat": 262, "readlinkat": 267, "faccessat": 269,
    "ppoll": 271, "unshare": 272, "set_robust_list": 273, "dup3": 292, "pipe2": 293, "perf_event_open": 298,
    "prlimit64": 302, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "finit_module": 313,
    "getrandom": 318, "bpf": 321, "execveat": 322, "membarrier": 324, "statx": 332, "rseq": 334,
    "pidfd_send_signal": 424, "io_uring_setup": 425, "clone3": 435, "pidfd_getfd": 438, "faccessat2": 439,
    "openat2": 437, "close_range": 436,
})  # fmt: skip
ARM64 = Processor(0xC00000B7, {
    "getcwd": 17, "dup": 23, "dup3": 24, "fcntl": 25, "ioctl": 29, "mount": 40, "statfs": 43, "fstatfs": 44,
    "faccessat": 48, "openat": 56, "close": 57, "pipe2": 59, "getdents64": 61, "lseek": 62, "read": 63,
    "write": 64, "readv": 65, "pread64": 67, "ppoll": 73, "readlinkat": 78, "newfstatat": 79, "fstat": 80,
    "exit": 93, "exit_group": 94, "unshare": 97, "futex": 98, "set_robust_list": 99, "setitimer": 103,
    "init_module": 105, "clock_gettime": 113, "clock_nanosleep": 115, "ptrace": 117,
    "sched_getaffinity": 123, "sched_yield": 124, "restart_syscall": 128, "kill": 129, "tgkill": 131,
    "sigaltstack": 132, "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139, "uname": 160,
    "getrusage": 165, "prctl": 167, "gettimeofday": 169, "getpid": 172, "getppid": 173, "getuid": 174,
    "geteuid": 175, "getgid": 176, "getegid": 177, "gettid": 178, "sysinfo": 179, "socket": 198,
    "bind": 200, "connect": 203, "sendto": 206, "recvfrom": 207, "sendmsg": 211, "recvmsg": 212, "brk": 214,
    "munmap": 215, "mremap": 216, "clone": 220, "execve": 221, "mmap": 222, "mprotect": 226, "madvise": 233,
    "perf_event_open": 241, "wait4": 260, "prlimit64": 261, "setns": 268, "process_vm_readv": 270,
    "process_vm_writev": 271, "finit_module": 273, "getrandom": 278, "bpf": 280, "execveat": 281,
    "membarrier": 283, "statx": 291, "rseq": 293, "pidfd_send_signal": 424, "io_uring_setup": 425,
    "clone3": 435, "pidfd_getfd": 438, "faccessat2": 439, "openat2": 437, "close_range": 436,
})  # fmt: skip
PROCESSORS = {"x86_64": X86_64, "aarch64": ARM64}


class _Step(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_ushort),
        ("yes", ctypes.c_ubyte),
        ("no", ctypes.c_ubyte),
        ("k", ctypes.c_uint),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.POINTER(_Step))]


Steps = list[tuple[int, int, int, int]]


def program(processor: Processor) -> Steps:
    """One step after the other: code, steps to skip where it holds and where not, and a number."""
    calls = processor.calls
    steps: Steps = [
        (LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, processor.audit), (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
    ]  # fmt: skip
    for names, action in ((ENDED, KILL), (MISSING, UNKNOWN), ((*ALLOWED, *ALLOWED_ON_X86), ALLOW)):
        for name in names:
            if name in calls:
                steps += [(EQUAL, 0, 1, calls[name]), (RETURN, 0, 0, action)]
    for name, argument, condition, numbers, yes, no in BY_ARGUMENT:
        # The number of the call is not looked at afterwards.
        steps += [(EQUAL, 0, 2 + 2 * len(numbers), calls[name]), (LOAD, 0, 0, _argument(argument))]
        for number in numbers:
            steps += [(condition, 0, 1, number), (RETURN, 0, 0, yes)]
        steps.append((RETURN, 0, 0, no))
    return [*steps, (RETURN, 0, 0, REFUSE)]


def _argument(index: int) -> int:
    """Its lower half: both processors are little-endian."""
    return ARGUMENTS + 8 * index


def only_reading() -> bool:
    """From now on, in this thread and what it starts; False: a kernel or processor that cannot."""
    processor = PROCESSORS.get(platform.machine())
    if processor is None:
        return False
    steps = program(processor)
    made = _Program(len(steps), (_Step * len(steps))(*(_Step(*each) for each in steps)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    return int(libc.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(made), 0, 0)) == 0
