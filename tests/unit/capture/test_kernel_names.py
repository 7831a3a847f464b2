"""A launch has the name its handle had at that moment, in that process; nothing is made up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ingero.capture import kernel_names
from ingero.capture.kernel_names import KernelBook
from ingero.model import layout
from ingero.model.layout import CallFlag, RecordType
from ingero.model.operations import KernelName, Operation, short_name
from ingero.model.window import Records
from tests.builders import NUMBERS, OPERATIONS, call, records

FROM_RUNTIME, DIRECT = int(CallFlag.CALL_FROM_RUNTIME), int(CallFlag.CALL_DIRECT)
GET_KERNEL, OF_SYMBOL = 90, 91
MORE = (
    Operation(GET_KERNEL, "cuLibraryGetKernel", "driver", "module"),
    Operation(OF_SYMBOL, "cudaGetFuncBySymbol", "runtime", "module"),
)
SYMBOLS = {(100, 0xF00): "scale(float*)", (200, 0xF00): "add(int)"}


class Process:
    """Symbols and places as the resolver tells them; remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.demangled: list[int] = []

    def functions_at(self, pid: int, addresses: Sequence[int]) -> list[KernelName | None]:
        self.asked += [(pid, address) for address in addresses]
        known = [SYMBOLS.get((pid, address)) for address in addresses]
        places = self.places_at(pid, addresses)
        return [KernelName(name) if name else place for name, place in zip(known, places, strict=True)]

    def places_at(self, pid: int, addresses: Sequence[int]) -> list[KernelName | None]:
        return [KernelName(f"job+{address:#x}", known=False) if address else None for address in addresses]

    def demangle(self, pid: int, names: Sequence[bytes]) -> list[str]:
        self.demangled.append(len(names))
        return [name.decode().replace("_Z3mulv", "mul()") for name in names]


@pytest.fixture
def process() -> Process:
    return Process()


@pytest.fixture
def book(process: Process) -> KernelBook:
    operations = [*OPERATIONS, *MORE]
    return KernelBook(operations, process.functions_at, process.places_at, process.demangle)


def given(handle: int, text: bytes = b"", *, at_ns: int = 0, pid: int = 100, **more: int) -> Records:
    record = np.zeros(1, layout.NAME)
    record["h"]["type"], record["h"]["pid"], record["h"]["start_ns"] = RecordType.REC_NAME, pid, at_ns
    record["handle"], record["text"], record["length"] = handle, text, len(text)
    record["op"], record["from"] = more.get("op", GET_KERNEL), more.get("origin", 0)
    return record


def launch(kernel: int, at_ns: int = 10, **more: int) -> Records:
    paired, caller_ip = more.pop("host_function", 0), more.pop("caller_ip", 0)
    record = call(str(more.pop("op", "cuLaunchKernel")), at_ns=at_ns, args=(kernel,), **more)  # type: ignore[arg-type]
    record["host_function"], record["caller_ip"] = paired, caller_ip
    return record


def texts(book: KernelBook, *calls: Records) -> list[str | None]:
    numbers = book.name_calls(records(*calls))
    names = book.names(numbers)
    return [names[number].text if number else None for number in numbers.tolist()]


def test_calls_that_launch_nothing_have_no_kernel(book: KernelBook) -> None:
    assert texts(book, call("cudaMemcpy"), call("ncclAllReduce")) == [None, None]
    assert book.name_calls(np.zeros(0, layout.CALL)).tolist() == []


def test_a_name_holds_from_when_it_was_given(book: KernelBook) -> None:
    book.hear(records(given(1, b"_Z3mulv", at_ns=20), given(1, b"second", at_ns=40)))
    calls = [launch(1, at_ns, flags=FROM_RUNTIME) for at_ns in (10, 20, 39, 40, 99)]
    assert texts(book, *calls) == [None, "mul()", "mul()", "second", "second"]
    assert texts(book, launch(1, 100)) == ["second"]


def test_names_are_heard_in_order_of_time(book: KernelBook) -> None:
    book.hear(records(given(1, b"late", at_ns=40), given(1, b"early", at_ns=20)))
    assert texts(book, launch(1, 30), launch(1, 50)) == ["early", "late"]


def test_processes_are_kept_apart_and_forgotten(book: KernelBook) -> None:
    book.hear(records(given(1, b"ours"), given(1, b"theirs", pid=200)))
    assert texts(book, launch(1), launch(1, pid=200)) == ["ours", "theirs"]
    book.forget({100})
    assert texts(book, launch(1), launch(1, pid=200)) == [None, "theirs"]


def test_a_process_that_became_another_program_keeps_what_was_given_since(book: KernelBook) -> None:
    book.hear(records(given(1, b"old", at_ns=5), given(2, b"old", at_ns=5), given(2, b"new", at_ns=30)))
    book.forget({100}, before_ns=20)
    assert texts(book, launch(1, 40), launch(2, 40)) == [None, "new"]


def test_a_name_that_could_not_be_read_ends_the_old_one(book: KernelBook) -> None:
    book.hear(records(given(1, b"old", at_ns=5), given(1, b"", at_ns=20)))
    assert texts(book, launch(1, 10), launch(1, 30)) == ["old", None]


def test_a_handle_made_from_another_has_its_name_of_that_moment(book: KernelBook) -> None:
    book.hear(records(given(1, b"first", at_ns=1), given(2, at_ns=3, origin=1), given(1, b"second", at_ns=5)))
    assert texts(book, launch(1, 9), launch(2, 9)) == ["second", "first"]
    book.hear(given(2, at_ns=20, origin=2))  # a kernel that is its own function
    assert texts(book, launch(2, 30)) == ["first"]


