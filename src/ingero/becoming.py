"""A process that becomes a user, then a command: `python -m ingero.becoming UID,GID,GROUP,... PROGRAM WORDS`.

For good: root is nowhere left in it, and with root go all capabilities. It imports
nothing else of ours, because it still is root while it does.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    uid, gid, *groups = map(int, sys.argv[1].split(","))
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, the command need not
        signal.signal(number, signal.SIG_DFL)
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
