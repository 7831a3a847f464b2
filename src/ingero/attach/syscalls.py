"""What a thread waits for in each system call: data for the kernel side.

Numbers differ by processor; names do not. A call that is not listed, or that never
blocks, stays WAIT_UNKNOWN, and time blocked in it is `unexplained`.
"""

from __future__ import annotations

import numpy as np

from ingero.model.layout import Capacity, WaitClass

CLASSES: dict[WaitClass, str] = {
    WaitClass.WAIT_FUTEX: "futex futex_wait futex_waitv",
    WaitClass.WAIT_POLL: "poll ppoll select pselect6 epoll_wait epoll_pwait epoll_pwait2 io_uring_enter",
    WaitClass.WAIT_SLEEP: "nanosleep clock_nanosleep pause rt_sigtimedwait rt_sigsuspend",
    WaitClass.WAIT_FD: "read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 recvfrom"
    " recvmsg recvmmsg sendto sendmsg sendmmsg connect accept accept4 ioctl splice tee vmsplice sendfile",
    WaitClass.WAIT_FILE: "open openat openat2 close stat fstat lstat newfstatat statx unlink unlinkat rename"
    " renameat renameat2 mkdir mkdirat rmdir link linkat symlink symlinkat truncate ftruncate fallocate"
    " getdents64 readlink readlinkat chmod fchmod fchmodat chown fchown fchownat utimensat copy_file_range"
    " readahead fadvise64 io_getevents io_pgetevents io_submit execve execveat",
    WaitClass.WAIT_WRITEBACK: "fsync fdatasync sync syncfs sync_file_range msync",
    # a vfork, or a clone like it, waits until its child executes something
    WaitClass.WAIT_CHILD: "wait4 waitid vfork clone clone3",
    WaitClass.WAIT_PEER: "semop semtimedop msgrcv msgsnd mq_timedreceive mq_timedsend flock fcntl",
}

X86_64: dict[str, int] = {
    "read": 0, "write": 1, "open": 2, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7, "ioctl": 16,
    "pread64": 17, "pwrite64": 18, "readv": 19, "writev": 20, "select": 23, "msync": 26, "pause": 34,
    "nanosleep": 35, "sendfile": 40, "connect": 42, "accept": 43, "sendto": 44, "recvfrom": 45,
    "sendmsg": 46, "recvmsg": 47, "clone": 56, "vfork": 58, "execve": 59, "wait4": 61, "semop": 65,
    "msgsnd": 69, "msgrcv": 70, "fcntl": 72, "flock": 73, "fsync": 74, "fdatasync": 75, "truncate": 76,
    "ftruncate": 77, "rename": 82, "mkdir": 83, "rmdir": 84, "link": 86, "unlink": 87, "symlink": 88,
    "readlink": 89, "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93, "rt_sigtimedwait": 128,
    "rt_sigsuspend": 130, "sync": 162, "readahead": 187, "futex": 202, "io_getevents": 208,
    "io_submit": 209, "getdents64": 217, "semtimedop": 220, "fadvise64": 221, "clock_nanosleep": 230,
    "epoll_wait": 232, "mq_timedsend": 242, "mq_timedreceive": 243, "waitid": 247, "openat": 257,
    "mkdirat": 258, "fchownat": 260, "newfstatat": 262, "unlinkat": 263, "renameat": 264, "linkat": 265,
    "symlinkat": 266, "readlinkat": 267, "fchmodat": 268, "pselect6": 270, "ppoll": 271, "splice": 275,
    "tee": 276, "sync_file_range": 277, "vmsplice": 278, "utimensat": 280, "epoll_pwait": 281,
    "fallocate": 285, "accept4": 288, "preadv": 295, "pwritev": 296, "recvmmsg": 299, "syncfs": 306,
    "sendmmsg": 307, "renameat2": 316, "execveat": 322, "copy_file_range": 326, "preadv2": 327,
    "pwritev2": 328, "statx": 332, "io_pgetevents": 333, "io_uring_enter": 426, "clone3": 435,
    "openat2": 437, "epoll_pwait2": 441, "futex_waitv": 449, "futex_wait": 455,
}  # fmt: skip

# The generic table (include/uapi/asm-generic/unistd.h).
ARM64: dict[str, int] = {
    "epoll_pwait": 22, "fcntl": 25, "ioctl": 29, "flock": 32, "mkdirat": 34, "unlinkat": 35,
    "symlinkat": 36, "linkat": 37, "renameat": 38, "truncate": 45, "ftruncate": 46, "fallocate": 47,
    "fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55, "openat": 56, "close": 57, "getdents64": 61,
    "read": 63, "write": 64, "readv": 65, "writev": 66, "pread64": 67, "pwrite64": 68, "preadv": 69,
    "pwritev": 70, "sendfile": 71, "pselect6": 72, "ppoll": 73, "vmsplice": 75, "splice": 76, "tee": 77,
    "readlinkat": 78, "newfstatat": 79, "fstat": 80, "sync": 81, "fsync": 82, "fdatasync": 83,
    "sync_file_range": 84, "utimensat": 88, "waitid": 95, "futex": 98, "nanosleep": 101,
    "clock_nanosleep": 115, "rt_sigsuspend": 133, "rt_sigtimedwait": 137, "io_submit": 2, "io_getevents": 4,
    "mq_timedsend": 182, "mq_timedreceive": 183, "msgrcv": 188, "msgsnd": 189, "semtimedop": 192,
    "semop": 193, "connect": 203, "accept": 202, "sendto": 206, "recvfrom": 207, "sendmsg": 211,
    "recvmsg": 212, "readahead": 213, "fadvise64": 223, "msync": 227, "clone": 220, "execve": 221,
    "accept4": 242, "recvmmsg": 243, "wait4": 260, "syncfs": 267, "sendmmsg": 269, "renameat2": 276,
    "execveat": 281, "copy_file_range": 285, "preadv2": 286, "pwritev2": 287, "statx": 291,
    "io_pgetevents": 292, "io_uring_enter": 426, "clone3": 435, "openat2": 437, "epoll_pwait2": 441,
    "futex_waitv": 449, "futex_wait": 455,
}  # fmt: skip

NUMBERS = {"x86_64": X86_64, "aarch64": ARM64}


def wait_classes(machine: str) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """WaitClass for every system call number of this processor."""
    table = np.zeros(Capacity.SYSCALLS, np.uint8)
    numbers = NUMBERS[machine]
    for wait_class, names in CLASSES.items():
        for name in names.split():
            if name in numbers:
                table[numbers[name]] = int(wait_class)
    return table
