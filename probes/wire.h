/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * Every record, map key, map value and number that crosses between the kernel
 * and Python. `make layout` reads these types out of the compiled object's BTF
 * and writes src/ingero/model/layout.py, so nothing here is kept twice.
 *
 * Instants are CLOCK_MONOTONIC nanoseconds. pid is the process, tid the thread.
 * Fields are ordered so that no structure has hidden padding.
 */
#ifndef INGERO_WIRE_H
#define INGERO_WIRE_H

/* Where a nanosecond of a thread's wall time went. Order is the order of
 * `acc` and `split` below and of the bucket names users see. */
enum bucket {
	CUDA_CPU,
	HOST_CPU,
	RUNQUEUE,
	GPU_WAIT,
	DISK_WAIT,
	MEMORY_WAIT,
	LOCK_WAIT,
	PEER_WAIT,
	NET_WAIT,
	SLEEP,
	UNEXPLAINED,
	BUCKETS,
};

enum record_type {
	REC_CALL = 1,
	REC_WAIT,
	REC_PROCESS,
	REC_THREAD,
	REC_BLOCK,
	REC_TCP,
	REC_OOM,
	REC_XID,
	REC_STACK,		/* from here on in the ring of their own */
	REC_CODE,
	REC_CODE_LONG,
	REC_WAIT_STACK,
	REC_NAME,
	REC_STARTED,
};

/* Why something is missing. One counter each, shown to the user. */
enum loss {
	LOSS_RING_CALL,		/* ring full: detail of a call, still in the histogram */
	LOSS_RING_WAIT,		/* ring full: detail of a wait, still in the accounting */
	LOSS_RING_PROCESS,	/* ring full: fork, exec or exit */
	LOSS_RING_THREAD,	/* ring full: a dead thread's last accounting */
	LOSS_RING_OTHER,	/* ring full: block, tcp, oom, xid */
	LOSS_HISTOGRAM_FULL,	/* no room for a new (process, operation), nor in the ring: call not counted */
	LOSS_THREAD_STATE,	/* no memory for a thread's state: call or thread unseen */
	LOSS_CALL_DEPTH,	/* more nested calls than a thread's stack of them holds */
	LOSS_CALL_UNWOUND,	/* a call left by longjmp, an exception or thread exit */
	LOSS_RETURN_UNMATCHED,	/* a return whose entry was not seen (attached mid-call) */
	LOSS_PROCESS_FULL,	/* no room for a new process */
	LOSS_CULPRIT_FULL,	/* no room: run-queue time without its displacing task */
	LOSS_WAKER_FULL,	/* no room: a wait without its waker */
	LOSS_BLOCK_FULL,	/* no room: block request not joined */
	LOSS_USER_READ,		/* an argument in the caller's memory could not be read */
	LOSS_COMM_FULL,		/* no room: NCCL communicator or CUDA context */
	LOSS_RING_STACK,	/* ring full: a stack, a code object or a name */
	LOSS_SAMPLE_FULL,	/* no room: a sample of the time on a core */
	LOSS_STACK_UNREADABLE,	/* a Python frame or its code was not in memory */
	LOSS_STACK_BUSY,	/* more walks at once on one core than there is room for */
	LOSS_STACK_CORRUPT,	/* a chain of Python frames that cannot be one */
	LOSS_THREAD_SLOT,	/* a dead thread's place was not given back: room for one fewer */
	LOSSES,
};

/* header.flags of every record */
enum header_flag {
	H_FEEDER = 1,		/* the thread has made a traced call before */
	H_BYSTANDER = 2,	/* not a target: shown only as culprit or waker */
};

struct header {
	__u16 type;
	__u16 flags;
	__u32 cpu;
	__u32 pid;
	__u32 tid;
	__u64 start_ns;
	__u64 cgroup_id;
	char comm[16];
};

