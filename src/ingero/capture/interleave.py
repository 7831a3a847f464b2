"""Native and Python frames of one stack put in order, innermost first.

The C function that evaluates Python stands in the native stack once for every time the
interpreter was entered; the Python frames it was running are a group that ends with a
frame marked as entered. Each evaluator is replaced by its group, the interpreter's other
functions are left out, and frames of other modules stay where they are.

Without frame pointers the native chain ends early. Then the rest of the Python frames
follows behind a note that names the module where it ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ingero.model.stack import Frame, NativeFrame, PythonFrame, note

# The evaluator, split by the compiler or not; from 3.14 it may be a function for each instruction.
_EVALUATOR = re.compile(r"_PyEval_EvalFrameDefault(\.\w+)*|_TAIL_CALL_\w+(\.\w+)*")
# What calls it; counts where the evaluator itself became part of it.
_CALLER = re.compile(r"(_PyEval_EvalFrame|PyEval_EvalFrameEx|_PyEval_Vector)(\.\w+)*")
# A native stack that has one of these outermost, or next to it, is whole.
_FIRST = re.compile(
    r"main|_start|__libc_start_main|__libc_start_call_main|start_thread|clone3?|__clone3?|thread_start"
)


def interleave(native: Sequence[NativeFrame], python: Sequence[PythonFrame]) -> list[Frame]:
    if not any(each.frame.kind == "python" for each in python):
        return [*_alone(native), *(each.frame for each in python)]
    groups = list(_groups(python))
    evaluators = _evaluators(native)
    interpreters = {native[at].module for at in evaluators}
    found: list[Frame] = []
    for at, frame in enumerate(native):
        if at in evaluators:
            found += groups.pop(0) if groups else ()
        elif frame.module not in interpreters:
            found.append(_shown(frame))
    if groups:
        found.append(_broken(native))
    return found + [frame for group in groups for frame in group]


def _evaluators(native: Sequence[NativeFrame]) -> set[int]:
    for pattern in (_EVALUATOR, _CALLER):
        found = {at for at, frame in enumerate(native) if pattern.fullmatch(frame.function)}
        if found:
            return found
    return set()


def _groups(python: Sequence[PythonFrame]) -> Iterator[list[Frame]]:
    """What each entry into the interpreter ran. Behind frames that are cut out nothing can be matched
    with native frames any more: all of it is one group."""
    group: list[Frame] = []
    cut = False
    for frame, entry in python:
        group.append(frame)
        cut = cut or frame.kind == "note"
        if entry and not cut:
            yield group
            group = []
    if group:
        yield group


def _alone(native: Sequence[NativeFrame]) -> list[Frame]:
    whole = any(_FIRST.fullmatch(frame.function) for frame in native[-2:])
    return [_shown(frame) for frame in native] + ([] if whole or not native else [_broken(native)])


def _broken(native: Sequence[NativeFrame]) -> Frame:
    where = f": {native[-1].module.rpartition('/')[2]}" if native else ""
    return note(f"native frames not readable{where}")


def _shown(frame: NativeFrame) -> Frame:
    return Frame("native", frame.function, module=frame.module)
