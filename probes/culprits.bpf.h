/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * Who ran on a core while a traced thread waited for it.
 */
#ifndef INGERO_CULPRITS_H
#define INGERO_CULPRITS_H

#include "account.bpf.h"

/* What ran on each core lately: culprits are found here when a waiter gets its
 * core at last, so bystanders cost one store per switch. 32 slices reach back over
 * a wait behind 32 others; time before that has no culprit. */
#define SLICES 32

struct slice {
	__u64 start_ns;
	__u64 end_ns;
	__u32 pid;
	__u32 pad;
	char comm[16];
};

struct core_log {
	__u64 head;
	struct slice running;	/* end_ns unused: it runs still */
	struct slice slices[SLICES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);	/* cores; the loader sets the real number */
	__type(key, __u32);
	__type(value, struct core_log);
} cores SEC(".maps");

/* Made in full beforehand: with the run-queue lock held no memory may be had. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct culprit_key);
	__type(value, struct who_value);
} culprits SEC(".maps");

static __always_inline void charge(const struct culprit_key *key, const char *comm, __u64 ns)
{
	struct who_value *v = bpf_map_lookup_elem(&culprits, key);
	struct who_value fresh = {.ns = ns, .count = 1};

	if (v) {
		__sync_fetch_and_add(&v->ns, ns);
		__sync_fetch_and_add(&v->count, 1);
		/* A fork has its parent's name until it executes something. */
		__builtin_memcpy(v->comm, comm, sizeof(v->comm));
		return;
	}
	__builtin_memcpy(fresh.comm, comm, sizeof(fresh.comm));
	if (bpf_map_update_elem(&culprits, key, &fresh, BPF_NOEXIST))
		lose(LOSS_CULPRIT_FULL, 1);
}

/* Charge the wait [from, to] on `cpu` to every task that ran there meanwhile. */
static __noinline int charge_core(struct thread *t, __u32 cpu, __u64 from, __u64 to)
{
	struct core_log *log = bpf_map_lookup_elem(&cores, &cpu);
	struct culprit_key key = {.bucket = RUNQUEUE};
	__u64 head;

	if (!log || !t)
		return 0;
	key.victim_pid = t->pid;
	key.victim_tid = t->tid;
	/* The running task's slice is open. Where the waiter itself just took the core
	 * it has length zero. */
	if (log->running.pid && log->running.start_ns < to) {
		__u64 start = log->running.start_ns > from ? log->running.start_ns : from;
		key.pid = log->running.pid;
		charge(&key, log->running.comm, to - start);
	}
	head = log->head;
	for (int i = 1; i <= SLICES; i++) {
		struct slice *s = &log->slices[(head - i) & (SLICES - 1)];
		__u64 start = s->start_ns > from ? s->start_ns : from;
		__u64 end = s->end_ns < to ? s->end_ns : to;

		if (s->end_ns <= from)
			break;
		if (end > start && s->pid) {
			key.pid = s->pid;
			charge(&key, s->comm, end - start);
		}
	}
	return 0;
}

static __always_inline void charge_quota(struct thread *t, __u64 ns)
{
	struct culprit_key key = {.bucket = RUNQUEUE, .throttled = 1};
	char nobody[16] = "[cpu quota]";

	key.victim_pid = t->pid;
	key.victim_tid = t->tid;
	t->throttled_ns += ns;
	charge(&key, nobody, ns);
}

static __always_inline void log_slice(struct task_struct *prev, struct task_struct *next, __u64 now)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct core_log *log = bpf_map_lookup_elem(&cores, &cpu);
	struct slice *s;

	if (!log)
		return;
	if (prev->pid) {
		s = &log->slices[log->head & (SLICES - 1)];
		s->start_ns = log->running.start_ns;
		s->end_ns = now;
		s->pid = prev->tgid;
		__builtin_memcpy(s->comm, prev->comm, sizeof(s->comm));
		log->head++;
	}
	log->running.start_ns = now;
	log->running.pid = next->tgid;
	__builtin_memcpy(log->running.comm, next->comm, sizeof(log->running.comm));
}

#endif
