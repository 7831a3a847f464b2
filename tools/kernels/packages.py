"""Debian packages of other releases and processors, without touching the machine's own apt.

Each (release, architecture) has an apt of its own under build/kernels. Where packages come from is
derived from the machine's sources: no mirror is named here. What was fetched once is kept; the run
asks again only when told to.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class UnavailableError(Exception):
    """Something the run needs cannot be had here."""


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """What a command prints; UnavailableError with the last line of its complaint where it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=cwd, env=env)
    if done.returncode:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        errors = [line for line in said if line.startswith("E:") or "error" in line.lower()] or said
        raise UnavailableError(f"{command[0]}: {errors[-1] if errors else f'exit {done.returncode}'}")
    return done.stdout


def mirror() -> str:
    """Where this machine gets Debian from."""
    targets = run("apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)")
    for line in targets.splitlines():
        origin, label, uri = line.split("|", 2)
        if (origin, label) == ("Debian", "Debian"):
            return uri
    raise UnavailableError("this machine's apt has no Debian archive among its sources")


@dataclass(frozen=True, slots=True)
class Archive:
    """One release of Debian for one architecture."""

    suite: str
    architecture: str
    folder: Path  # of all archives

    @property
    def root(self) -> Path:
        return self.folder / f"{self.suite}-{self.architecture}"

    @property
    def debs(self) -> Path:
        return self.root / "debs"

    def _options(self) -> list[str]:
        settings = {
            "Dir": self.root,
            "Dir::Etc::SourceList": self.root / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::Etc::Parts": "/dev/null",
            "Dir::Etc::Main": "/dev/null",
            "Dir::Etc::Preferences": "/dev/null",
            "Dir::Etc::PreferencesParts": "/dev/null",
            "Dir::State": self.root / "state",
            "Dir::State::Status": self.root / "status",
            "Dir::Cache": self.root,
            "Dir::Cache::Archives": self.root / "empty",  # what lies there would not be listed
            "APT::Architecture": self.architecture,
            "APT::Architectures": self.architecture,
            "APT::Install-Recommends": "false",
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
            "Acquire::Retries": "2",
        }
        return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]

    def renew(self) -> None:
        """Ask which packages there are."""
        for folder in (self.root / "state/lists/partial", self.root / "empty/partial", self.debs):
            folder.mkdir(parents=True, exist_ok=True)
        (self.root / "status").touch()
        line = f"deb [arch={self.architecture} signed-by={KEYRING}] {mirror()} {self.suite} main\n"
        (self.root / "sources.list").write_text(line)
        run("apt-get", *self._options(), "-qq", "update", "-o", "APT::Update::Error-Mode=any")

    def fetch(self, packages: Sequence[str], only: str = "") -> list[Path]:
        """These packages with all they depend on; `only`: of those, the ones that match."""
        if not (self.root / "sources.list").exists():
            self.renew()
        listed = run("apt-get", *self._options(), "-qq", "--print-uris", "install", *packages)
        wanted = []
        for line in listed.splitlines():
            if match := re.match(r"'([^']+)' (\S+)", line):
                name = match[2].partition("_")[0]
                if re.search(only, name):
                    wanted.append((name, self.debs / match[2]))
        missing = [name for name, path in wanted if not path.exists()]
        if missing:
            run("apt-get", *self._options(), "-qq", "download", *missing, cwd=self.debs)
        found = [self._as_downloaded(path) for _, path in wanted]
        if not found:
            raise UnavailableError(f"{self.suite} has no {' '.join(packages)} for {self.architecture}")
        return found

    def _as_downloaded(self, path: Path) -> Path:
        if not path.exists():
            raise UnavailableError(f"{path.name} did not come")
        return path


def unpack(packages: Sequence[Path], folder: Path) -> None:
    """Their files, without their scripts."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for each in packages:
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(each)], stdout=subprocess.PIPE) as files:
            subprocess.run(
                ["tar", "-x", "-C", str(folder), "--no-same-owner", "--keep-directory-symlink"],
                stdin=files.stdout, check=True,
            )  # fmt: skip
        if files.returncode:
            raise UnavailableError(f"{each.name} cannot be unpacked")
