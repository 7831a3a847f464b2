"""Commands run in a root of their own: the machine's /proc, /sys and /dev, no network, no mount left."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

# The mounts end with the namespace.
ENTER = """
root=$1; shift
for each in proc sys dev; do mount --rbind "/$each" "$root/$each" || exit 99; done
exec chroot "$root" "$@"
"""
APART = ("unshare", "--mount", "--net", "--propagation", "private")
NEVER_LEFT = {"proc", "sys", "dev", "tmp", "run", "srv"}
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": "/srv/wheelhouse",
}


@dataclass(frozen=True)
class Room:
    """A root."""

    root: Path

    def run(self, *words: str, home: str = "/root", given: str = "", code: int = 0, **more: str) -> str:
        """What a command says on both streams; it must end with that code."""
        done = subprocess.run(
            [*APART, "sh", "-c", ENTER, "sh", self.root, *words],
            env={**ENVIRONMENT, "HOME": home, **more},
            input=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, cwd="/",
        )  # fmt: skip
        assert done.returncode == code, done.stdout
        return done.stdout

    def as_alice(self, *words: str, **more: str) -> str:
        """As somebody who is not root, in a shell that looks where pipx puts commands."""
        path = f"/home/alice/.local/bin:{ENVIRONMENT['PATH']}"
        alice = ("setpriv", "--reuid=alice", "--regid=alice", "--init-groups")
        return self.run(*alice, *words, home="/home/alice", PATH=path, **more)

    def files(self) -> set[str]:
        """Every file and folder, save what is the machine's or the test's own."""
        tops = [each for each in self.root.iterdir() if each.name not in NEVER_LEFT and not each.is_symlink()]
        return {str(path.relative_to(self.root)) for top in tops for path in (top, *top.rglob("*"))}
