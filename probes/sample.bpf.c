/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * Where the time on a core goes: a software clock, 49 times a second, sees which traced
 * thread runs, on which line, and whether Python's garbage collector is at work. Summed
 * here per stack. Threads of targets only; everybody else costs a look-up.
 *
 * The clock strikes in an interrupt, in which nothing else on the core goes on. From 6.18 on the thread walks its
 * stack itself, a moment later and before it executes anything; earlier kernels walk in the interrupt, not for long.
 */
#include "account.bpf.h"
#include "task_work.bpf.h"
#include "walk.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct sample_key);
	__type(value, __u64);
} samples SEC(".maps");

/* What the interpreter says of itself: collecting, and whether this thread has the lock. */
static __always_inline __u32 python_flags(__u32 pid, __u64 thread_pointer)
{
	const struct python_layout *l = bpf_map_lookup_elem(&pythons, &pid);
	__u64 holder = 0, state;
	__u32 collecting = 0, held = 0, flags = 0;

	if (!l || !l->code_type)
		return 0;
	if (l->collecting && !bpf_probe_read_user(&collecting, 4, (const void *)l->collecting) && collecting == 1)
		flags |= SAMPLE_COLLECTING;
	state = thread_state_of(l, thread_pointer);
	if (state && l->lock_holder && l->lock_held && read_word(&holder, l->lock_holder) && holder == state &&
	    !bpf_probe_read_user(&held, 4, (const void *)l->lock_held) && held == 1)
		flags |= SAMPLE_GIL;
	return flags;
}

static __always_inline void count_samples(const struct sample_key *key, __u64 many)
{
	__u64 *count = bpf_map_lookup_elem(&samples, key);

	if (count)
		__sync_fetch_and_add(count, many);
	else if (bpf_map_update_elem(&samples, key, &many, BPF_NOEXIST))
		lose(LOSS_SAMPLE_FULL, many);
}

struct {			/* how long the clock's interrupts took */
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk_cost);
} clock_costs SEC(".maps");

static __always_inline void count_clock(__u64 since)
{
	__u32 zero = 0;
	struct walk_cost *cost = bpf_map_lookup_elem(&clock_costs, &zero);

	if (cost)
		add_cost(cost, bpf_ktime_get_ns() - since);
}

/* All but the stack. */
static __always_inline void fill_key(struct sample_key *key, const struct thread *t, const struct uregs *regs)
{
	key->stack_id = 0;
	key->pid = t->pid;
	key->tid = t->tid;
	key->bucket = running_bucket(t);
	key->op = t->depth && t->depth <= FRAMES ? t->frames[0].op : 0;
	key->flags = python_flags(t->pid, arch_thread_pointer(bpf_get_current_task_btf())) |
		     (arch_user_mode(regs) ? 0 : SAMPLE_KERNEL);
}

#if TASK_WORK
struct sample_work {
	struct sample_key key;	/* of the first strike that is not counted yet */
	__u64 strikes;		/* not counted yet: the clock may strike again before the thread gets to it */
	struct bpf_task_work work;
};

struct {			/* by slot of the thread */
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, THREADS);
	__type(key, __u32);
	__type(value, struct sample_work);
} sample_works SEC(".maps");

static int walk_sample(struct bpf_map *map, void *slot, void *value)
{
	struct sample_work *work = value;
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *t = find_thread(task);
	struct sample_key key = work->key;
	__u64 hash, now = bpf_ktime_get_ns();
	struct scratch *c;

	if (t) {
		c = begin_stack(t, now, MAX_WALK, &hash);
		if (c)
			key.stack_id = finish_stack(t, c, hash, bpf_get_task_stack(task, c->s.native, sizeof(c->s.native),
										 BPF_F_USER_STACK), now);
	}
	count_samples(&key, __sync_lock_test_and_set(&work->strikes, 0));
	return 0;
}

static __always_inline int ask_for_stack(struct thread *t, const struct uregs *regs)
{
	__u32 slot = t->slot;
	struct sample_work *work = bpf_map_lookup_elem(&sample_works, &slot);
	int failed;

	if (!work)
		return -1;
	if (!work->strikes || work->key.tid != t->tid) {	/* or another thread's that had this slot */
		work->strikes = 0;
		fill_key(&work->key, t, regs);
	}
	__sync_fetch_and_add(&work->strikes, 1);
	failed = run_before_user_mode(bpf_get_current_task_btf(), &work->work, &sample_works, walk_sample);
	if (!failed || work->strikes > 1)	/* it has been asked for already */
		return 0;
	work->strikes = 0;
	return failed;
}
#else
#define ask_for_stack(t, regs) (-1)
#endif

static __always_inline void walk_now(void *ctx, struct thread *t, __u64 now)
{
	struct sample_key key = {};
	struct scratch *c;
	__u64 hash;

	c = begin_stack(t, now, CLOCK_WALK, &hash);
	if (!c)
		return;
	fill_key(&key, t, ctx);
	key.stack_id = finish_stack(t, c, hash,
				    bpf_get_stack(ctx, c->s.native, sizeof(c->s.native), BPF_F_USER_STACK), now);
	count_samples(&key, 1);
}

static __always_inline struct thread *sampled_thread(void)
{
	struct thread *t = find_thread(bpf_get_current_task_btf());
	struct settings *set = get_settings();

	return set && set->stacks ? t : 0;
}

SEC("perf_event")
int sample(void *ctx)			/* a perf event's context begins with the registers */
{
	struct thread *t = sampled_thread();
	__u64 now;

	if (!t)
		return 0;
	now = bpf_ktime_get_ns();
	if (ask_for_stack(t, ctx))
		walk_now(ctx, t, now);
	count_clock(now);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
