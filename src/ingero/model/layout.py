"""Layouts and numbers shared with probes/wire.h. Written by `make layout`; do not edit."""

from __future__ import annotations

from enum import IntEnum, IntFlag

import numpy as np


class Bucket(IntEnum):
    CUDA_CPU = 0
    HOST_CPU = 1
    RUNQUEUE = 2
    GPU_WAIT = 3
    DISK_WAIT = 4
    MEMORY_WAIT = 5
    LOCK_WAIT = 6
    PEER_WAIT = 7
    NET_WAIT = 8
    SLEEP = 9
    UNEXPLAINED = 10
    BUCKETS = 11


class RecordType(IntEnum):
    REC_CALL = 1
    REC_WAIT = 2
    REC_PROCESS = 3
    REC_THREAD = 4
    REC_BLOCK = 5
    REC_TCP = 6
    REC_OOM = 7
    REC_XID = 8
    REC_STACK = 9
    REC_CODE = 10
    REC_CODE_LONG = 11
    REC_WAIT_STACK = 12
    REC_NAME = 13
    REC_STARTED = 14


class Loss(IntEnum):
    LOSS_RING_CALL = 0
    LOSS_RING_WAIT = 1
    LOSS_RING_PROCESS = 2
    LOSS_RING_THREAD = 3
    LOSS_RING_OTHER = 4
    LOSS_HISTOGRAM_FULL = 5
    LOSS_THREAD_STATE = 6
    LOSS_CALL_DEPTH = 7
    LOSS_CALL_UNWOUND = 8
    LOSS_RETURN_UNMATCHED = 9
    LOSS_PROCESS_FULL = 10
    LOSS_CULPRIT_FULL = 11
    LOSS_WAKER_FULL = 12
    LOSS_BLOCK_FULL = 13
    LOSS_USER_READ = 14
    LOSS_COMM_FULL = 15
    LOSS_RING_STACK = 16
    LOSS_SAMPLE_FULL = 17
    LOSS_STACK_UNREADABLE = 18
    LOSS_STACK_BUSY = 19
    LOSS_STACK_CORRUPT = 20
    LOSS_THREAD_SLOT = 21
    LOSSES = 22


class HeaderFlag(IntFlag):
    H_FEEDER = 1
    H_BYSTANDER = 2


class Why(IntFlag):
    WHY_ALL = 1
    WHY_RARE = 2
    WHY_SLOW = 4
    WHY_ERROR = 8
    WHY_SAMPLE = 16
    WHY_UNCOUNTED = 32
    WHY_NAME = 64


class CallFlag(IntFlag):
    CALL_NESTED = 1
    CALL_FROM_RUNTIME = 2
    CALL_DIRECT = 4
    CALL_NO_BYTES = 8
    CALL_NO_OUT = 16
    CALL_NO_STREAM = 32
    CALL_COMM_KNOWN = 64
    CALL_COMM_JOINED = 128


class WakerKind(IntEnum):
    WAKER_NONE = 0
    WAKER_TASK = 1
    WAKER_IRQ_TIMER = 2
    WAKER_IRQ_BLOCK = 3
    WAKER_IRQ_NET = 4
    WAKER_IRQ_OTHER = 5


class GilMark(IntEnum):
    GIL_UNKNOWN = 0
    GIL_NO = 1
    GIL_YES = 2


class ProcessEvent(IntEnum):
    PROCESS_FORK = 1
    PROCESS_EXEC = 2
    PROCESS_EXIT = 3
    PROCESS_SEEN = 4


class OpFlag(IntFlag):
    OP_SYNC = 1
    OP_RARE = 2
    OP_STATUS = 4
    OP_SET_DEVICE = 8
    OP_SET_CONTEXT = 16
    OP_NEW_CONTEXT = 32
    OP_NEW_COMM = 64
    OP_COLLECTIVE = 128
    OP_QUIET = 256
    OP_NOT_READY_OK = 512
    OP_BY_VALUE_ID = 1024
    OP_TYPED_COUNT = 2048
    OP_OUT32 = 4096
    OP_FREE_COMM = 8192
    OP_CALLER = 16384
    OP_COMM_ARRAY = 32768
    OP_STACK_ARGS = 131072
    OP_IN_PROGRESS_OK = 524288
    OP_INNER = 262144
    OP_WORK = 1048576
    OP_DRAIN = 2097152
    OP_MAY_WAIT = 4194304
    OP_RECORD_EVENT = 8388608
    OP_EVENT_SYNC = 16777216
    OP_SPLIT_COMM = 65536
    OP_NAMES = 33554432
    OP_LAUNCH = 67108864
    OP_CLOSED = 134217728
    OP_CYCLED = 268435456
    OP_WAIT = 536870912