/* Why a call got a record of its own (call.why). */
enum why {
	WHY_ALL = 1,
	WHY_RARE = 2,
	WHY_SLOW = 4,
	WHY_ERROR = 8,
	WHY_SAMPLE = 16,
	WHY_UNCOUNTED = 32,	/* its counters could not be made yet: the record is the count */
	WHY_NAME = 64,		/* the first launch of its kernel since names are looked for */
};

/* call.flags */
enum call_flag {
	CALL_NESTED = 1,	/* made inside another traced call of the same thread */
	CALL_FROM_RUNTIME = 2,	/* return address lies in a CUDA runtime */
	CALL_DIRECT = 4,	/* return address known to lie elsewhere */
	CALL_NO_BYTES = 8,	/* bytes is not known */
	CALL_NO_OUT = 16,	/* out is not known */
	CALL_NO_STREAM = 32,
	CALL_COMM_KNOWN = 64,	/* comm_hash (0: unknown), rank, nranks are valid */
	CALL_COMM_JOINED = 128,	/* seq counts from when we came, not from the communicator's first */
};

struct call {
	struct header h;
	__u64 duration_ns;
	__u16 op;
	__u16 flags;
	__u16 why;
	__u16 depth;
	__u32 weight;		/* calls this record stands for, itself included */
	__s32 gpu_id;		/* -1: unknown */
	__s64 ret;
	__u64 args[8];		/* as passed; the last two only where the operation has them */
	__u64 stream;
	__u64 out;		/* what the call wrote through its out argument */
	__u64 bytes;
	__u64 caller_ip;
	__u64 split[BUCKETS];	/* how duration_ns divides */
	__u64 stack_id;		/* 0: not walked */
	__u64 host_function;	/* launches: what the runtime was given, 0 if not seen */
	__u64 kernel;		/* launches: number of the kernel's name, 0 if unknown; filled by the agent */
	__u64 comm_hash;	/* NCCL: its own, or that of the 128-byte id */
	__u64 seq;		/* NCCL: number of the collective on its communicator */
	__s32 rank;
	__s32 nranks;
};

/* Who ended a wait (wait.waker_kind, waker_key.kind). */
enum waker_kind {
	WAKER_NONE,		/* not known */
	WAKER_TASK,
	WAKER_IRQ_TIMER,
	WAKER_IRQ_BLOCK,
	WAKER_IRQ_NET,
	WAKER_IRQ_OTHER,
};

/* Whether a wait was for a Python interpreter's lock (wait.gil). */
enum gil_mark {
	GIL_UNKNOWN,
	GIL_NO,
	GIL_YES,
};

/* One finished off-CPU interval of a feeding thread, a millisecond or longer. */
struct wait {
	struct header h;
	__u64 duration_ns;
	__u64 runqueue_ns;	/* of it: runnable, waiting for a core */
	__u16 bucket;
	__u16 waker_kind;
	__s32 syscall;		/* -1: in a fault or not in a system call */
	__u32 waker_pid;
	__u32 waker_tid;
	__u16 op;		/* the traced call it happened in, 0 if none */
	__u8 throttled;		/* the wait for a core was a CPU quota */
	__u8 gil;		/* enum gil_mark; filled by the agent */
	__u32 dev;		/* the block request whose completion ended it, 0 if none */
	__u64 sector;
	__u64 address;		/* futex address, or file descriptor */
	__u64 stack_id;		/* 0: not walked; filled by the agent */
	__u32 holder_tid;	/* of the interpreter's lock when the wait began, 0 unknown */
	__u32 pad;
	char waker[16];
};

#include "wire_processes.h"

