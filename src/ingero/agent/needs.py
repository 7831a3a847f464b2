"""What a trace needs of the machine before it begins."""

from __future__ import annotations

import resource

from ingero.discover.host import counts_own_processes, has_btf, missing_capabilities
from ingero.errors import KernelError, PrivilegeError

MAX_DESCRIPTORS = 1 << 16
NEEDED = ("CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE")


def require_privileges() -> None:
    missing = [name for name in missing_capabilities() if name in NEEDED]
    if missing:
        raise PrivilegeError(
            f"cannot trace: {', '.join(missing)} missing", hint="Run it with sudo: sudo ingero trace"
        )
    if not has_btf():
        raise KernelError(
            "cannot trace: this kernel has no BTF (/sys/kernel/btf/vmlinux)",
            hint="Use a kernel built with CONFIG_DEBUG_INFO_BTF=y; distributions' kernels are.",
        )

    if counts_own_processes():
        raise KernelError(
            "cannot trace from here: this container has its own process numbers",
            hint="Run it outside the container, or share the host's process numbers: "
            "docker run --pid host, hostPID: true in a pod.",
        )


def raise_descriptor_limit() -> None:
    """The usual 1024 are few where every probed function takes four (the perf shape)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
