"""Every reader of what others wrote, as a table: what it is called, what it is given, what does it.

Another reader is another row. A corpus is a folder of corpus/, or made from what is
built and running here; the docstring of a row's function says what it reads.
"""

from __future__ import annotations

from functools import partial

from benchmarks.fuzz import cards, databases, files, memory, records, servers, texts
from benchmarks.fuzz.target import Target, kept
from ingero.discover import kubelet

ELF_WORDS = (
    b"\x7fELF\x02\x01\x01",
    b"_PyRuntime",
    b"cudaLaunchKernel\0",
    b"ncclCommCount\0",
    b"GNU\0",
    bytes(64),
)
NAME_WORDS = (b"_ZN", b"_Z", b"_R", b"St", b"I", b"E", b"\xff", b"\n")
PROC_WORDS = (b" (deleted)", b"\n", b"\\040", b"/docker-", b".scope", b"..", b"0::/", b"\\x1b", b"\x1b")
LABEL_WORDS = (b"ingero1 ", b"=", b"\n", b"-1", b"step=", b"\x1b[2J")
POD_WORDS = (b"null", b"{", b"}", b"[", b'"', b"\\u001b", b"1e999", b'"metadata"', b"\xff", b"-1", b"[" * 200)
RUNTIME_WORDS = (
    b"\x0a",
    b"\x12",
    b"\x10",
    b"\xff" * 9 + b"\x01",
    b"\xff\xff\xff\xff\x07",
    b"\x1b[2J",
    b"sandbox",
)
YAML_WORDS = (
    b"agent:\n", b"  max_db: ", b"fleet:\n  nodes: [", b"- ", b"&a ", b"*a", b"!!python/object ", b"<<: *a\n",
    b"---\n", b"{", b"]", b"'", b'"', b"%", b"0x", b"~", b"1_000", b".inf", b"!!binary ",
)  # fmt: skip
HTTP_WORDS = (
    b"?since=", b"&pid=", b"&limit=", b"%00", b"%ff", b"..", b"&node=", b"&width=", b"0", b"-1", b"9" * 20,
    b"NaN", b"&since=1h", b"&from=2026-01-01", b"&to=", b"/api/v1/", b"\r\n", b"explain", b"&id=n1:3",
    b"SELECT ", b"UNION ", b"FROM events", b"{", b'"', b"\\u0000", b"[[[[",
)  # fmt: skip

ALL = (
    Target("elf", files.stub_libraries, files.read_elf, ELF_WORDS),
    Target("code", files.own_code, files.read_code),
    Target(
        "names", kept("names"), files.read_names, (b"_ZN", b"_Z", b"_R", b"St", b"I", b"E", b"\xff", b"\n")
    ),
    Target("lines", files.line_tables, files.read_lines),
    Target(
        "proc",
        kept("proc"),
        files.read_proc,
        (b" (deleted)", b"\n", b"\\040", b"/docker-", b".scope", b"..", b"0::/"),
    ),
    Target("memory", memory.memories, memory.read_memory, mutate=memory.mutated_memory),
    Target("records", records.rings, records.read_records),
    Target("nvml", cards.answers, cards.read_cards, documented=cards.DOCUMENTED),
    Target(
        "labels", kept("labels"), texts.read_labels, (b"ingero1 ", b"=", b"\n", b"-1", b"step=", b"\x1b[2J")
    ),
    Target("config", kept("config"), texts.read_config, YAML_WORDS),
    Target("words", kept("words"), texts.read_words),
    Target("kubelet", kept("kubelet"), texts.read_pods, POD_WORDS, documented=(kubelet.KubeletError,)),
    Target("cri", texts.runtime_answers, texts.read_runtime, RUNTIME_WORDS),
    Target("pages", databases.pages, databases.read_pages),
    Target("values", databases.statements, databases.read_values, mutate=databases.mutated_values),
    Target("http", kept("http"), partial(servers.asked, servers.dashboard), HTTP_WORDS),
    Target("mcp", kept("mcp"), partial(servers.asked, servers.mcp), HTTP_WORDS),
    Target("metrics", kept("metrics"), partial(servers.asked, servers.metrics), HTTP_WORDS),
)