/* A thread's accounting so far, open interval included. */
struct thread_totals {
	struct header h;	/* start_ns: since when it is accounted */
	__u64 now_ns;
	__u64 acc[BUCKETS];
	__u64 gap[BUCKETS];	/* of acc: while the GPU had nothing to do that this thread gave it, or had long done it */
	__u64 known;		/* how often it was seen whether the GPU had something to do */
	__u64 late_ns;		/* of acc[RUNQUEUE]: after the GPU had finished, inside a synchronising call */
	__u64 spun_ns;		/* of acc[GPU_WAIT]: on a core, looking whether the GPU is done */
	__u64 reclaiming_ns;	/* of acc[MEMORY_WAIT]: on a core, making room */
	__u64 open_ns;		/* length of the interval still open, already in acc */
	__u64 voluntary_switches;
	__u64 involuntary_switches;
	__u64 major_faults;
	__u64 minor_faults;
	__u64 system_ns;	/* of the time on a core: inside the kernel */
	__u64 throttled_ns;	/* part of runqueue: CPU quota */
	__u64 process_start_ns;
	__u64 call_start_ns;	/* outermost call in flight, of a dead thread the one it died in; 0 if none */
	__u64 user_ip;
	__u64 user_sp;
	__u64 user_bp;
	__u16 open_bucket;
	__u16 undecided;	/* a poll: what it waits for shows when it wakes; not in acc yet */
	__u16 spanned_bucket;	/* what the last such poll turned out to be */
	__u16 call_op;
	__s32 syscall;
	__u16 before_attach;	/* open interval began before we came */
	__u16 dead;
};

struct block {
	struct header h;	/* the task that issued the request */
	__u64 duration_ns;	/* issue to completion */
	__u64 queued_ns;	/* insert to issue */
	__u64 sector;
	__u32 bytes;
	__u32 dev;
	__s32 error;
	__u32 write;		/* 0 read, 1 write, 2 discard, 3 flush, 4 other */
	__u32 waiter_pid;	/* whose wait its completion ended, 0 unknown; filled by capture */
	__u32 waiter_tid;
};

struct tcp {
	struct header h;	/* pid 0: softirq; the owner comes from the inode */
	__u64 inode;
	__u16 family;		/* 2 or 10 */
	__u16 state;
	__u16 sport;
	__u16 dport;
	__u8 saddr[16];
	__u8 daddr[16];
	__u32 uid;
	__u32 peer_pid;		/* the target at the other end, 0 unknown; filled by the agent */
};

struct oom {
	struct header h;	/* the task killed */
	__u64 total_vm_pages;
	__u64 anon_rss_pages;
};

struct xid {
	struct header h;
	__u64 code;
	char device[32];
	char message[128];
};

/* Latency histogram: values below 2^HIST_MIN_BITS ns share slot 0, then
 * 2^HIST_SUB_BITS slots an octave, and the last slot takes everything longer. */
enum hist {
	HIST_MIN_BITS = 6,
	HIST_SUB_BITS = 3,
	HIST_SLOTS = 256,
};

/* Threads share the counters of their process and operation only with every eighth one, so that their cores
 * do not wait for each other's. By core instead, a machine with 200 of them would have 200 copies. */
enum share {
	SHARES = 8,
};

struct op_key {
	__u32 pid;
	__u16 op;
	__u8 caller;		/* 0 unknown, 1 runtime, 2 direct */
	__u8 share;		/* which of the process's threads: below SHARES */
};

/* A division by a second costs 10 ns a call; 2^30 ns is near enough. */
enum extremes {
	WINDOW_BITS = 30,
};

struct extreme {
	__u64 window;		/* of the calls below: their return >> WINDOW_BITS */
	__u64 min_ns;
	__u64 max_ns;
};

struct op_stats {
	__u64 count;		/* grows after all that is below: who sees it grow has seen the rest */
	__u64 sum_ns;
	__u64 bytes;
	__u64 errors;
	__u64 recorded;		/* calls with a record in the ring */
	__u64 dropped;		/* calls that deserved one and lost it */
	__u64 untimed;		/* calls counted at their entry alone, in none of the sums below or above */
	__u64 split[BUCKETS];
	struct extreme extreme[2];	/* by parity of the window */
	__u64 norm_ns;		/* moving mean, the operation's recent norm */
	__u64 budget_window;
	__u64 budget_used;
	__u64 budget_last;	/* used in the window before that */
	__u64 last_sample_ns;
	__u64 sample_window;
	__u64 sample_count;	/* count when that window began */
	__u64 sample_every;	/* calls to a sample, from the rate of the window before */
	__u64 sample_at;	/* of unsampled: the next one */
	__u64 unsampled;	/* calls since the last weighted sample */
	__u32 slots[HIST_SLOTS];
};

