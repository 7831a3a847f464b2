/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * How operations are watched: what is known of each (struct op_info), their statistics, and
 * calls that are counted without being timed, or not looked at for the moment.
 */
#ifndef INGERO_WATCH_H
#define INGERO_WATCH_H

#include "unwatched.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OPS);
	__type(key, __u32);
	__type(value, struct op_info);
} op_info SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct op_key);
	__type(value, struct op_stats);
} op_stats SEC(".maps");

struct {			/* never written: what a new op_stats starts from */
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct op_stats);
} no_stats SEC(".maps");

/* ncclDataType_t: int8 uint8 int32 uint32 int64 uint64 f16 f32 f64 bf16 f8e4m3 f8e5m2 */
static __always_inline __u64 type_bytes(__u64 type)
{
	switch (type) {
	case 0: case 1: case 10: case 11: return 1;
	case 6: case 9: return 2;
	case 2: case 3: case 7: return 4;
	case 4: case 5: case 8: return 8;
	}
	return 0;
}

static __always_inline __u64 nth(const struct frame *f, __u8 index)
{
	return index < 8 ? f->args[index & 7] : 0;
}

/* Where operations are closed, or not all are timed, one end of a call is often not asked for.
 * Not static, like others here: the verifier looks at it once, not in every state that leads to it. */
__noinline int lose_call(__u32 reason)
{
	struct settings *set = get_settings();

	if (set && !set->watch && reason < LOSSES)
		lose(reason, 1);
	return 0;
}

__noinline int count_timed(struct thread *t, __u32 meter)
{
	struct thread_cost *cost = t ? cost_of(t) : 0;

	if (cost && meter < METERS)
		cost->timed[meter]++;
	return 0;
}

static __always_inline void count_function(const struct op_info *info, __u32 op)
{
	__u64 *hits;

	if (info->meter)
		return;
	hits = bpf_map_lookup_elem(&op_hits, &op);
	if (hits)
		__sync_fetch_and_add(hits, 1);
}

/* The thread's own copy of its process's runtime ranges, renewed when procs changed:
 * a look-up per call would cost more than all the rest of this. */
static __noinline int renew_ranges(struct thread *t, __u32 generation)
{
	struct proc *proc;
	__u32 pid;

	if (!t)
		return 0;
	pid = t->pid;
	proc = bpf_map_lookup_elem(&procs, &pid);
	t->generation = generation;
	t->proc_flags = proc ? proc->flags : 0;
	for (int i = 0; i < CALLER_RANGES; i++) {
		t->range[i].start = proc ? proc->range[i].start : 0;
		t->range[i].end = proc ? proc->range[i].end : 0;
	}
	return 0;
}

static __always_inline __u16 caller_of(struct thread *t, __u64 ip, __u32 generation)
{
	if (t->generation != generation)
		renew_ranges(t, generation);
	for (int i = 0; i < CALLER_RANGES; i++) {
		if (ip - t->range[i].start < t->range[i].end - t->range[i].start)
			return i < RUNTIME_RANGES ? 1 : 0;
	}
	return t->proc_flags & PROC_RANGES ? 2 : 0;
}

/* Not there yet. Without room for a thread's own share, that of others serves. */
static __noinline struct op_stats *new_stats(struct op_key *key)
{
	__u32 zero = 0;
	void *none = bpf_map_lookup_elem(&no_stats, &zero);
	struct op_stats *s;

	if (!none)
		return 0;
	bpf_map_update_elem(&op_stats, key, none, BPF_NOEXIST);
	s = bpf_map_lookup_elem(&op_stats, key);
	if (s || !key->share)
		return s;
	key->share = 0;
	bpf_map_update_elem(&op_stats, key, none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&op_stats, key);
}

static __always_inline struct op_stats *stats_of(struct op_key *key, const struct thread *t)
{
	struct op_stats *s;

	key->share = t->slot & (SHARES - 1);
	s = bpf_map_lookup_elem(&op_stats, key);
	return s ? s : new_stats(key);
}

static __always_inline __u64 bytes_of(const struct op_info *info, const struct frame *f, __u16 *flags)
{
	__u64 bytes;

	if (info->bytes_arg == NO_ARG) {
		*flags |= CALL_NO_BYTES;
		return 0;
	}
	bytes = nth(f, info->bytes_arg);
	if (info->bytes_by_arg != NO_ARG)
		bytes *= nth(f, info->bytes_by_arg);
	if (info->flags & OP_TYPED_COUNT) {
		__u64 size = type_bytes(nth(f, info->dtype_arg) & 0xffffffff);
		if (!size)
			*flags |= CALL_NO_BYTES;
		bytes *= size;
	}
	return bytes;
}

static __always_inline bool spared(const struct settings *set, struct task_struct *task)
{
	return set->spare && (set->spare == SPARE_EVERYBODY || task_filtered(task));
}

/* A call that is counted and not timed: its return is not asked for, and the time in it shows as
 * the thread's own until the agent puts it where timed ones say. Not 0. */
static __always_inline int count_alone(const struct uregs *regs, struct thread *t, const struct op_info *info,
				       __u32 op, __u32 depth, const struct settings *set)
{
	struct op_key key = {.pid = t->pid, .op = op};
	struct frame *f = &t->frames[depth];
	struct op_stats *s;
	__u16 flags = 0;
	__u64 bytes, ip = 0;

	if (info->flags & OP_CALLER && !arch_return_to(regs, &ip))
		key.caller = caller_of(t, ip, set->generation);
	s = stats_of(&key, t);
	if (!s) {
		lose(LOSS_HISTOGRAM_FULL, 1);
		return 1;
	}
	__sync_fetch_and_add(&s->unsampled, 1);
	if (info->bytes_arg != NO_ARG) {
		arch_args(regs, f->args);
		bytes = bytes_of(info, f, &flags);
		if (!(flags & CALL_NO_BYTES))
			__sync_fetch_and_add(&s->bytes, bytes);
	}
	__sync_fetch_and_add(&s->untimed, 1);
	return 1;
}

/* While operations are closed nobody sees what the GPU is given (whether it has nothing to do: unwatched.bpf.h).
 * And calls of theirs that were under way when the probes went never return to us: they make no others
 * that are always watched. */
__noinline int renew_watch(struct thread *t)
{
	struct settings *set = get_settings();

	if (!t || !set)
		return 0;
	for (int i = 0; i < FRAMES; i++) {
		__u32 top = t->depth - 1, op;
		struct op_info *info;

		if (top >= FRAMES)
			break;
		op = t->frames[top].op;
		info = bpf_map_lookup_elem(&op_info, &op);
		if (!info || !(info->flags & OP_CYCLED))
			break;
		t->sync = t->frames[top].sync_before;
		t->depth = top;
	}
	t->watch = set->watch;
	if (set->blind) {	/* waits for the GPU are missed, too: nothing is known of the round they end */
		t->round.from_ns = 0;
		t->idle = 0;
	}
	t->busy_known = 0;
	t->polls = 0;
	t->last_event = 0;
	t->unrecorded = 1;
	return 0;
}

#endif
