/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * The maps all probes share. Each object declares them; the loader makes them
 * once and hands the same ones to every object (by name).
 */
#ifndef INGERO_MAPS_H
#define INGERO_MAPS_H

#include "kernel_compat.bpf.h"
#include "bounds.bpf.h"
#include "wire.h"

#define FRAME_PAIRED 0x10000	/* frame.flags beyond those of a call: host_function is known */
#define FRAME_BARE 0x20000	/* its record is due, its stack is not walked */
#define FRAMES 6	/* nested traced calls of a thread: graph > runtime > driver, NCCL > driver */

/* One call in flight. */
struct frame {
	__u64 start_ns;
	__u64 sp;		/* at entry: which return belongs to it */
	__u64 args[8];
	__u64 id_hash;
	__u64 out;		/* known at the return, like the five below */
	__u64 stack_id;
	__u64 bytes;
	__u64 seq;
	__u64 host_function;	/* with FRAME_PAIRED */
	__s64 ret;
	__u32 flags;
	__u32 pad;
	__u64 acc[BUCKETS];	/* the thread's accumulators at entry */
	__u16 op;
	__u16 inner_done;	/* a call that began at the same stack pointer has returned */
	__u32 sync_before;
};

enum thread_state { RUNNING = 1, RUNNABLE, BLOCKED };

#define SITES 8

/* What usually follows a wait for the GPU, by where the thread waits (unwatched.bpf.h). In units
 * of 1024 ns, like all of its kind there. */
struct site {
	__u32 on_core;		/* after the GPU has done all, until it gets something to do */
	__u32 round;		/* until the next wait for it is over */
	__u32 host;		/* of that: not waiting for it */
	__u32 rounds;		/* seen so far */
	__u32 works;		/* times it gives the GPU something in a round that is watched throughout */
	__u32 pad;
};

/* Since the last wait for the GPU was over. */
struct round {
	__u64 from_ns;		/* 0: not known */
	__u64 acc[BUCKETS];	/* the thread's then */
	__u64 gap[BUCKETS];
	__u32 watch;		/* settings.watch then */
	__u32 site;
	__u32 works;		/* times it was seen to give the GPU something */
	__u32 pad;
	__u64 quiet_ns;		/* seen on a core without a call */
	__u64 long_ns;		/* in single waits as long as a usual round */
	struct site sites[SITES];
};

/* A traced thread. `since` to now is the open interval; whoever moves `since`
 * owns the interval it closes (see settle()). */
