/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * Python's garbage collector, as a function that is entered and returns. It is host
 * work: unlike a CUDA call it makes no thread a feeder, no process a target, changes no
 * bucket and nests with nothing, so that what finalizers call is told as always. Every
 * collection is counted; only long ones get a record.
 */
#include "call.bpf.h"

struct collection {
	__u64 first_ns;		/* of the thread: slots are used again */
	__u64 start_ns;		/* 0: none going on */
	__u64 acc[BUCKETS];	/* the thread's accumulators at entry */
	__u64 ended[BUCKETS];	/* and at the return */
};

struct {			/* by slot of the thread */
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, THREADS);
	__type(key, __u32);
	__type(value, struct collection);
} collections SEC(".maps");

static __always_inline struct collection *collection_of(const struct thread *t)
{
	__u32 slot = t->slot;

	return bpf_map_lookup_elem(&collections, &slot);
}

static __always_inline struct thread *target_thread(struct task_struct *task)
{
	struct thread *t = find_thread(task);
	__u32 pid = task->tgid;

	if (t || !bpf_map_lookup_elem(&procs, &pid))
		return t;
	return new_current_thread(task);
}

/* Not 0: nobody asks for the return. */
static __always_inline int collect_enter(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *t = target_thread(task);
	struct collection *c = t ? collection_of(t) : 0;
	struct settings *set = get_settings();

	if (!c || !set || spared(set, task))
		return 1;
	c->first_ns = t->first_ns;
	c->start_ns = stamp(t, running_bucket(t), c->acc);
	return 0;
}

static __always_inline void count(struct op_stats *s, const struct collection *c, __u64 ns, __u64 now)
{
	__sync_fetch_and_add(&s->sum_ns, ns);
	for (int i = 0; i < BUCKETS; i++)
		__sync_fetch_and_add(&s->split[i], c->ended[i] - c->acc[i]);
	__sync_fetch_and_add(&s->slots[slot_of(ns) & (HIST_SLOTS - 1)], 1);
	note_extremes(s, now >> WINDOW_BITS, ns);
	__sync_fetch_and_add(&s->count, 1);
}

static __always_inline int record(const struct thread *t, const struct collection *c, __u32 op, __u64 ns)
{
	struct call *r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);

	if (!r)
		return -1;
	__builtin_memset(r, 0, sizeof(*r));
	fill_header(&r->h, REC_CALL, t);
	r->h.start_ns = c->start_ns;
	bpf_get_current_comm(r->h.comm, sizeof(r->h.comm));
	r->duration_ns = ns;
	r->op = op;
	r->flags = CALL_NO_BYTES | CALL_NO_OUT | CALL_NO_STREAM;
	r->why = WHY_RARE;
	r->weight = 1;
	r->gpu_id = -1;
	r->rank = -1;
	r->nranks = -1;
	for (int i = 0; i < BUCKETS; i++)
		r->split[i] = c->ended[i] - c->acc[i];
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline int collect_return(void *ctx)
{
	struct thread *t = find_thread(bpf_get_current_task_btf());
	struct collection *c = t ? collection_of(t) : 0;
	struct settings *set = get_settings();
	struct op_key key = {};
	struct op_stats *s;
	__u64 now, ns;

	if (!c || !c->start_ns || c->first_ns != t->first_ns || !set)
		return 0;
	now = stamp(t, running_bucket(t), c->ended);
	ns = now - c->start_ns;
	key.pid = t->pid;
	key.op = (__u32)bpf_get_attach_cookie(ctx) & (OPS - 1);
	s = stats_of(&key, t);
	if (s)
		count(s, c, ns, now);
	else
		lose(LOSS_HISTOGRAM_FULL, 1);
	if (ns >= set->wait_record_ns) {
		if (record(t, c, key.op, ns))
			lose(LOSS_RING_CALL, 1);
		else if (s)
			__sync_fetch_and_add(&s->recorded, 1);
	}
	c->start_ns = 0;
	return 0;
}

SEC("uprobe/session")
int collect_session(void *ctx)
{
	return session_returns(ctx) ? collect_return(ctx) : collect_enter();
}

SEC("uprobe/multi_enter")
int collect_multi_enter(void *ctx)
{
	collect_enter();
	return 0;
}

SEC("uprobe/multi_return")
int collect_multi_return(void *ctx)
{
	return collect_return(ctx);
}

SEC("uprobe/perf_enter")
int collect_perf_enter(void *ctx)
{
	collect_enter();
	return 0;
}

SEC("uretprobe/perf_return")
int collect_perf_return(void *ctx)
{
	return collect_return(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