class WaitClass(IntEnum):
    WAIT_UNKNOWN = 0
    WAIT_FUTEX = 1
    WAIT_POLL = 2
    WAIT_SLEEP = 3
    WAIT_FD = 4
    WAIT_FILE = 5
    WAIT_WRITEBACK = 6
    WAIT_CHILD = 7
    WAIT_PEER = 8


class ProcFlag(IntFlag):
    PROC_TARGET = 1
    PROC_RANGES = 2


class CommState(IntEnum):
    COMMS_NOT_TOLD = 0
    COMMS_READABLE = 1
    COMMS_UNREADABLE = 2


class PythonState(IntEnum):
    PYTHON_NONE = 0
    PYTHON_READ = 1
    PYTHON_NO_THREAD = 2
    PYTHON_UNREADABLE = 3
    PYTHON_CORRUPT = 4
    PYTHON_NOT_YET = 5


class SampleFlag(IntFlag):
    SAMPLE_COLLECTING = 1
    SAMPLE_GIL = 2
    SAMPLE_KERNEL = 4


class PythonFlag(IntFlag):
    PYTHON_EACH_ENTERS = 1
    PYTHON_CFRAME = 2
    PYTHON_IS_ENTRY = 4
    PYTHON_OWNER = 8
    PYTHON_LASTI = 16
    PYTHON_TAGGED = 32
    PYTHON_VERSIONED = 64
    PYTHON_THREAD_CODE = 128
    PYTHON_KEY_BLOCK = 256


class Missing(IntEnum):
    MISSING_NOTHING = 0
    MISSING_LINES = 1
    MISSING_TEXTS = 2


class Meters(IntEnum):
    METER_OTHERS = 0
    METERS = 32


class Cookie(IntEnum):
    COOKIE_VARIANT_SHIFT = 16


class Spare(IntEnum):
    SPARE_NOBODY = 0
    SPARE_FILTERED = 1
    SPARE_EVERYBODY = 2


class Hist(IntEnum):
    HIST_MIN_BITS = 6
    HIST_SUB_BITS = 3
    HIST_SLOTS = 256


class Share(IntEnum):
    SHARES = 8


class Extremes(IntEnum):
    WINDOW_BITS = 30


class Argument(IntEnum):
    NO_ARG = 255


class Capacity(IntEnum):
    THREADS = 8192
    OPS = 512
    SYSCALLS = 512
    RING_BYTES = 16777216
    FRAMES_RING_BYTES = 8388608


class CallerRange(IntEnum):
    RUNTIME_RANGES = 4
    CALLER_RANGES = 8


class FramesKept(IntEnum):
    PYTHON_INNER = 96
    PYTHON_OUTER = 32
    PYTHON_FRAMES = 128
    NATIVE_FRAMES = 64


class PythonAt(IntEnum):
    PYTHON_ENTRY = 2147483648
    PYTHON_BEFORE = 2147483646
    PYTHON_NOWHERE = 2147483645


class Sign(IntEnum):
    PEEK_BYTES = 32


def _dtype(size: int, fields: list[tuple[str, object, int]]) -> np.dtype[np.void]:
    names, formats, offsets = zip(*fields, strict=True)
    return np.dtype(
        {"names": list(names), "formats": list(formats), "offsets": list(offsets), "itemsize": size}
    )


HEADER = _dtype(
    48,
    [
        ("type", "<u2", 0),
        ("flags", "<u2", 2),
        ("cpu", "<u4", 4),
        ("pid", "<u4", 8),
        ("tid", "<u4", 12),
        ("start_ns", "<u8", 16),
        ("cgroup_id", "<u8", 24),
        ("comm", "S16", 32),
    ],
)

CALL = _dtype(
    312,
    [
        ("h", HEADER, 0),
        ("duration_ns", "<u8", 48),
        ("op", "<u2", 56),
        ("flags", "<u2", 58),
        ("why", "<u2", 60),
        ("depth", "<u2", 62),
        ("weight", "<u4", 64),
        ("gpu_id", "<i4", 68),
        ("ret", "<i8", 72),
        ("args", ("<u8", (8,)), 80),
        ("stream", "<u8", 144),
        ("out", "<u8", 152),
        ("bytes", "<u8", 160),
        ("caller_ip", "<u8", 168),
        ("split", ("<u8", (11,)), 176),
        ("stack_id", "<u8", 264),
        ("host_function", "<u8", 272),
        ("kernel", "<u8", 280),
        ("comm_hash", "<u8", 288),
        ("seq", "<u8", 296),
        ("rank", "<i4", 304),
        ("nranks", "<i4", 308),
    ],
)

