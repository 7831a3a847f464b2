"""The recording of `ingero demo --live` that every run of these tests looks at.

    python -m tests.browser.live   makes it anew; needs root, and a machine that does little else

Whoever else ran on that machine has no name in it.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.corpus.kept import ROOT, database, packed
from tests.browser.serving import rename_node

KEPT = Path(__file__).parent / "live.db.xz"
KERNEL = re.compile(r"\[|(kworker|ksoftirqd|migration)/|rcu_|kcompactd|khugepaged|kswapd")
OURS = "%/ingero/%"  # in the command of each process of the demo


@contextmanager
def live() -> Iterator[Path]:
    """The recording, unpacked."""
    with database(KEPT.with_suffix("").with_suffix("")) as db:
        yield db


def record(db: Path) -> None:
    words = [sys.executable, "-m", "ingero", "demo", "--live", "--no-tui", "-d", str(db), "incident"]
    subprocess.run(words, check=True)


def forget_others(db: Path) -> None:
    with contextlib.closing(sqlite3.connect(db)) as connection:
        ours = {"ingero", "ingero itself"}
        ours |= {
            comm for (comm,) in connection.execute("SELECT comm FROM process WHERE cmdline LIKE ?", (OURS,))
        }
        for number, name in connection.execute("SELECT id, text FROM string").fetchall():
            if name not in ours and not KERNEL.match(name):
                connection.execute("UPDATE string SET text = ? WHERE id = ?", (f"program {number}", number))
                connection.execute("UPDATE process SET comm = ? WHERE comm = ?", (f"program {number}", name))
        connection.execute("UPDATE process SET cmdline = NULL WHERE cmdline NOT LIKE ?", (OURS,))
        connection.execute(
            "UPDATE container SET cgroup_path = '/group-' || cgroup_id WHERE cgroup_path != '/'"
        )
        connection.commit()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "live.db"
        record(db)
        forget_others(db)
        rename_node(db, "demo-live")
        KEPT.write_bytes(packed(db, str(ROOT)))
    print(f"{KEPT.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
