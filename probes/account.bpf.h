/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * Accounted time: every nanosecond of a traced thread is in exactly one bucket.
 *
 * How an interval is closed, and read together with the time, is in interval.bpf.h.
 */
#ifndef INGERO_ACCOUNT_H
#define INGERO_ACCOUNT_H

#include "maps.bpf.h"

/* Queueing a copy takes some microseconds, a lock inside the driver is held for less. One
 * that took longer waited for the GPU. */
#define WAITED_NS 50000

/* On a core: a thread that leaves it this soon after it waited for the GPU has given it nothing yet,
 * unless it is known to be quicker. */
#define AT_ONCE_NS 100000

static __always_inline __u32 running_bucket(const struct thread *t)
{
	if (t->reclaim)
		return MEMORY_WAIT;
	if (t->sync)
		return t->copies && t->woken ? CUDA_CPU : GPU_WAIT;
	return t->depth ? CUDA_CPU : HOST_CPU;
}

static __always_inline __u64 on_core(const struct thread *t)
{
	return t->acc[CUDA_CPU] + t->acc[HOST_CPU];
}

/* Whether launches were closed at some time since the GPU had nothing to do. */
static __always_inline bool not_all_seen(const struct thread *t, const struct settings *set)
{
	return set->watch & 1 || t->idle_watch != set->watch;
}

/* Part of an interval that ends with `used` on a core since the GPU had nothing to do. Where nobody sees
 * what it is given, it got something once the thread was on a core for as long as it usually is before. */
static __always_inline __u64 part_in_gap(const struct thread *t, __u32 bucket, __u64 ns, __u64 used)
{
	struct settings *set = get_settings();
	__u64 usual;

	if (!set || !not_all_seen(t, set) || (bucket != CUDA_CPU && bucket != HOST_CPU))
		return ns;
	usual = (__u64)t->round.sites[t->site & (SITES - 1)].on_core << 10;
	if (!usual)
		usual = AT_ONCE_NS;
	if (used <= usual)
		return ns;
	return used - usual < ns ? ns - (used - usual) : 0;
}

static __always_inline void add_time(struct thread *t, __u32 bucket, __u64 ns)
{
	__u64 part;

	if (bucket >= BUCKETS)
		return;
	__sync_fetch_and_add(&t->acc[bucket], ns);
	if (!t->idle)
		return;
	part = part_in_gap(t, bucket, ns, on_core(t) - t->idle_on_core);
	__sync_fetch_and_add(&t->gap[bucket], part);
	if (part < ns)
		t->idle = 0;
}

/* A wait for the GPU may be a loop that looks, and reclaim is work: the thread waits and has its core.
 * What it does besides on a core has buckets of its own. */
static __always_inline void add_on_core(__u64 *spun, __u64 *reclaiming, __u32 bucket, __u64 ns)
{
	if (bucket == GPU_WAIT)
		__sync_fetch_and_add(spun, ns);
	else if (bucket == MEMORY_WAIT)
		__sync_fetch_and_add(reclaiming, ns);
}

/* `state` is still what it was in that interval. */
static __always_inline void add_interval(struct thread *t, __u32 bucket, __u64 ns)
{
	if (t->state == RUNNING)
		add_on_core(&t->spun_ns, &t->reclaiming_ns, bucket, ns);
	add_time(t, bucket, ns);
}

#include "interval.bpf.h"

/* Accounting begins here: what the task did before is nobody's. */
static __always_inline void start_account(struct thread *t, struct task_struct *task, __u64 now)
{
	t->first_ns = now;
	t->since = now;
	t->off_ns = now;
	t->charged_ns = now;
	t->throttled_ns = 0;
	t->late_ns = 0;
	t->spun_ns = 0;
	t->reclaiming_ns = 0;
	t->known = 0;
	t->voluntary_before = BPF_CORE_READ(task, nvcsw);
	t->involuntary_before = BPF_CORE_READ(task, nivcsw);
	t->minor_before = BPF_CORE_READ(task, min_flt);
	t->major_before = BPF_CORE_READ(task, maj_flt);
	t->system_before = BPF_CORE_READ(task, stime);
}

static __always_inline void copy_counts(struct thread_totals *r, const struct thread *t, const struct task_struct *task)
{
	r->voluntary_switches = task->nvcsw - t->voluntary_before;
	r->involuntary_switches = task->nivcsw - t->involuntary_before;
	r->minor_faults = task->min_flt - t->minor_before;
	r->major_faults = task->maj_flt - t->major_before;
	r->system_ns = task->stime - t->system_before;
	r->throttled_ns = t->throttled_ns;
	r->late_ns = t->late_ns;
	r->known = t->known;
}

/* The first sight of a thread; `task` need not be the current one. Two programs may
 * meet it at once: the state is made ready before the task is told its slot, and who
 * comes second gives its slot back. */
static __always_inline struct thread *
new_thread(struct task_struct *task, __u64 now, __u32 state)
{
	struct thread_ref *ref = make_ref(task);
	struct thread_cost *cost;
	struct thread *t;
	__u32 slot;

	if (!ref) {
		lose(LOSS_THREAD_STATE, 1);
		return 0;
	}
	if (ref->slot)
		return thread_at(ref->slot);
	slot = take_slot(now);
	t = thread_at(slot);
	if (!t) {
		lose(LOSS_THREAD_STATE, 1);
		return 0;
	}
	__builtin_memset(t, 0, __builtin_offsetof(struct thread, frames));
	__builtin_memset(&t->round, 0, sizeof(t->round));
	t->slot = slot;
	t->pid = BPF_CORE_READ(task, tgid);
	t->tid = BPF_CORE_READ(task, pid);
	t->process_start_ns = BPF_CORE_READ(task, group_leader, start_boottime);
	t->cgroup_id = task_cgroup(task);
	t->gpu_id = -1;
	t->syscall = -1;
	start_account(t, task, now);
	t->state = state;
	cost = cost_of(t);
	if (cost) {
		__builtin_memset(cost, 0, sizeof(*cost));
		cost->pid = t->pid;
		cost->tid = t->tid;
	}
	if (__sync_val_compare_and_swap(&ref->slot, 0, (__u64)slot)) {
		give_slot(slot, 0);	/* nobody saw it */
		return thread_at(ref->slot);
	}
	return t;
}

/* The first sight of the current thread. What came between the time it was seen and the time the scheduler's
 * programs know it, they have not accounted: its account begins where they do. */
static __always_inline struct thread *new_current_thread(struct task_struct *task)
{
	__u64 seen = bpf_ktime_get_ns(), now;
	struct thread *t = new_thread(task, seen, RUNNING);

	if (!t)
		return 0;
	now = bpf_ktime_get_ns();
	if (__sync_val_compare_and_swap(&t->since, seen, now) == seen)
		t->first_ns = now;
	return t;
}

/* The thread is gone. First its task forgets the slot, so that its last instructions find nobody's. */
static __always_inline void free_thread(struct task_struct *task, struct thread *t, __u64 now)
{
	__u32 slot = t->slot;

	forget_ref(task);
	give_slot(slot, now);
}

#endif