WAIT = _dtype(
    136,
    [
        ("h", HEADER, 0),
        ("duration_ns", "<u8", 48),
        ("runqueue_ns", "<u8", 56),
        ("bucket", "<u2", 64),
        ("waker_kind", "<u2", 66),
        ("syscall", "<i4", 68),
        ("waker_pid", "<u4", 72),
        ("waker_tid", "<u4", 76),
        ("op", "<u2", 80),
        ("throttled", "<u1", 82),
        ("gil", "<u1", 83),
        ("dev", "<u4", 84),
        ("sector", "<u8", 88),
        ("address", "<u8", 96),
        ("stack_id", "<u8", 104),
        ("holder_tid", "<u4", 112),
        ("pad", "<u4", 116),
        ("waker", "S16", 120),
    ],
)

PROCESS = _dtype(
    72,
    [
        ("h", HEADER, 0),
        ("event", "<u4", 48),
        ("parent_pid", "<u4", 52),
        ("process_start_ns", "<u8", 56),
        ("exit_code", "<i4", 64),
        ("target", "<u4", 68),
    ],
)

STARTED = _dtype(
    2120,
    [
        ("h", HEADER, 0),
        ("process_start_ns", "<u8", 48),
        ("parent_pid", "<u4", 56),
        ("uid", "<u4", 60),
        ("part", "<u4", 64),
        ("length", "<u4", 68),
        ("text", "S2048", 72),
    ],
)

THREAD_TOTALS = _dtype(
    376,
    [
        ("h", HEADER, 0),
        ("now_ns", "<u8", 48),
        ("acc", ("<u8", (11,)), 56),
        ("gap", ("<u8", (11,)), 144),
        ("known", "<u8", 232),
        ("late_ns", "<u8", 240),
        ("spun_ns", "<u8", 248),
        ("reclaiming_ns", "<u8", 256),
        ("open_ns", "<u8", 264),
        ("voluntary_switches", "<u8", 272),
        ("involuntary_switches", "<u8", 280),
        ("major_faults", "<u8", 288),
        ("minor_faults", "<u8", 296),
        ("system_ns", "<u8", 304),
        ("throttled_ns", "<u8", 312),
        ("process_start_ns", "<u8", 320),
        ("call_start_ns", "<u8", 328),
        ("user_ip", "<u8", 336),
        ("user_sp", "<u8", 344),
        ("user_bp", "<u8", 352),
        ("open_bucket", "<u2", 360),
        ("undecided", "<u2", 362),
        ("spanned_bucket", "<u2", 364),
        ("call_op", "<u2", 366),
        ("syscall", "<i4", 368),
        ("before_attach", "<u2", 372),
        ("dead", "<u2", 374),
    ],
)

BLOCK = _dtype(
    96,
    [
        ("h", HEADER, 0),
        ("duration_ns", "<u8", 48),
        ("queued_ns", "<u8", 56),
        ("sector", "<u8", 64),
        ("bytes", "<u4", 72),
        ("dev", "<u4", 76),
        ("error", "<i4", 80),
        ("write", "<u4", 84),
        ("waiter_pid", "<u4", 88),
        ("waiter_tid", "<u4", 92),
    ],
)

TCP = _dtype(
    104,
    [
        ("h", HEADER, 0),
        ("inode", "<u8", 48),
        ("family", "<u2", 56),
        ("state", "<u2", 58),
        ("sport", "<u2", 60),
        ("dport", "<u2", 62),
        ("saddr", ("<u1", (16,)), 64),
        ("daddr", ("<u1", (16,)), 80),
        ("uid", "<u4", 96),
        ("peer_pid", "<u4", 100),
    ],
)

OOM = _dtype(
    64,
    [
        ("h", HEADER, 0),
        ("total_vm_pages", "<u8", 48),
        ("anon_rss_pages", "<u8", 56),
    ],
)

XID = _dtype(
    216,
    [
        ("h", HEADER, 0),
        ("code", "<u8", 48),
        ("device", "S32", 56),
        ("message", "S128", 88),
    ],
)

OP_KEY = _dtype(
    8,
    [
        ("pid", "<u4", 0),
        ("op", "<u2", 4),
        ("caller", "<u1", 6),
        ("share", "<u1", 7),
    ],
)

EXTREME = _dtype(
    24,
    [
        ("window", "<u8", 0),
        ("min_ns", "<u8", 8),
        ("max_ns", "<u8", 16),
    ],
)

