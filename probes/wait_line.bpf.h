/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * What Python knows of a wait: the line it happened on, and who has the interpreter's lock.
 */
#ifndef INGERO_WAIT_LINE_H
#define INGERO_WAIT_LINE_H

#include "task_work.bpf.h"
#include "walk.bpf.h"

/* The line of a long wait. With the run-queue lock held hardly anything is walked: the thread
 * does it itself, before it returns to user mode. */
#if TASK_WORK
struct wait_work {
	__u64 start_ns;
	struct bpf_task_work work;
};

struct {			/* by slot of the thread */
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, THREADS);
	__type(key, __u32);
	__type(value, struct wait_work);
} wait_works SEC(".maps");

static int walk_wait(struct bpf_map *map, void *key, void *value)
{
	struct wait_work *work = value;
	struct thread *t = find_thread(bpf_get_current_task_btf());
	struct settings *set = get_settings();
	struct wait_stack *r;
	struct scratch *c;
	__u64 hash, id, now = bpf_ktime_get_ns();

	if (!t || !set)
		return 0;
	c = begin_stack(t, now, MAX_WALK, &hash);
	if (!c)
		return 0;
	id = finish_stack(t, c, hash, bpf_get_task_stack(bpf_get_current_task_btf(), c->s.native, sizeof(c->s.native),
						      BPF_F_USER_STACK), now);
	charge_walk(t, set, now);
	r = bpf_ringbuf_reserve(&frames, sizeof(*r), 0);
	if (!r) {
		lose(LOSS_RING_STACK, 1);
		return 0;
	}
	fill_header(&r->h, REC_WAIT_STACK, t);
	r->h.start_ns = work->start_ns;
	r->stack_id = id;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline void ask_for_line(struct thread *t, struct task_struct *task)
{
	__u32 slot = t->slot;
	struct wait_work *work = bpf_map_lookup_elem(&wait_works, &slot);

	if (!work)
		return;
	work->start_ns = t->off_ns;
	run_before_user_mode(task, &work->work, &wait_works, walk_wait);
}
#else
#define ask_for_line(t, task) ((void)0)
#endif

struct {			/* how long switches took that walked: other cores may wait for the lock */
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk_cost);
} locked_walks SEC(".maps");

/* Older ones do not: there the innermost frames are walked when the thread begins to wait. It
 * is not known then whether the wait will be long, so only a system call is taken whose last
 * wait in this thread was. Not static: verified once. */
__noinline int walk_early(struct thread *t, __u64 now)
{
	struct settings *set = get_settings();
	struct walk_cost *cost;
	struct scratch *c;
	__u32 zero = 0;
	__u64 hash;

	if (!t || !set || !(t->flags & H_FEEDER) || !(t->long_syscalls & 1ULL << (t->syscall & 63)))
		return 0;
	if (!may_walk(t, set, now, AHEAD_WAIT))
		return 0;
	c = begin_stack(t, now, LOCKED_WALK, &hash);
	if (c) {
		t->wait_stack = finish_stack(t, c, hash, 0, now);
		charge_walk(t, set, now);
	}
	cost = bpf_map_lookup_elem(&locked_walks, &zero);
	if (cost)
		add_cost(cost, bpf_ktime_get_ns() - now);
	return 0;
}

static __always_inline void note_length(struct thread *t, bool is_long)
{
	__u64 bit = 1ULL << (t->syscall & 63);

	t->long_syscalls = is_long ? t->long_syscalls | bit : t->long_syscalls & ~bit;
}

/* The thread a state belongs to. Before 3.11 only the C library keeps its number. */
static __always_inline __u32 number_of(const struct python_layout *l, __u64 state)
{
	__u64 at = state + l->state_native_id, thread = 0;
	__u32 tid = 0;

	if (!l->state_native_id) {
		if (!l->thread_tid || !read_word(&thread, state + l->state_thread_id) || !thread)
			return 0;
		at = thread + l->thread_tid;
	}
	bpf_probe_read_user(&tid, sizeof(tid), (const void *)at);
	return tid;
}

/* Who has the interpreter's lock that this thread waits for; 0 if it waits for another, or
 * the interpreter does not say. */
static __always_inline __u32 holder_of(const struct thread *t)
{
	__u32 pid = t->pid;
	const struct python_layout *l = bpf_map_lookup_elem(&pythons, &pid);
	__u64 holder = 0;

	if (!l || !l->lock_holder || t->address - l->lock >= l->lock_end - l->lock)
		return 0;
	if (!read_word(&holder, l->lock_holder) || !holder)
		return 0;
	return number_of(l, holder);
}

#endif