def test_a_handle_made_from_a_host_function_has_its_symbol(book: KernelBook) -> None:
    book.hear(given(7, origin=0xF00, op=OF_SYMBOL))
    assert texts(book, launch(7)) == ["scale(float*)"]


def test_a_pair_names_the_handle_for_all_its_launches(book: KernelBook, process: Process) -> None:
    calls = [launch(1, 5, flags=FROM_RUNTIME), launch(1, 9, flags=FROM_RUNTIME, host_function=0xF00)]
    assert texts(book, *calls) == ["scale(float*)"] * 2
    assert book.taught == {100: 1}
    assert [(each.pid, each.handle, each.name.text) for each in book.take_learnt()] == [
        (100, 1, "scale(float*)")
    ]
    assert (book.wanting, book.take_learnt()) == (set(), [])
    texts(book, launch(1, host_function=0xF00))
    assert process.asked == [(100, 0xF00)]  # once


def test_what_was_heard_is_not_overruled_by_a_pair(book: KernelBook) -> None:
    book.hear(given(1, b"heard"))
    assert texts(book, launch(1, host_function=0xF00)) == ["heard"]
    assert not book.taught


def test_a_pair_with_a_handle_in_place_of_a_host_function(book: KernelBook) -> None:
    book.hear(given(0xB0, b"known"))
    assert texts(book, launch(1, host_function=0xB0)) == ["known"]


def test_a_host_function_without_symbol_is_called_by_its_place(book: KernelBook) -> None:
    (number,) = book.name_calls(launch(1, host_function=0xAB0)).tolist()
    assert book.names(np.array([number])) == {number: KernelName("job+0xab0", known=False)}


def test_launches_seen_at_the_runtime_tell_the_host_function_themselves(book: KernelBook) -> None:
    calls = [launch(0xF00, op="cudaLaunchKernel"), launch(0xF00, op="cudaLaunchKernel", pid=200)]  # type: ignore[arg-type]
    assert texts(book, *calls) == ["scale(float*)", "add(int)"]
    assert not book.wanting


def test_only_runtimes_can_teach_and_only_others_have_a_telling_caller(book: KernelBook) -> None:
    runtime = launch(1, flags=FROM_RUNTIME, caller_ip=0x10)
    direct = launch(2, pid=200, flags=DIRECT, caller_ip=0x20)
    unknown = launch(3, pid=300, caller_ip=0x30)
    assert texts(book, runtime, direct, unknown) == [None, "job+0x20", "job+0x30"]
    assert book.wanting == {100, 300}
    book.hear(given(2, b"at last", pid=200, at_ns=50))
    assert texts(book, launch(2, 60, pid=200, flags=DIRECT)) == ["at last"]


def test_names_are_tamed_cut_and_demangled_together(book: KernelBook, process: Process) -> None:
    endless = b"k" * layout.NAME["text"].itemsize
    book.hear(records(given(1, b"\x1b[1mbold\x07"), given(2, endless), given(3, b"__device_stub__Z3mulv")))
    first, second, third = texts(book, launch(1), launch(2), launch(3))
    assert (first, third) == ("bold", "mul()")
    assert second is not None
    assert len(second) == kernel_names.MAX_CHARACTERS
    assert second.endswith("k…")
    assert process.demangled == [3]
    book.hear(given(4, b"__device_stub__Z3mulv"))
    assert process.demangled == [3, 0]


def test_names_of_each_process_are_demangled_apart(book: KernelBook, process: Process) -> None:
    """So that one whose names take all the time there is spoils nobody else's."""
    book.hear(records(given(1, b"_Z3mulv"), given(2, b"other", pid=200), given(3, b"third")))
    assert texts(book, launch(1), launch(2, pid=200), launch(3)) == ["mul()", "other", "third"]
    assert process.demangled == [2, 1]


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch, process: Process) -> None:
    monkeypatch.setattr(kernel_names, "MAX_HANDLES", 8)
    monkeypatch.setattr(kernel_names, "MAX_NAMES", 4)
    book = KernelBook([*OPERATIONS, *MORE], process.functions_at, process.places_at, process.demangle)
    for number in range(100):
        book.hear(given(number, f"kernel {number % 50}".encode(), at_ns=number))
        texts(book, launch(1000 + number, flags=DIRECT, caller_ip=number))
    assert len(book._given) == 8
    assert len(book._places) <= 8
    assert texts(book, launch(99, 200)) == [None]  # no room for its name: none, and not another's
    for number in range(50):
        book.hear(given(1, f"again {number % 2}".encode(), at_ns=number))
    assert len(book._given[100, 1]) <= kernel_names.MAX_GIVEN


def test_operations_of_another_version_are_no_launches(book: KernelBook) -> None:
    strange = launch(1)
    strange["op"] = 65535
    assert texts(book, strange) == [None]
    assert NUMBERS["cuLaunchKernel"] < 65535


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("vectorAdd(float const*, float const*, float*, int)", "vectorAdd"),
        (
            "void at::native::elementwise<4, at::Fill<float>, std::array<char*, 1ul> >(int, at::Fill<float>)",
            "at::native::elementwise",
        ),
        ("void (anonymous namespace)::softmax<float, 9>(float*)", "(anonymous namespace)::softmax"),
        ("std::enable_if<(0 < 3), void>::type copy<int>(int*)", "copy"),
        ("void run<copy(int)::{lambda(float)#1}>(int, void (*)(int))", "run"),
        ("ns::Less::operator<(ns::Less const&)", "ns::Less::operator<"),
        ("ns::Op::operator()(int) const", "ns::Op::operator()"),
        ("ns::Op::operator bool() const", "ns::Op::operator bool"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("((((", "(((("),
        (">>>", ">>>"),
        ("", ""),
    ],
)
def test_short_names_leave_out_result_template_arguments_and_parameters(name: str, short: str) -> None:
    assert short_name(name) == short
