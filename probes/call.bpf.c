/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * Every traced function of libcudart, libcuda and libnccl. The operation is data:
 * the attach cookie is its number. Three attach shapes share this code; the loader
 * picks the newest the kernel takes.
 */
#include "done.bpf.h"
#include "learn.bpf.h"
#include "walk.bpf.h"

static __always_inline __u64 out_of(const struct op_info *info, const struct frame *f, bool ok, __u16 *flags)
{
	__u64 value = 0;

	if (info->out_arg == NO_ARG || !ok) {
		*flags |= CALL_NO_OUT;
		return 0;
	}
	if (bpf_probe_read_user(&value, info->flags & OP_OUT32 ? 4 : 8,
				(const void *)nth(f, info->out_arg))) {
		*flags |= CALL_NO_OUT;
		return 0;
	}
	return value;
}

static __always_inline void name_comm(struct call *r, const struct op_info *info, const struct frame *f,
				      __u64 out)
{
	struct handle_key key = {.pid = r->h.pid};
	struct comm_value *comm;

	key.handle = info->flags & OP_NEW_COMM ? out : nth(f, info->comm_arg);
	comm = bpf_map_lookup_elem(&comms, &key);
	if (!comm || (!comm->hash && comm->nranks < 0))	/* only its collectives are numbered */
		return;
	r->comm_hash = comm->hash;
	r->rank = comm->rank;
	r->nranks = comm->nranks;
	r->flags |= CALL_COMM_KNOWN | (comm->flags & COMM_JOINED ? CALL_COMM_JOINED : 0);
}

/* Only calls with a record pay for reading the caller's memory. */
static __always_inline __u64 stream_of(const struct uregs *regs, const struct op_info *info,
				       const struct frame *f, __u16 *flags)
{
	__u64 value = 0, at;

	if (info->stream_arg == NO_ARG) {
		*flags |= CALL_NO_STREAM;
		return 0;
	}
	if (info->stream_at != NO_ARG)
		at = nth(f, info->stream_arg) + info->stream_at;
	else if (info->stream_arg < ARG_REGISTERS || info->flags & OP_STACK_ARGS)
		return nth(f, info->stream_arg);
	else
		at = arch_stack_arg_after(regs, info->stream_arg);
	if (bpf_probe_read_user(&value, sizeof(value), (const void *)at))
		*flags |= CALL_NO_STREAM;
	return value;
}

/* The stack of a call within which another one's was walked; 0 when it was not, or is not known. */
static __always_inline __u64 walked_within(struct uprobe_context *ctx, struct thread *t, struct place here, __u64 start_ns,
					   __u64 now)
{
	struct scratch *c;
	__u64 id;

	if (!here.frame || t->walked_ns <= start_ns || here.frame != t->walked_frame || here.at != t->walked_at)
		return 0;
	c = take_scratch();
	if (!c)
		return 0;
	id = add_native(&c->s, t->walked_hash,
			bpf_get_stack(ctx, c->s.native, sizeof(c->s.native), BPF_F_USER_STACK));
	if (!was_sent(id, now)) {
		__sync_lock_test_and_set(&c->busy, 0);
		return 0;
	}
	release(t, c, now);
	return id;
}

static __always_inline __u64 stack_of_call(struct uprobe_context *ctx, struct thread *t, __u64 start_ns, __u64 now)
{
	struct place here = current_place(t);
	struct scratch *c;
	__u64 hash, id;

	id = walked_within(ctx, t, here, start_ns, now);
	if (id)
		return id;
	c = begin_stack(t, now, MAX_WALK, &hash);
	if (!c)
		return 0;
	t->walked_ns = now;
	t->walked_frame = here.frame;
	t->walked_at = here.at;
	t->walked_hash = hash;
	return finish_stack(t, c, hash, bpf_get_stack(ctx, c->s.native, sizeof(c->s.native), BPF_F_USER_STACK),
			    now);
}

/* At the return the caller's frames are still there. Not static, like the next one. */
__noinline int walk_call(struct uprobe_context *ctx, struct thread *t, __u32 index, __u64 now)
{
	struct settings *set = get_settings();
	struct frame *f;

	if (!t || !set || index >= FRAMES)
		return 0;
	f = &t->frames[index];
	f->stack_id = 0;
	if (!set->stacks || f->flags & FRAME_BARE || (set->outermost && f->flags & CALL_NESTED))
		return 0;
	f->stack_id = stack_of_call(ctx, t, f->start_ns, now);
	if (!set->record_all)
		charge_walk(t, set, now);
	return 0;
}

/* Write the record. Not static: the verifier looks at it by itself instead of once per
 * path that leads here, which took half a second. Returns 0 when it is in the ring. */
