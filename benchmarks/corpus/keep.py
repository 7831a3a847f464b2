"""Takes recordings into the corpus.

    python -m benchmarks.corpus.keep card DIR [--apart]   what benchmarks.gpu.corpus.play left there
    python -m benchmarks.corpus.keep stub DIR             what `make bench-truth TRUTH="--keep DIR"` left

The truth goes beside each; names must be new.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import lzma
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.corpus.kept import ROOT, Truth, keep
from benchmarks.truth import held_out
from benchmarks.truth.cases import chosen
from benchmarks.truth.drawn import Case

JOBS = ROOT / "benchmarks" / "truth" / "jobs"


def from_card(folder: Path, apart: bool) -> Iterator[tuple[Path, Truth, str]]:
    for path in sorted(folder.glob("*.json")):
        told = json.loads(path.read_text())
        troubles = ", ".join(f"{name} {amount:g}" for name, amount in told["troubles"])
        when = "from the start" if told["from_start"] else "begins amid the recording"
        truth = Truth(
            told["case"],
            told["expected"],
            told["must"],
            pids=[told["pid"]],
            culprits=[[pid, ""] for pid in told["culprits"]],
            lines=told["lines"],
            usual_ms=told["usual_ms"],
            now_ms=told["now_ms"] if told["usual_ms"] else None,
            apart=apart,
            what="; ".join(filter(None, (told["work"], troubles, ", ".join(told["around"]), when))),
        )
        with tempfile.TemporaryDirectory() as scratch:
            db = Path(scratch) / "trace.db"
            db.write_bytes(lzma.decompress(path.with_suffix(".db.xz").read_bytes()))
            _without_the_drivers_socket(db)
            yield db, truth, "/tmp/b"


def _without_the_drivers_socket(db: Path) -> None:
    """The first recordings took the driver's own socket, which every CUDA process has, for a server's."""
    with contextlib.closing(sqlite3.connect(db)) as connection:
        connection.execute("UPDATE process SET listens = 0 WHERE cmdline LIKE '%/fit.py %'")
        connection.commit()


def marked() -> list[list[object]]:
    """Lines of the stub's jobs that are to blame where one is."""
    return [
        [path.name, number]
        for path in sorted(JOBS.glob("*.py"))
        for number, text in enumerate(path.read_text().splitlines(), start=1)
        if text.endswith("  # here")
    ]


def from_stub(folder: Path) -> Iterator[tuple[Path, Truth, str]]:
    cases = {case.name: case for case in chosen("all", [])}
    apart = {case.name for case in held_out.CASES}
    for path in sorted(folder.iterdir()):
        name, _, _seed = path.name.rpartition("-")
        for kind in ("faulty", "healthy"):
            if name in cases and (path / kind / "played.json").exists():
                truth = stub_truth(cases[name], path, kind, name in apart)
                yield path / kind / "trace.db", truth, str(ROOT)


def stub_truth(case: Case, path: Path, kind: str, apart: bool) -> Truth:
    played = json.loads((path / kind / "played.json").read_text())
    twin = path / "twin" / "played.json"
    usual = json.loads(twin.read_text())["step_ms"] if twin.exists() and case.timed else None
    return Truth(
        path.name,
        list(case.expected),
        list(case.expected),
        sorted(case.instead),
        played["pids"],
        played["culprits"] if case.blames else [],
        marked() if case.lined else [],
        usual,
        played["step_ms"] if usual else None,
        apart,
        played["happened"],
    )


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus.keep")
    parser.add_argument("group", choices=("card", "stub"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--apart", action="store_true", help="recorded last, not to be looked at")
    options = parser.parse_args(words)
    found = from_card(options.folder, options.apart) if options.group == "card" else from_stub(options.folder)
    total = sum(keep(db, truth, options.group, programs) for db, truth, programs in found)
    print(f"{total / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
