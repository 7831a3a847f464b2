"""The support bundle: what a stranger needs to see of this host to help, and no secrets.

Safe by what is let in, not by guessing what to take out: of a command line only the
program and its script, of the environment only names known to matter, and those masked
when they still look like a secret. Every member is best effort; what failed is listed.
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from itertools import pairwise
from pathlib import Path

from ingero.discover import gpu_devices, host, processes
from ingero.discover.libraries import LibraryFinder
from ingero.errors import UsageError
from ingero.model.check_line import Check

MAX_MEMBER_BYTES = 256 << 10
HOST_FILES = (
    "/etc/os-release",
    "/proc/cmdline",
    "/proc/cpuinfo",
    "/proc/driver/nvidia/version",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/modules",
    "/proc/pressure/cpu",
    "/proc/pressure/io",
    "/proc/pressure/memory",
    "/proc/self/cgroup",
    "/proc/self/mountinfo",
    "/proc/self/status",
    "/proc/version",
    "/sys/kernel/security/lockdown",
    "/proc/sys/kernel/perf_event_paranoid",
    "/proc/sys/kernel/unprivileged_bpf_disabled",
    "/proc/sys/kernel/yama/ptrace_scope",
)
PACKAGES = (
    "ingero",
    "numpy",
    "click",
    "rich",
    "msgspec",
    "PyYAML",
    "platformdirs",
    "textual",
    "nvidia-ml-py",
)
ENVIRONMENT = re.compile(
    r"(CUDA|NVIDIA|NCCL|INGERO|LD|SLURM|OMPI|PYTORCH|TORCH|OMP)_\w+|RANK|LOCAL_RANK|WORLD_SIZE"
)
MASK = "***"

_SECRET_NAME = re.compile(
    r"pass|secret|token|credential|api_?key|private|auth|jwt|cookie|session|signature|(?:^|_)(?:key|pw|pwd)(?:_|$)",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"(?P<url>[a-z][a-z0-9+.-]*://)[^/\s@]+@"
    r"|(?P<name>\b[\w.-]*(?:pass|secret|token|credential|key)[\w.-]*=)[^\s,&]+"
    r"|\b(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abp]-|nvapi-|eyJ|AKIA|ASIA)[\w.-]{8,}"
    r"|\bBearer\s+\S+",
    re.IGNORECASE,
)
_SCRIPT = re.compile(r"[\w./+-]+\.(?:py|pyz|sh|pl|lua|jl)$")
_MODULE = re.compile(r"[A-Za-z_][\w.]*$")


def masked_text(text: str) -> str:
    """Text with everything that looks like a credential replaced."""
    return _SECRET_VALUE.sub(
        lambda m: f"{m['url'] or ''}{m['name'] or ''}{MASK}{'@' if m['url'] else ''}", text
    )


def masked_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Variables known to matter, without the values whose name or look is secret."""
    kept = {name: value for name, value in sorted(env.items()) if ENVIRONMENT.fullmatch(name)}
    return {name: MASK if _SECRET_NAME.search(name) else masked_text(value) for name, value in kept.items()}


def masked_command(arguments: Sequence[str]) -> str:
    """The program, its script or module, and how many arguments there were: they may be secrets."""
    if not arguments:
        return ""
    shown = [arguments[0].split(" ", 1)[0]]
    for before, word in pairwise(arguments[:8]):
        if before == "-m" and _MODULE.match(word):
            shown += ["-m", word]
            break
        if not before.startswith("-") and _SCRIPT.match(word):
            shown.append(word)
            break
    hidden = len(arguments) - len(shown)
    return " ".join(shown) + (f" (and {hidden} arguments)" if hidden > 0 else "")


def support_bundle(path: Path, checks: Iterable[Check], finder: LibraryFinder | None = None) -> list[str]:
    """Writes the bundle, readable by its owner only; returns the names of its members."""
    members: dict[str, Callable[[], str]] = {
        "checks.json": lambda: _json([_as_dict(check) for check in checks]),
        "environment.json": lambda: _json(masked_environment(os.environ)),
        "gpus.json": lambda: _json(_gpus()),
        "processes.json": lambda: _json(_processes(finder or LibraryFinder())),
        "versions.json": lambda: _json(_versions()),
    }
    for name in HOST_FILES:
        members[f"host{name}"] = lambda name=name: _host_file(name)  # type: ignore[misc]
    texts = _collect(members)
    try:
        _write(path, texts)
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(
            f"cannot write the support bundle {path}: {why}", hint="Choose a folder you can write to."
        ) from error
    return sorted(texts)


def _collect(members: Mapping[str, Callable[[], str]]) -> dict[str, str]:
    texts, missing = {}, []
    for name, make in members.items():
        try:
            texts[name] = make()
        except Exception as error:  # it is for machines where things fail: the bundle says what did
            missing.append(f"{name}: {type(error).__name__}: {error}")
    texts["missing.txt"] = masked_text("\n".join(missing) + "\n") if missing else ""
    return texts


def _write(path: Path, texts: Mapping[str, str]) -> None:
    """Through a file of our own that then takes the name: never through a link somebody left there."""
    fd, unfinished = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)
    try:
        with os.fdopen(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, text in sorted(texts.items()):
                data = text.encode("utf-8", "replace")[:MAX_MEMBER_BYTES]
                entry = tarfile.TarInfo(f"ingero-support/{name}")
                entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
                archive.addfile(entry, io.BytesIO(data))
        Path(unfinished).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(unfinished).unlink()
        raise


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=True) + "\n"


def _as_dict(check: Check) -> dict[str, str]:
    row = {"name": check.name, "status": check.status, "value": check.value, "advice": check.advice}
    return {key: masked_text(value) for key, value in row.items()}


def _host_file(path: str) -> str:
    with Path(path).open("rb") as file:
        return masked_text(file.read(MAX_MEMBER_BYTES).decode("utf-8", "replace"))


def _versions() -> dict[str, str]:
    found = {"kernel": host.kernel_release(), "distribution": host.distribution()}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _gpus() -> dict[str, object]:
    report = gpu_devices.find_gpus()
    cards = [{"index": gpu.index, "name": gpu.name, "memory_bytes": gpu.memory_bytes} for gpu in report.gpus]
    return {"driver": report.driver, "source": report.source, "problem": report.problem, "gpus": cards}


def _processes(finder: LibraryFinder) -> list[dict[str, object]]:
    """Processes that map a CUDA library, with the files and the kind of each."""
    rows: list[dict[str, object]] = []
    for pid in processes.list_pids():
        libraries = finder.libraries_of(pid)
        process = processes.read_process(pid) if libraries else None
        if process:
            listed = [{"path": each.path, "kind": each.kind, "deleted": each.deleted} for each in libraries]
            command = masked_command(_arguments(pid))
            rows.append({"pid": pid, "comm": process.comm, "command": command, "libraries": listed})
    return rows


def _arguments(pid: int) -> list[str]:
    with processes.ProcessHandle(pid) as handle:
        raw = handle.read("cmdline", 1 << 16).rstrip(b"\0")
    return [processes.printable(word) for word in raw.split(b"\0")] if raw else []