struct culprit_key {
	__u32 victim_pid;
	__u32 victim_tid;
	__u32 pid;		/* 0 with throttled: the CPU quota, nobody's fault */
	__u16 bucket;
	__u16 throttled;
};

struct waker_key {
	__u32 pid;
	__u32 tid;
	__u32 waker_pid;
	__u32 waker_tid;
	__u16 kind;
	__u16 bucket;
};

struct who_value {		/* of culprits and wakers */
	__u64 ns;
	__u64 count;
	char comm[16];
};

struct io_key {			/* of those who are no targets */
	__u32 pid;
	__u32 write;
	__u32 dev;
};

struct io_value {
	__u64 count;
	__u64 bytes;
	__u64 ns;
	__u64 max_ns;
	char comm[16];
};

/* A probe's attach cookie: the operation's number, and above it the variant of its link. */
enum cookie {
	COOKIE_VARIANT_SHIFT = 16,
};

/* What the kernel must know about an operation; Python's attach/probes.py fills it. */
enum op_flag {
	OP_SYNC = 1,		/* returns when the GPU got there: time inside is gpu_wait */
	OP_RARE = 2,		/* every call deserves a record */
	OP_STATUS = 4,		/* returns a status, 0 is success */
	OP_SET_DEVICE = 8,	/* args[device_arg] becomes the thread's device */
	OP_SET_CONTEXT = 16,	/* args[0] is a context; its device becomes the thread's */
	OP_NEW_CONTEXT = 32,	/* out is a new context on args[device_arg] */
	OP_NEW_COMM = 64,	/* out is a new NCCL communicator */
	OP_COLLECTIVE = 128,	/* numbered on its communicator */
	OP_QUIET = 256,		/* sampled, and recorded when it fails */
	OP_NOT_READY_OK = 512,	/* status 600 (not ready) is an answer, not an error */
	OP_BY_VALUE_ID = 1024,	/* takes the 128-byte NCCL id by value */
	OP_TYPED_COUNT = 2048,	/* bytes = args[bytes_arg] elements of type args[dtype_arg] */
	OP_OUT32 = 4096,	/* the out argument is 32 bits wide */
	OP_FREE_COMM = 8192,	/* args[comm_arg] is no communicator after this */
	OP_CALLER = 16384,	/* tell the runtime's calls from direct ones */
	OP_COMM_ARRAY = 32768,	/* out is an array of args[nranks_arg] communicators */
	OP_STACK_ARGS = 131072,	/* read arguments beyond the registers at entry */
	OP_IN_PROGRESS_OK = 524288,	/* status 7 (NCCL: in progress) is an answer, not an error */
	OP_INNER = 262144,	/* from the runtime: made on its own account, inside a call not probed there */
	OP_WORK = 1048576,	/* gives the GPU something to do */
	OP_DRAIN = 2097152,	/* when it returns, the GPU has done all this thread gave it */
	OP_MAY_WAIT = 4194304,	/* waits for the GPU or not, by where the memory is: its length tells */
	OP_RECORD_EVENT = 8388608,	/* args[0] is an event at the end of what was given so far */
	OP_EVENT_SYNC = 16777216,	/* drains if the event args[0] is that one */
	OP_SPLIT_COMM = 65536,	/* new communicator from args[comm_arg], colour args[1] */
	OP_NAMES = 33554432,	/* out is a handle for what args[name_arg] or args[from_arg] is */
	OP_LAUNCH = 67108864,	/* args[kernel_arg] is the kernel launched */
	OP_CLOSED = 134217728,	/* not looked at now: the agent puts the probe on, or takes it off */
	OP_CYCLED = 268435456,	/* watched a part of the time: calls in flight may never return to us */
	OP_WAIT = 536870912,	/* a wait for the GPU, at which a round of the job's loop ends */
};