OP_STATS = _dtype(
    1296,
    [
        ("count", "<u8", 0),
        ("sum_ns", "<u8", 8),
        ("bytes", "<u8", 16),
        ("errors", "<u8", 24),
        ("recorded", "<u8", 32),
        ("dropped", "<u8", 40),
        ("untimed", "<u8", 48),
        ("split", ("<u8", (11,)), 56),
        ("extreme", (EXTREME, (2,)), 144),
        ("norm_ns", "<u8", 192),
        ("budget_window", "<u8", 200),
        ("budget_used", "<u8", 208),
        ("budget_last", "<u8", 216),
        ("last_sample_ns", "<u8", 224),
        ("sample_window", "<u8", 232),
        ("sample_count", "<u8", 240),
        ("sample_every", "<u8", 248),
        ("sample_at", "<u8", 256),
        ("unsampled", "<u8", 264),
        ("slots", ("<u4", (256,)), 272),
    ],
)

CULPRIT_KEY = _dtype(
    16,
    [
        ("victim_pid", "<u4", 0),
        ("victim_tid", "<u4", 4),
        ("pid", "<u4", 8),
        ("bucket", "<u2", 12),
        ("throttled", "<u2", 14),
    ],
)

WAKER_KEY = _dtype(
    20,
    [
        ("pid", "<u4", 0),
        ("tid", "<u4", 4),
        ("waker_pid", "<u4", 8),
        ("waker_tid", "<u4", 12),
        ("kind", "<u2", 16),
        ("bucket", "<u2", 18),
    ],
)

WHO_VALUE = _dtype(
    32,
    [
        ("ns", "<u8", 0),
        ("count", "<u8", 8),
        ("comm", "S16", 16),
    ],
)

IO_KEY = _dtype(
    12,
    [
        ("pid", "<u4", 0),
        ("write", "<u4", 4),
        ("dev", "<u4", 8),
    ],
)

IO_VALUE = _dtype(
    48,
    [
        ("count", "<u8", 0),
        ("bytes", "<u8", 8),
        ("ns", "<u8", 16),
        ("max_ns", "<u8", 24),
        ("comm", "S16", 32),
    ],
)

OP_INFO = _dtype(
    28,
    [
        ("flags", "<u4", 0),
        ("bytes_arg", "<u1", 4),
        ("bytes_by_arg", "<u1", 5),
        ("dtype_arg", "<u1", 6),
        ("stream_arg", "<u1", 7),
        ("stream_at", "<u1", 8),
        ("out_arg", "<u1", 9),
        ("comm_arg", "<u1", 10),
        ("rank_arg", "<u1", 11),
        ("nranks_arg", "<u1", 12),
        ("device_arg", "<u1", 13),
        ("id_arg", "<u1", 14),
        ("arguments", "<u1", 15),
        ("name_arg", "<u1", 16),
        ("from_arg", "<u1", 17),
        ("kernel_arg", "<u1", 18),
        ("meter", "<u1", 19),
        ("every", "<u4", 20),
        ("variant", "<u4", 24),
    ],
)

RANGE = _dtype(
    16,
    [
        ("start", "<u8", 0),
        ("end", "<u8", 8),
    ],
)

COMM_LAYOUT = _dtype(
    24,
    [
        ("state", "<u4", 0),
        ("pad", "<u4", 4),
        ("hash_at", "<u4", 8),
        ("rank_at", "<u4", 12),
        ("magic", "<u8", 16),
    ],
)

PROC = _dtype(
    176,
    [
        ("flags", "<u4", 0),
        ("ranges", "<u4", 4),
        ("cgroup_id", "<u8", 8),
        ("start_ns", "<u8", 16),
        ("range", (RANGE, (8,)), 24),
        ("comm", COMM_LAYOUT, 152),
    ],
)

SETTINGS = _dtype(
    80,
    [
        ("agent_pid", "<u4", 0),
        ("trace_all", "<u4", 4),
        ("record_all", "<u4", 8),
        ("rare_per_second", "<u4", 12),
        ("generation", "<u4", 16),
        ("learning", "<u4", 20),
        ("sample_every_ns", "<u8", 24),
        ("wait_record_ns", "<u8", 32),
        ("stacks", "<u4", 40),
        ("watch", "<u4", 44),
        ("outermost", "<u4", 48),
        ("walks_per_second", "<u4", 52),
        ("walk_share", "<u4", 56),
        ("blind", "<u4", 60),
        ("watch_ns", "<u8", 64),
        ("spare", "<u4", 72),
        ("pad", "<u4", 76),
    ],
)

PYTHON_FRAME = _dtype(
    16,
    [
        ("code", "<u8", 0),
        ("at", "<u4", 8),
        ("sign", "<u4", 12),
    ],
)