__noinline int record_call(struct uprobe_context *ctx, struct thread *t, __u32 index, __u64 now, __u64 why_weight)
{
	const struct uregs *regs = (const struct uregs *)ctx;
	struct op_info *info;
	struct frame *f;
	struct thread_cost *cost;
	struct call *r;
	__u32 op;
	__u16 flags;

	if (!t || index >= FRAMES)
		return -1;
	f = &t->frames[index];
	op = f->op;
	info = bpf_map_lookup_elem(&op_info, &op);
	if (!info)
		return -1;
	r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r)
		return -1;
	flags = f->flags;
	fill_header(&r->h, REC_CALL, t);
	r->h.start_ns = f->start_ns;
	bpf_get_current_comm(r->h.comm, sizeof(r->h.comm));
	r->duration_ns = now - f->start_ns;
	r->op = op;
	r->why = why_weight;
	r->weight = why_weight >> 32;
	r->depth = t->depth;
	r->gpu_id = t->gpu_id;
	r->ret = f->ret;
	for (int i = 0; i < 6; i++)
		r->args[i] = f->args[i];
	r->args[6] = 0;
	r->args[7] = 0;
	if (ARG_REGISTERS > 6 || info->flags & OP_STACK_ARGS) {
		r->args[6] = f->args[6];
		r->args[7] = f->args[7];
	} else if (info->arguments > 6) {
		bpf_probe_read_user(&r->args[6], 16, (const void *)arch_stack_arg_after(regs, 6));
	}
	r->stream = stream_of(regs, info, f, &flags);
	r->flags = flags;
	r->out = f->out;
	r->bytes = f->bytes;
	r->caller_ip = arch_caller_ip(regs);
	for (int i = 0; i < BUCKETS; i++)
		r->split[i] = t->ended[i] - f->acc[i];
	r->stack_id = f->stack_id;
	r->host_function = f->flags & FRAME_PAIRED ? f->host_function : 0;
	r->comm_hash = 0;
	r->seq = f->seq;
	r->rank = -1;
	r->nranks = -1;
	if (info->comm_arg != NO_ARG || info->flags & OP_NEW_COMM)
		name_comm(r, info, f, f->out);
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	cost = cost_of(t);
	if (cost)
		cost->records++;
	return 0;
}

static __always_inline __u64 collective_number(const struct thread *t, const struct frame *f,
					       const struct op_info *info)
{
	return next_collective(t->pid, nth(f, info->comm_arg));
}

static __always_inline void count_call(struct op_stats *s, const struct thread *t, const struct frame *f,
				       __u64 ns, __u32 bucket, bool failed, __u64 now)
{
	__sync_fetch_and_add(&s->sum_ns, ns);
	if (!failed && !(f->flags & CALL_NO_BYTES))	/* what failed took and moved nothing */
		__sync_fetch_and_add(&s->bytes, f->bytes);
	if (failed)
		__sync_fetch_and_add(&s->errors, 1);
	if (t->ended[bucket] - f->acc[bucket] == ns) {	/* never left its core: the usual case */
		__sync_fetch_and_add(&s->split[bucket], ns);
	} else {
		for (int i = 0; i < BUCKETS; i++) {
			__u64 part = t->ended[i] - f->acc[i];
			if (part)
				__sync_fetch_and_add(&s->split[i], part);
		}
	}
	__sync_fetch_and_add(&s->slots[slot_of(ns) & (HIST_SLOTS - 1)], 1);
	note_extremes(s, now >> WINDOW_BITS, ns);
	s->norm_ns = s->count ? s->norm_ns - s->norm_ns / 16 + ns / 16 : ns;
	__sync_fetch_and_add(&s->count, 1);
}

/* A call that was counted and is to have a record. */
struct counted {
	struct op_key key;
	__u32 index;
	__u64 now;
	__u64 why_weight;
};

