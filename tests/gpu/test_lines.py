"""Python lines on the interpreter PyTorch runs on, against the program's own account."""

from __future__ import annotations

from pathlib import Path

from tests.gpu.conftest import PROGRAMS, Traced

FRAMES = """
SELECT s.function, s.file, s.line FROM stacks s
WHERE s.stack_hash = ? AND s.kind = 'python' ORDER BY s.depth
"""


def test_every_stack_is_the_programs_own(tmp_path: Path) -> None:
    trace = Traced(
        tmp_path, "stacks", "--record-all", "--max-overhead", "off", PYTORCH_NO_CUDA_MEMORY_CACHING="1"
    )
    wrong = []
    for each in trace.said["stacks"]:
        rows = trace.sql(
            "SELECT stack_hash FROM cuda_events WHERE bytes = ? AND op = 'cuMemAlloc_v2'", each["bytes"]
        )
        frames = [list(row) for row in trace.sql(FRAMES, rows[0][0])] if len(rows) == 1 else []
        ours = [frame for frame in frames if frame[1] == str(PROGRAMS)]
        expected = [frame for frame in each["stack"] if frame[1] == str(PROGRAMS)]
        if ours != expected:
            wrong.append((each["bytes"], ours, expected))
    assert len(trace.said["stacks"]) == 240
    assert not wrong, (len(wrong), wrong[:3])
