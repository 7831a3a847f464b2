/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * Entry and return of a traced function: pairing, statistics, which calls get a
 * record. Written once for every function and every attach shape; what differs
 * between functions is data (struct op_info, filled from attach/probes.py).
 */
#ifndef INGERO_CALL_H
#define INGERO_CALL_H

#include "walk_cost.bpf.h"
#include "comms.bpf.h"
#include "started.bpf.h"
#include "watch.bpf.h"

#define MOST_UNSAMPLED (1 << 20)
#define FEW_WALKS 4	/* of an operation in a second */

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct handle_key);
	__type(value, __s32);
} contexts SEC(".maps");

/* A process nobody announced makes its first traced call. */
static __noinline int adopt_process(struct settings *s, __u32 pid, __u64 cgroup_id, __u64 start_ns)
{
	struct proc proc = {.flags = PROC_TARGET, .cgroup_id = cgroup_id, .start_ns = start_ns};
	struct process *r;

	if (!s || !s->trace_all || pid == s->agent_pid)
		return -1;
	if (bpf_map_update_elem(&procs, &pid, &proc, BPF_NOEXIST) == -7 /* E2BIG */) {
		lose(LOSS_PROCESS_FULL, 1);
		return -1;
	}
	tell_started(bpf_get_current_task_btf());
	r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		lose(LOSS_RING_PROCESS, 1);
		return 0;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->h.type = REC_PROCESS;
	r->h.pid = pid;
	r->h.tid = (__u32)bpf_get_current_pid_tgid();
	r->h.start_ns = bpf_ktime_get_ns();
	r->h.cgroup_id = cgroup_id;
	bpf_get_current_comm(r->h.comm, sizeof(r->h.comm));
	r->event = PROCESS_SEEN;
	r->process_start_ns = start_ns;
	r->target = 1;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline struct thread *current_thread(struct task_struct *task)
{
	struct thread *t = find_thread(task);
	__u32 pid;

	if (t)
		return t;
	pid = task->tgid;
	if (!bpf_map_lookup_elem(&procs, &pid) &&
	    adopt_process(get_settings(), pid, task_cgroup(task),
			  BPF_CORE_READ(task, group_leader, start_boottime)))
		return 0;
	return new_current_thread(task);
}

/* A frame whose function was left without returning: longjmp, exception, a stack
 * that was thrown away, or a probe taken off meanwhile. The stack grows down, so an
 * entry above it tells. An entry at the same place is a tail call, the outer one's
 * return still to come, unless an inner one has already returned without it. */
static __always_inline void drop_unwound(struct thread *t, __u64 sp, __u16 op)
{
	for (int i = 0; i < FRAMES; i++) {
		__u32 top = t->depth - 1;

		if (top >= FRAMES)
			return;
		struct frame *f = &t->frames[top];
		if (f->sp > sp || (f->sp == sp && f->op != op && !f->inner_done))
			return;
		t->sync = f->sync_before;
		t->depth = top;
		lose_call(LOSS_CALL_UNWOUND);
	}
}

/* Returns 0 when the return is wanted. */
static __always_inline int call_enter(void *ctx)
{
	const struct uregs *regs = ctx;
	__u64 cookie = bpf_get_attach_cookie(ctx);
	__u32 op = cookie & (OPS - 1);
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *t = current_thread(task);
	struct op_info *info = bpf_map_lookup_elem(&op_info, &op);
	struct settings *set = get_settings();
	struct thread_cost *cost;
	struct frame *f;
	__u32 depth, bucket;
	__u64 now;

	if (!t || !info || !set)
		return 1;
	cost = cost_of(t);
	if (!cost)
		return 1;
	if (info->flags & OP_CLOSED || cookie >> COOKIE_VARIANT_SHIFT != info->variant) {
		cost->passed++;
		return 1;
	}
	if (t->watch != set->watch) {
		note_quiet(t, set, bpf_ktime_get_ns());
		renew_watch(t);
	}
	count_function(info, op);
	bucket = running_bucket(t);
	if (t->depth)
		drop_unwound(t, arch_sp(regs), op);
	depth = t->depth;
	if (depth >= FRAMES) {
		t->overflow++;
		lose(LOSS_CALL_DEPTH, 1);
		return 1;
	}
	f = &t->frames[depth];
	now = stamp(t, bucket, f->acc);
	if (info->flags & OP_WORK) {
		t->round.works++;
		if (t->idle) {
			learn_first_work(t, set->watch);
			__builtin_memcpy(t->busy_acc, f->acc, sizeof(t->busy_acc));
			t->busy_known = 1;
			t->work_ns = now;
		}
		__builtin_memcpy(t->given_acc, f->acc, sizeof(t->given_acc));
		t->idle = 0;
		t->polls = 0;
		t->unrecorded = 1;
	}
	if (!(info->flags & OP_QUIET))	/* asking what there is feeds no GPU */
		t->flags |= H_FEEDER;
	if ((info->every > 1 && bpf_get_prandom_u32() & (info->every - 1)) || spared(set, task)) {
		cost->counted[info->meter & (METERS - 1)]++;
		return count_alone(regs, t, info, op, depth, set);
	}
	f->op = op;
	f->inner_done = 0;
	f->sp = arch_sp(regs);
	arch_args(regs, f->args);
	if (info->flags & OP_STACK_ARGS && ARG_REGISTERS == 6 &&
	    bpf_probe_read_user(&f->args[6], 16, (const void *)arch_stack_arg(regs, 6)))
		lose(LOSS_USER_READ, 1);
	if (info->flags & OP_BY_VALUE_ID)
		f->id_hash = hash_id(arch_by_value(regs, f->args, info->id_arg));
	f->sync_before = t->sync;
	if (info->flags & OP_SYNC) {
		if (not_all_seen(t, set))	/* it has something to wait for, or begins again in a moment */
			t->idle = 0;
		t->copies = info->bytes_arg != NO_ARG;
		t->woken = 0;
		t->sync++;
	}
	f->start_ns = now;
	t->depth = depth + 1;
	return 0;
}

/* The frame this return belongs to, or -1: the stack pointer tells. */
static __always_inline int pop(struct thread *t, __u64 entry_sp)
{
	for (int i = 0; i < FRAMES; i++) {
		__u32 top = t->depth - 1;

		if (top >= FRAMES)
			break;
		struct frame *f = &t->frames[top];
		/* Frames further out than this return belong to calls still running. */
		if (f->sp > entry_sp)
			break;
		t->depth = top;
		t->sync = f->sync_before;
		if (f->sp == entry_sp) {
			if (top - 1 < FRAMES && t->frames[top - 1].sp == entry_sp)
				t->frames[top - 1].inner_done = 1;
			return top;
		}
		lose_call(LOSS_CALL_UNWOUND);
	}
	if (t->overflow)
		t->overflow--;
	else
		lose_call(LOSS_RETURN_UNMATCHED);
	return -1;
}

static __always_inline __u32 slot_of(__u64 ns)
{
	__u32 msb = 0, slot;
	__u64 v = ns;

	if (ns < (1 << HIST_MIN_BITS))
		return 0;
	if (v >> 32) { msb += 32; v >>= 32; }
	if (v >> 16) { msb += 16; v >>= 16; }
	if (v >> 8) { msb += 8; v >>= 8; }
	if (v >> 4) { msb += 4; v >>= 4; }
	if (v >> 2) { msb += 2; v >>= 2; }
	if (v >> 1) msb += 1;
	slot = 1 + ((msb - HIST_MIN_BITS) << HIST_SUB_BITS) +
	       ((ns >> (msb - HIST_SUB_BITS)) & ((1 << HIST_SUB_BITS) - 1));
	return slot < HIST_SLOTS ? slot : HIST_SLOTS - 1;
}

/* Two threads at once may lose one of their extremes; the agent holds them against the slots. */
static __always_inline void note_extremes(struct op_stats *s, __u64 window, __u64 ns)
{
	struct extreme *e = &s->extreme[window & 1];

	if (e->window != window) {
		e->window = window;
		e->min_ns = ns;
		e->max_ns = ns;
		return;
	}
	if (ns < e->min_ns)
		e->min_ns = ns;
	if (ns > e->max_ns)
		e->max_ns = ns;
}

/* Every so many calls one stands for those before it: as many as are made in an interval,
 * more or less at random. By the clock instead, a burst of calls would be counted where the
 * clock strikes and not where they are made. A slow operation is sampled call by call; one
 * that became slow, by the clock, until its rate is known. */
static __always_inline bool sample_due(struct op_stats *s, const struct settings *set, __u64 window, __u64 now)
{
	__u64 since = now - s->last_sample_ns, n;

	if (s->sample_window != window) {
		n = (s->count - s->sample_count) * (set->sample_every_ns >> 10) >> (WINDOW_BITS - 10);
		s->sample_every = n > s->sample_every / 2 ? n : s->sample_every / 2;
		s->sample_count = s->count;
		s->sample_window = window;
	}
	if (s->unsampled < s->sample_at && since < 10 * set->sample_every_ns)
		return false;
	n = s->sample_every;
	if (!n && since < set->sample_every_ns)		/* its first second */
		n = (s->unsampled + 1) * set->sample_every_ns / (since + 1);
	if (n > MOST_UNSAMPLED)
		n = MOST_UNSAMPLED;
	s->sample_at = n ? n / 2 + bpf_get_prandom_u32() % n : 0;
	s->last_sample_ns = now;
	return true;
}

/* Of an operation's records in a second a few, at random: the first ones would be those of the same calls. */
static __always_inline bool one_of_few(const struct op_stats *s, const struct settings *set, bool sample)
{
	__u64 records = sample ? 1000000000ULL / (set->sample_every_ns | 1) : s->budget_last;

	return records <= FEW_WALKS || bpf_get_prandom_u32() % records < FEW_WALKS;
}

/* Whether a record also gets its stack, where not all can: within what walks may take of the thread's time,
 * or a little beyond it for an operation that had hardly any in this second. Not the first of each second: of
 * calls that come in turns, some would never have one. */
static __always_inline bool walk_due(const struct op_stats *s, const struct thread *t, const struct settings *set,
				     bool sample, __u64 now)
{
	if (!may_walk(t, set, now, one_of_few(s, set, sample) ? AHEAD_FEW : 0))
		return false;
	if (sample)
		return true;
	if (s->budget_last <= set->walks_per_second)
		return s->budget_used <= set->walks_per_second;
	if (s->budget_last > set->rare_per_second)	/* those have no record */
		return bpf_get_prandom_u32() % (set->rare_per_second + 1) < set->walks_per_second;
	return bpf_get_prandom_u32() % s->budget_last < set->walks_per_second;
}

/* Calls that deserve a record: failed, rare, or slow against their own recent norm,
 * within a budget per second; and one weighted sample per interval of the rest. */
static __always_inline __u32 deserves(struct op_stats *s, const struct settings *set, __u32 flags,
				      bool failed, __u64 ns, __u64 now, __u32 why)
{
	__u64 window = now >> WINDOW_BITS;

	if (set->record_all)
		return why | WHY_ALL | (failed ? WHY_ERROR : 0);
	if (failed)
		why |= WHY_ERROR;
	if (flags & OP_RARE)
		why |= WHY_RARE;
	/* Four times the norm and 10 us above it: scheduling noise of a microsecond call is neither. */
	if (s->count > 16 && ns > 4 * s->norm_ns && ns > s->norm_ns + 10000)
		why |= WHY_SLOW;
	if (flags & OP_QUIET)
		why &= WHY_ERROR;
	if (why) {
		if (s->budget_window != window) {
			s->budget_last = s->budget_window + 1 == window ? s->budget_used : 0;
			s->budget_window = window;
			s->budget_used = 0;
		}
		if (s->budget_used++ >= set->rare_per_second)
			why = 0;
	}
	if (sample_due(s, set, window, now))
		why |= WHY_SAMPLE;
	return why;
}

#endif