enum argument {
	NO_ARG = 0xff,
};

/* Hits are counted apart for functions that are called often: the agent gives each of those a meter of
 * its own (op_info.meter) once op_hits shows it. All others share the first. */
enum meters {
	METER_OTHERS,
	METERS = 32,
};

/* What tracing a thread took so far, in hits by their kind. By slot of the thread, and
 * mapped into the agent, which looks at it ten times a second. */
struct thread_cost {
	__u32 pid;
	__u32 tid;
	__u32 timed[METERS];	/* entry and return; wraps */
	__u32 counted[METERS];	/* entry alone */
	__u64 passed;		/* entry alone, of operations that are closed */
	__u64 records;
	__u64 walks;
	__u64 walk_ns;
};

struct op_info {
	__u32 flags;
	__u8 bytes_arg;
	__u8 bytes_by_arg;	/* second factor: rows of a 2D copy */
	__u8 dtype_arg;
	__u8 stream_arg;
	__u8 stream_at;		/* NO_ARG, or offset of the stream inside the struct args[stream_arg] points to */
	__u8 out_arg;
	__u8 comm_arg;
	__u8 rank_arg;
	__u8 nranks_arg;
	__u8 device_arg;
	__u8 id_arg;		/* NCCL id: pointer argument, where it is not by value */
	__u8 arguments;		/* how many the function takes, where more than six */
	__u8 name_arg;		/* text */
	__u8 from_arg;		/* handle or host function that another handle is made from */
	__u8 kernel_arg;
	__u8 meter;
	__u32 every;		/* a power of two: one call of so many is timed, the others are counted; 0: all */
	__u32 variant;		/* of the two links a function may be in while it moves between them: which counts */
};

/* What a thread waits for inside a system call, by number; Python fills it. */
enum wait_class {
	WAIT_UNKNOWN,
	WAIT_FUTEX,
	WAIT_POLL,		/* decided by what wakes it */
	WAIT_SLEEP,
	WAIT_FD,		/* decided by the descriptor in the first argument */
	WAIT_FILE,		/* works on a path or a file: the file system */
	WAIT_WRITEBACK,
	WAIT_CHILD,
	WAIT_PEER,		/* message queues, semaphores: another process */
};

/* What tables and rings have room for. */
enum capacity {
	THREADS = 8192,		/* thread_table and what goes with it */
	OPS = 512,		/* operations there can be: a power of two */
	SYSCALLS = 512,
	RING_BYTES = 16777216,	/* unless the agent says otherwise */
	FRAMES_RING_BYTES = 8388608,
};

struct settings {
	__u32 agent_pid;
	__u32 trace_all;	/* a process nobody announced becomes a target by its first call */
	__u32 record_all;
	__u32 rare_per_second;	/* per process, operation and share, before sampling sets in */
	__u32 generation;	/* counts changes of procs */
	__u32 learning;		/* which time that kernel names are looked for this is, 0: they are not */
	__u64 sample_every_ns;
	__u64 wait_record_ns;
	__u32 stacks;		/* walk the stacks of calls with a record, of long waits and samples */
	__u32 watch;		/* how often operations were closed or opened; odd: some are closed */
	__u32 outermost;	/* of nested calls only the outermost is walked */
	__u32 walks_per_second;	/* of those rare_per_second, so many have their stack walked */
	__u32 walk_share;	/* of a thread's time that walks of its calls and waits may take, in 65536ths; 0: all */
	__u32 blind;		/* waits for the GPU are among what is watched a part of the time */
	__u64 watch_ns;		/* when watch became what it is */
	__u32 spare;		/* whose calls are never watched to their return: SPARE_... */
	__u32 pad;
};

/* A return probe enters the kernel by a system call on some kernels, and a seccomp filter may kill for that. */
enum spare {
	SPARE_NOBODY,
	SPARE_FILTERED,		/* threads under a filter */
	SPARE_EVERYBODY,	/* the shape cannot tell them apart */
};

#include "wire_frames.h"

#endif
