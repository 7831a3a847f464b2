"""As whom the command of `trace -- COMMAND` runs: under sudo as the person who called it.

sudo is for the tracing; the job is the user's, and so are the files it makes. The new process
becomes the user before it becomes the command (ingero.becoming), because os.posix_spawn
knows no users.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from dataclasses import dataclass

from ingero import isolated, rights

_OF_SUDO = ("SUDO_COMMAND", "SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_HOME", "MAIL")


@dataclass(frozen=True)
class RunAs:
    """Whose command it is; None: it stays what we are."""

    who: rights.User | None

    @classmethod
    def caller(cls, as_root: bool = False) -> RunAs:
        return cls(None if as_root else rights.invoking_user())

    def words(self, words: Sequence[str]) -> list[str]:
        """What to start, its program by its path."""
        if self.who is None:
            return list(words)
        numbers = (self.who.uid, self.who.gid, *self.who.groups)
        return isolated.command("ingero.becoming", ",".join(map(str, numbers)), *words)

    def environment(self) -> dict[str, str]:
        """What sudo made root's is the user's again; PATH stays as sudo left it."""
        found = dict(os.environ)
        if self.who is None:
            return found
        for name in _OF_SUDO:
            found.pop(name, None)
        try:
            entry = pwd.getpwuid(self.who.uid)
        except KeyError:  # the system has no name for this user
            return found
        return found | {
            "HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name, "SHELL": entry.pw_shell
        }  # fmt: skip