STACK = _dtype(
    2632,
    [
        ("h", HEADER, 0),
        ("id", "<u8", 48),
        ("python_depth", "<u4", 56),
        ("python_state", "<u2", 60),
        ("native_count", "<u2", 62),
        ("python_count", "<u4", 64),
        ("cut", "<u2", 68),
        ("uncopied", "<u2", 70),
        ("python", (PYTHON_FRAME, (128,)), 72),
        ("native", ("<u8", (64,)), 2120),
    ],
)

CODE_TEXT = _dtype(
    8,
    [
        ("bytes", "<u4", 0),
        ("unit", "<u4", 4),
    ],
)

CODE_HEAD = _dtype(
    88,
    [
        ("h", HEADER, 0),
        ("code", "<u8", 48),
        ("sign", "<u4", 56),
        ("first_line", "<i4", 60),
        ("name", CODE_TEXT, 64),
        ("file", CODE_TEXT, 72),
        ("lines_bytes", "<u4", 80),
        ("missing", "<u2", 84),
        ("minor", "<u2", 86),
    ],
)

CODE = _dtype(
    1624,
    [
        ("head", CODE_HEAD, 0),
        ("data", ("<u1", (1536,)), 88),
    ],
)

CODE_LONG = _dtype(
    24664,
    [
        ("head", CODE_HEAD, 0),
        ("data", ("<u1", (24576,)), 88),
    ],
)

WAIT_STACK = _dtype(
    56,
    [
        ("h", HEADER, 0),
        ("stack_id", "<u8", 48),
    ],
)

NAME = _dtype(
    2120,
    [
        ("h", HEADER, 0),
        ("handle", "<u8", 48),
        ("from", "<u8", 56),
        ("op", "<u4", 64),
        ("length", "<u4", 68),
        ("text", "S2048", 72),
    ],
)

SAMPLE_KEY = _dtype(
    24,
    [
        ("stack_id", "<u8", 0),
        ("pid", "<u4", 8),
        ("tid", "<u4", 12),
        ("bucket", "<u2", 16),
        ("op", "<u2", 18),
        ("flags", "<u4", 20),
    ],
)

WALK_COST = _dtype(
    24,
    [
        ("count", "<u8", 0),
        ("ns", "<u8", 8),
        ("max_ns", "<u8", 16),
    ],
)

THREAD_COST = _dtype(
    296,
    [
        ("pid", "<u4", 0),
        ("tid", "<u4", 4),
        ("timed", ("<u4", (32,)), 8),
        ("counted", ("<u4", (32,)), 136),
        ("passed", "<u8", 264),
        ("records", "<u8", 272),
        ("walks", "<u8", 280),
        ("walk_ns", "<u8", 288),
    ],
)

PYTHON_LAYOUT = _dtype(
    144,
    [
        ("flags", "<u4", 0),
        ("thread_state", "<i4", 4),
        ("key_block", "<i4", 8),
        ("state_thread_id", "<u2", 12),
        ("state_native_id", "<u2", 14),
        ("state_frame", "<u2", 16),
        ("cframe_frame", "<u2", 18),
        ("frame_back", "<u2", 20),
        ("frame_code", "<u2", 22),
        ("frame_at", "<u2", 24),
        ("frame_mark", "<u2", 26),
        ("frame_tlbc", "<u2", 28),
        ("owner_c", "<u2", 30),
        ("object_type", "<u2", 32),
        ("code_first_line", "<u2", 34),
        ("code_name", "<u2", 36),
        ("code_file", "<u2", 38),
        ("code_lines", "<u2", 40),
        ("code_bytecode", "<u2", 42),
        ("code_version", "<u2", 44),
        ("code_tlbc", "<u2", 46),
        ("text_length", "<u2", 48),
        ("text_state", "<u2", 50),
        ("text_ascii", "<u2", 52),
        ("text_compact", "<u2", 54),
        ("bytes_length", "<u2", 56),
        ("bytes_data", "<u2", 58),
        ("text_kind_shift", "<u2", 60),
        ("frame_bytes", "<u2", 62),
        ("code_bytes", "<u2", 64),
        ("minor", "<u2", 66),
        ("thread_tid", "<u2", 68),
        ("pad", "<u2", 70),
        ("program", "<u4", 72),
        ("code_type", "<u8", 80),
        ("text_type", "<u8", 88),
        ("bytes_type", "<u8", 96),
        ("collecting", "<u8", 104),
        ("lock", "<u8", 112),
        ("lock_end", "<u8", 120),
        ("lock_holder", "<u8", 128),
        ("lock_held", "<u8", 136),
    ],
)