struct thread {
	__u64 since;
	__u64 first_ns;
	__u64 acc[BUCKETS];
	__u64 gap[BUCKETS];
	__u64 busy_acc[BUCKETS];	/* acc when the GPU last got something to do after nothing */
	__u64 given_acc[BUCKETS];	/* acc when it last got more */
	__u64 idle_on_core;	/* the thread's time on a core when idle was set */
	__u64 late_ns;
	__u64 spun_ns;
	__u64 reclaiming_ns;
	__u64 known;
	__u64 on_ns;		/* when it last got a core */
	__u64 work_ns;		/* when the GPU last got something to do after nothing */
	struct bounds span;	/* from then until all of it is done */
	struct bounds wait;	/* how long a wait lasts that leaves work behind */
	struct bounds drain;	/* and one for all there is */
	__u64 last_event;	/* the event it recorded last */
	__u64 off_ns;		/* when it last left its core */
	__u64 blocked_ns;	/* of the current off-CPU interval: blocked */
	__u64 charged_ns;	/* run-queue wait charged to culprits up to here */
	__u64 throttled_ns;
	__u64 voluntary_before;	/* the task's own counters when its accounting began */
	__u64 involuntary_before;
	__u64 minor_before;
	__u64 system_before;
	__u64 major_before;
	__u64 address;
	__u64 sector;
	__u64 wait_stack;	/* where it waits, if that was walked when it began to; 0: not */
	__u64 long_syscalls;	/* system calls whose last wait was long, a bit each */
	__u64 walk_due_ns;	/* when its stack may be walked again, by what walks took so far */
	__u64 walked_ns;	/* its last walk at the return of a call: when, */
	__u64 walked_frame;	/* of which innermost Python frame, */
	__u64 walked_at;	/* at which instruction, */
	__u64 walked_hash;	/* and what came of it */
	__u64 process_start_ns;
	__u64 cgroup_id;
	__u64 host_function;	/* of the runtime's launch it is in; only while names are looked for */
	__u32 pid;
	__u32 tid;
	__u32 state;
	__u32 bucket;		/* of a BLOCKED interval */
	__u32 poll;		/* 1: bucket is settled by the waker; 2: and seen open by the iterator */
	__u32 throttled;
	__u32 spanned_bucket;
	__s32 syscall;
	__u32 dev;
	__u32 waker_pid;
	__u32 waker_tid;
	__u32 waker_kind;
	char waker[16];
	__u32 holder_tid;	/* of the interpreter's lock it waits for */
	__u32 watch;		/* settings.watch when the four about the GPU's work were last right */
	__u32 depth;
	__u32 overflow;
	__u32 sync;		/* > 0: inside a synchronising call */
	__u32 copies;		/* and it copies: woken from its wait, it moves bytes */
	__u32 woken;
	__u32 polls;		/* it looked, and the GPU was not done: asleep, it waits for it */
	__u32 idle;		/* the GPU has done what this thread gave it and got nothing since */
	__u32 idle_watch;	/* settings.watch when that was set */
	__u32 site;		/* and where it waited */
	__u32 busy_known;	/* busy_acc holds something */
	__u32 unrecorded;	/* it gave the GPU something after that event */
	__u32 reclaim;		/* > 0: inside reclaim or compaction */
	__s32 gpu_id;
	__u32 flags;		/* enum header_flag */
	__u32 before_attach;
	__u32 generation;	/* of the runtime ranges below */
	__u32 proc_flags;
	__u32 slot;
	__u64 host_sp;		/* when host_function was noted: the stack pointer and the time */
	__u64 host_ns;
	struct range range[CALLER_RANGES];
	struct frame frames[FRAMES];
	struct round round;
	__u64 ended[BUCKETS];	/* acc when the last call returned: a stamp (account.bpf.h) */
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} ring SEC(".maps");

/* A thread's state lies in a table; the task knows its slot (slots.bpf.h), and so does the
 * session cookie of a call in flight, which saves the return a look-up of 40 ns. Slot 0 is
 * nobody's. */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, THREADS);
	__type(key, __u32);
	__type(value, struct thread);
} thread_table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, THREADS);
	__type(key, __u32);
	__type(value, struct thread_cost);
} thread_costs SEC(".maps");

struct {			/* calls of functions without a meter of their own, by operation */
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OPS);
	__type(key, __u32);
	__type(value, __u64);
} op_hits SEC(".maps");

static __always_inline struct thread *thread_at(__u32 slot)
{
	return slot ? bpf_map_lookup_elem(&thread_table, &slot) : 0;
}

/* Written on the thread itself alone. */
static __always_inline struct thread_cost *cost_of(const struct thread *t)
{
	__u32 slot = t->slot;

	return bpf_map_lookup_elem(&thread_costs, &slot);
}

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct proc);
} procs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOSSES);
	__type(key, __u32);
	__type(value, __u64);
} losses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SYSCALLS);
	__type(key, __u32);
	__type(value, __u8);
} syscall_class SEC(".maps");

/* What interrupt this CPU serves, kept by the entry and exit tracepoints (the
 * kernel's own count is not visible to BPF on every build), and the block request
 * it just completed. */
struct irq_state {
	__u32 softirq;		/* vector + 1 */
	__u32 hardirq;
	__u32 timer;
	__u32 block;
	__u32 dev;
	__u32 pad;
	__u64 sector;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct irq_state);
} irq SEC(".maps");

static __always_inline bool in_interrupt(const struct irq_state *i)
{
	return i->timer || i->softirq || i->hardirq;
}

static __always_inline void lose(__u32 reason, __u64 count)
{
	__u64 *counter = bpf_map_lookup_elem(&losses, &reason);

	if (counter)
		__sync_fetch_and_add(counter, count);
}

static __always_inline struct settings *get_settings(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&settings, &zero);
}

#include "slots.bpf.h"

static __always_inline void fill_header(struct header *h, __u16 type, const struct thread *t)
{
	h->type = type;
	h->flags = t->flags;
	h->cpu = bpf_get_smp_processor_id();
	h->pid = t->pid;
	h->tid = t->tid;
	h->cgroup_id = t->cgroup_id;
}

#endif
