"""One kept recording: a compressed database and, beside it, what was done to the job in it."""

from __future__ import annotations

import contextlib
import json
import lzma
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "tests" / "corpus"
WHERE = "/repo"  # stands for the folder the programs were in


@dataclass
class Truth:
    """`expected`: one of these must come first; none: healthy. `must`: all of these must be told.
    `instead`: answers that are as good. `apart`: recorded last, and not looked at while working on
    the diagnosis."""

    name: str
    expected: list[str] = field(default_factory=list)
    must: list[str] = field(default_factory=list)
    instead: list[str] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)  # the job's
    culprits: list[list[Any]] = field(default_factory=list)  # pid and name
    lines: list[list[Any]] = field(default_factory=list)  # file and number; none: no line is to blame
    usual_ms: float | None = None  # a step without the trouble, by the job's own clock
    now_ms: float | None = None
    apart: bool = False
    what: str = ""  # for people

    @property
    def healthy(self) -> bool:
        return not self.expected


def truths(group: str | None = None) -> list[tuple[Path, Truth]]:
    """All that are kept, by folder (card, stub)."""
    paths = sorted(FOLDER.glob(f"{group or '*'}/*.json"))
    return [(path, Truth(**json.loads(path.read_text()))) for path in paths]


@contextmanager
def database(path: Path) -> Iterator[Path]:
    """The recording beside a truth, unpacked."""
    with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
        unpacked = Path(folder) / f"{path.stem}.db"
        unpacked.write_bytes(lzma.decompress(path.with_suffix(".db.xz").read_bytes()))
        yield unpacked


def keep(db: Path, truth: Truth, group: str, programs: str) -> int:
    """How many bytes that takes. `programs`: where the programs were, which nobody needs to know."""
    target = FOLDER / group / truth.name
    target.parent.mkdir(parents=True, exist_ok=True)
    content = packed(db, programs)
    target.with_suffix(".db.xz").write_bytes(content)
    target.with_suffix(".json").write_text(json.dumps(asdict(truth), indent=1) + "\n")
    return len(content)


def packed(db: Path, programs: str) -> bytes:
    """A recording as `database` unpacks it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        with contextlib.closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as source:
            source.execute("VACUUM INTO ?", (str(copy),))
        _forget(copy, programs)
        return lzma.compress(copy.read_bytes(), preset=9 | lzma.PRESET_EXTREME)


def _forget(db: Path, programs: str) -> None:
    """Paths of the machine, and findings of the version that recorded."""
    with contextlib.closing(sqlite3.connect(db)) as connection:
        for table, column in (("frame_text", "text"), ("process", "cmdline"), ("string", "text")):
            connection.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (programs, WHERE))
        connection.execute("UPDATE recording SET command = replace(command, ?, ?)", (programs, WHERE))
        connection.execute("DELETE FROM finding")
        connection.commit()
        connection.execute("VACUUM")