/* Not 0: it is. */
static __noinline int count_return(void *ctx, struct thread *t, struct counted *done)
{
	const struct uregs *regs = ctx;
	struct settings *set = get_settings();
	struct op_key key = {};
	struct op_info *info;
	struct op_stats *s;
	struct frame *f;
	__u64 now, ns, weight = 1;
	__u32 bucket, op, why = 0;
	__u16 flags;
	bool failed;
	int index;

	if (!t || !set)
		return 0;
	bucket = running_bucket(t);
	now = stamp(t, bucket, t->ended);
	index = pop(t, arch_entry_sp(regs));
	barrier_var(index);	/* the verifier must see the bounds checked, though the compiler knows them */
	if (index < 0 || index >= FRAMES)
		return 0;
	done->index = index;
	done->now = now;
	f = &t->frames[index];
	op = f->op;
	info = bpf_map_lookup_elem(&op_info, &op);
	if (!info)
		return 0;
	count_timed(t, info->meter);
	ns = now - f->start_ns;
	flags = t->depth ? CALL_NESTED : 0;
	f->ret = info->flags & OP_STATUS ? (__s64)(__s32)arch_return_value(regs) : (__s64)arch_return_value(regs);
	failed = info->flags & OP_STATUS && f->ret != 0 && !(info->flags & OP_NOT_READY_OK && f->ret == 600) &&
		 !(info->flags & OP_IN_PROGRESS_OK && f->ret == 7);
	if (info->flags & OP_RECORD_EVENT) {
		t->last_event = f->args[0];
		t->unrecorded = 0;
	}
	if (t->watch != set->watch)
		renew_watch(t);
	/* Whether an event is the last of its work shows only while launches are watched. */
	if (info->flags & OP_DRAIN && !failed && !t->idle && !(set->watch & 1 && info->flags & OP_EVENT_SYNC))
		wait_over(t, index, info->flags, now);
	if (info->flags & OP_WAIT && !t->depth && !failed &&
	    (!(info->flags & OP_MAY_WAIT) || t->ended[GPU_WAIT] - f->acc[GPU_WAIT] > WAITED_NS))
		end_round(t, f->sp, (__u64)op << 32 | info->flags, now);
	if (info->flags & OP_NOT_READY_OK) {
		t->polls = f->ret == 600 && gave_work(t);
		if (t->polls)	/* so it was given something, seen or not */
			t->idle = 0;
		if (t->polls && drains_at(t, f, info->flags))
			note_not_yet(t, now);
	}
	f->bytes = bytes_of(info, f, &flags);
	f->out = out_of(info, f, !failed, &flags);
	f->seq = 0;
	if (info->flags & LEARNS && !failed)
		learn(t, f, info, f->out);
	if (info->flags & OP_COLLECTIVE)
		f->seq = collective_number(t, f, info);

	key.pid = t->pid;
	key.op = op;
	if (info->flags & OP_CALLER) {
		key.caller = caller_of(t, arch_caller_ip(regs), set->generation);
		flags |= key.caller == 1 ? CALL_FROM_RUNTIME : key.caller == 2 ? CALL_DIRECT : 0;
		if (key.caller == 1 && info->flags & OP_INNER)
			flags |= CALL_NESTED;
	}
	f->flags = flags;
	done->key = key;
	if (t->host_function && info->flags & OP_LAUNCH && key.caller != 2)
		why = pair_launch(t, f, nth(f, info->kernel_arg), set->learning);
	s = stats_of(&key, t);
	if (info->flags & OP_EVENT_SYNC && info->flags & OP_SYNC && !t->sync && !t->idle)
		wait_late(t, index, now);
	if (!s) {	/* the kernel's stock of memory is refilled a moment later */
		why = WHY_UNCOUNTED | (failed ? WHY_ERROR : 0);
		done->why_weight = why | 1ULL << 32;
		return 1;
	}
	why = deserves(s, set, info->flags, failed, ns, now, why);
	if (!(why & (WHY_ALL | WHY_ERROR)) && !walk_due(s, t, set, why & WHY_SAMPLE, now))
		f->flags |= FRAME_BARE;
	count_call(s, t, f, ns, bucket, failed, now);
	if (!why) {
		__sync_fetch_and_add(&s->unsampled, 1);
		return 0;
	}
	if (why & (WHY_SAMPLE | WHY_ALL))
		weight += __sync_lock_test_and_set(&s->unsampled, 0);
	done->why_weight = why | weight << 32;
	return 1;
}

static __noinline int note_record(struct thread *t, struct counted *done, bool written)
{
	struct op_stats *s;

	if (done->why_weight & WHY_UNCOUNTED) {
		if (!written)
			lose(LOSS_HISTOGRAM_FULL, 1);
		return 0;
	}
	s = stats_of(&done->key, t);
	if (s && written)
		__sync_fetch_and_add(&s->recorded, 1);
	if (written)
		return 0;
	lose(LOSS_RING_CALL, 1);
	if (s) {
		__sync_fetch_and_add(&s->dropped, 1);
		__sync_fetch_and_add(&s->unsampled, done->why_weight >> 32);
	}
	return 0;
}

/* One after the other, not one within the other: before 6.13 all functions of a chain of calls have 512 bytes of
 * stack between them. */
static __always_inline int call_return(void *ctx, struct thread *t)
{
	struct counted done = {};

	if (!t || !count_return(ctx, t, &done))
		return 0;
	walk_call(ctx, t, done.index, done.now);
	note_record(t, &done, !record_call(ctx, t, done.index, done.now, done.why_weight));
	return 0;
}

static __always_inline int enter_alone(void *ctx)
{
	call_enter(ctx);
	return 0;
}

static __always_inline int return_alone(void *ctx)
{
	return call_return(ctx, find_thread(bpf_get_current_task_btf()));
}

static __noinline int enter_apart(void *ctx)	/* its stack is not the return's, too */
{
	return call_enter(ctx);
}

/* 6.13+: one probe serves both ends; a non-zero result skips the return. */
SEC("uprobe/session")
int call_session(void *ctx)
{
	return session_returns(ctx) ? return_alone(ctx) : enter_apart(ctx);
}

/* 6.6+: uprobe_multi, one link per end. */
SEC("uprobe/multi_enter")
int call_multi_enter(void *ctx)
{
	return enter_alone(ctx);
}

SEC("uprobe/multi_return")
int call_multi_return(void *ctx)
{
	return return_alone(ctx);
}

/* 5.15+: one perf event per function and end. */
SEC("uprobe/perf_enter")
int call_perf_enter(void *ctx)
{
	return enter_alone(ctx);
}

SEC("uretprobe/perf_return")
int call_perf_return(void *ctx)
{
	return return_alone(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
