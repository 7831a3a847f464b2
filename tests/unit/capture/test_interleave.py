"""Native and Python frames in one order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingero.capture.stacks import interleave
from ingero.model.stack import Frame, NativeFrame, PythonFrame, note

PYTHON = "/usr/lib/libpython3.12.so.1.0"
TORCH = "/venv/torch/lib/libtorch_cpu.so"
LIBC = "/lib/libc.so.6"
EVALUATOR = NativeFrame("_PyEval_EvalFrameDefault", PYTHON, 1)


def native(*names: str, module: str = TORCH) -> list[NativeFrame]:
    return [NativeFrame(name, module, 0) for name in names]


def inside(*names: str) -> list[NativeFrame]:
    """The interpreter's own functions."""
    return native(*names, module=PYTHON)


def python(*names: str) -> list[PythonFrame]:
    """A name with ! is one the interpreter was entered for."""
    frames = [Frame("python", name.rstrip("!"), "train.py", 1) for name in names]
    return [PythonFrame(frame, name.endswith("!")) for frame, name in zip(frames, names, strict=True)]


def names(frames: list[Frame]) -> list[str]:
    return [frame.function for frame in frames]


def test_each_evaluator_is_replaced_by_the_frames_it_ran() -> None:
    whole = [
        *native("at::add", "THPVariable_add"),
        *inside("cfunction_call"),
        EVALUATOR,
        *inside("_PyFunction_Vectorcall", "_PyObject_Call"),
        *native("pybind11::call"),
        EVALUATOR,
        *inside("PyEval_EvalCode", "Py_RunMain"),
        *native("__libc_start_main", module=LIBC),
    ]
    shown = interleave(whole, python("forward", "step!", "loop", "main!"))
    assert names(shown) == [
        "at::add",
        "THPVariable_add",
        "forward",
        "step",
        "pybind11::call",
        "loop",
        "main",
        "__libc_start_main",
    ]
    assert [frame.kind for frame in shown].count("python") == 4


def test_a_chain_that_ends_before_the_interpreter_is_said_to_and_all_python_follows() -> None:
    shown = interleave(native("at::add", "at::_ops::add"), python("forward", "step!", "main!"))
    assert names(shown) == [
        "at::add",
        "at::_ops::add",
        "[native frames not readable: libtorch_cpu.so]",
        "forward",
        "step",
        "main",
    ]
    assert shown[2] == note("native frames not readable: libtorch_cpu.so")


def test_a_chain_that_ends_between_two_groups_keeps_the_first_in_its_place() -> None:
    whole = [*native("launch"), EVALUATOR, *native("middle")]
    assert names(interleave(whole, python("inner!", "outer!"))) == [
        "launch",
        "inner",
        "middle",
        "[native frames not readable: libtorch_cpu.so]",
        "outer",
    ]


def test_without_python_the_native_frames_stand_alone_with_the_interpreters() -> None:
    whole = [*native("work"), *inside("thread_run"), *native("start_thread", module=LIBC)]
    assert names(interleave(whole, [])) == ["work", "thread_run", "start_thread"]


def test_a_native_stack_that_does_not_reach_its_beginning_says_so() -> None:
    assert names(interleave(native("work"), [])) == ["work", "[native frames not readable: libtorch_cpu.so]"]
    libc = native("libc.so.6+0x2724a", module=LIBC)  # what calls main has no name where libc is stripped
    assert names(interleave([*native("work", "main"), *libc], [])) == ["work", "main", "libc.so.6+0x2724a"]


def test_without_native_frames_the_python_ones_are_shown() -> None:
    assert names(interleave([], python("f", "main!"))) == ["[native frames not readable]", "f", "main"]
    assert interleave([], []) == []


def test_an_evaluator_more_than_there_are_groups_shows_nothing() -> None:
    assert names(interleave([EVALUATOR, EVALUATOR, *native("x")], python("f!"))) == ["f", "x"]


def test_parts_the_compiler_made_of_the_evaluator_count_and_namesakes_do_not() -> None:
    for name in ("_PyEval_EvalFrameDefault.cold", "_PyEval_EvalFrameDefault.lto_priv.0", "_TAIL_CALL_CALL"):
        assert names(interleave(inside(name), python("f!"))) == ["f"]
    shown = names(interleave(native("my_PyEval_EvalFrameDefault"), python("f!")))
    assert shown[0] == "my_PyEval_EvalFrameDefault"


def test_its_caller_counts_only_where_the_evaluator_itself_is_not_seen() -> None:
    both = [EVALUATOR, *inside("_PyEval_Vector"), *native("x"), EVALUATOR, *inside("_PyEval_Vector")]
    assert names(interleave(both, python("f!", "g!"))) == ["f", "x", "g"]
    assert names(interleave(inside("_PyEval_Vector"), python("f!"))) == ["f"]


def test_behind_frames_cut_out_nothing_is_matched() -> None:
    cut = [*python("a!", "b"), PythonFrame(note("5 frames cut"), False), *python("y!", "z!")]
    whole = [EVALUATOR, *native("p"), EVALUATOR, *native("q"), EVALUATOR]
    assert names(interleave(whole, cut)) == ["a", "p", "b", "[5 frames cut]", "y", "z", "q"]


def test_a_note_alone_leaves_the_native_frames_as_they_are() -> None:
    unread = [PythonFrame(note("Python frames not readable"), False)]
    whole = [EVALUATOR, *inside("main")]
    assert names(interleave(whole, unread)) == [EVALUATOR.function, "main", "[Python frames not readable]"]


frames = st.builds(
    NativeFrame,
    st.sampled_from(["_PyEval_EvalFrameDefault", "_PyEval_Vector", "work", "main", "", "libx.so+0x1"]),
    st.sampled_from([PYTHON, TORCH, LIBC, "[vdso]", ""]),
    st.integers(0, 100),
)
pythons = st.builds(
    PythonFrame,
    st.builds(
        Frame, st.sampled_from(["python", "note"]), st.text(max_size=3), st.just("f.py"), st.integers()
    ),
    st.booleans(),
)


@given(st.lists(frames, max_size=64), st.lists(pythons, max_size=128))
def test_no_python_frame_is_lost_doubled_or_moved(
    native_frames: list[NativeFrame], python_frames: list[PythonFrame]
) -> None:
    shown = interleave(native_frames, python_frames)
    ours = {id(each.frame) for each in python_frames}
    assert [id(frame) for frame in shown if id(frame) in ours] == [id(each.frame) for each in python_frames]


@given(st.lists(frames, max_size=64), st.lists(pythons, max_size=128))
def test_native_frames_keep_their_order_and_only_the_interpreters_are_left_out(
    native_frames: list[NativeFrame], python_frames: list[PythonFrame]
) -> None:
    shown = [
        (frame.function, frame.module)
        for frame in interleave(native_frames, python_frames)
        if frame.kind == "native"
    ]
    rest = iter((frame.function, frame.module) for frame in native_frames)
    assert all(each in rest for each in shown)
    evaluators = {frame.module for frame in native_frames if frame.function.startswith("_PyEval")}
    kept = [(f.function, f.module) for f in native_frames if f.module not in evaluators]
    assert [each for each in shown if each[1] not in evaluators] == kept
