/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * Every traced function of libcudart, libcuda and libnccl. The operation is data:
 * the attach cookie is its number. Three attach shapes share this code; the loader
 * picks the newest the kernel takes.
 */
#include "call.bpf.h"
#include "walk.bpf.h"

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

#define LEARNS (OP_SET_DEVICE | OP_SET_CONTEXT | OP_NEW_CONTEXT | OP_NEW_COMM | OP_FREE_COMM | OP_NAMES)

/* What a handle stands for, told while the text is still there. A name that cannot be read
 * is told too, as none: the handle no longer means what it did. */
static __noinline int send_name(const struct thread *t, const struct frame *f, const struct op_info *info,
				__u64 handle)
{
	struct name *r = bpf_ringbuf_reserve(&frames, sizeof(*r), 0);
	long length = 0;

	if (!r) {
		lose(LOSS_RING_STACK, 1);
		return 0;
	}
	fill_header(&r->h, REC_NAME, t);
	r->h.start_ns = bpf_ktime_get_ns();
	bpf_get_current_comm(r->h.comm, sizeof(r->h.comm));
	r->handle = handle;
	r->from = nth(f, info->from_arg);
	r->op = f->op;
	if (info->name_arg != NO_ARG)
		length = bpf_probe_read_user_str(r->text, NAME_BYTES, (const void *)nth(f, info->name_arg));
	if (length < 0)
		lose(LOSS_USER_READ, 1);
	r->length = length >= NAME_BYTES ? NAME_BYTES : length > 0 ? length - 1 : 0;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Communicators, contexts and devices: what later calls of the process refer to. */
static __noinline int learn_comms(const struct frame *f, const struct op_info *info, __u32 pid, __u64 out)
{
	struct handle_key key = {.pid = pid, .handle = out};
	struct comm_value value = {.hash = f->id_hash, .rank = -1, .nranks = -1};

	if (info->flags & OP_SPLIT_COMM) {
		struct handle_key parent = {.pid = pid, .handle = nth(f, info->comm_arg)};
		struct comm_value *p = bpf_map_lookup_elem(&comms, &parent);
		if (!p || !p->hash)
			return 0;
		value.hash = mix(mix(p->hash, nth(f, 1) & 0xffffffff), __sync_fetch_and_add(&p->splits, 1));
	}
	if (info->nranks_arg != NO_ARG)
		value.nranks = (__s32)nth(f, info->nranks_arg);
	if (info->rank_arg != NO_ARG)
		value.rank = (__s32)nth(f, info->rank_arg);
	if (!(info->flags & OP_COMM_ARRAY))
		return bpf_map_update_elem(&comms, &key, &value, BPF_ANY);

	value.hash = mix(mix(0xcbf29ce484222325ULL, pid), out);
	for (int i = 0; i < 16; i++) {
		if (i >= value.nranks)
			break;
		if (bpf_probe_read_user(&key.handle, 8, (const void *)(nth(f, info->out_arg) + 8 * i)))
			break;
		value.rank = i;
		bpf_map_update_elem(&comms, &key, &value, BPF_ANY);
	}
	return 0;
}

static __always_inline void learn(struct thread *t, const struct frame *f, const struct op_info *info, __u64 out)
{
	struct handle_key key = {.pid = t->pid};

	if (info->flags & OP_SET_DEVICE)
		t->gpu_id = (__s32)nth(f, info->device_arg);
	if (info->flags & OP_NEW_CONTEXT) {
		__s32 device = (__s32)nth(f, info->device_arg);
		key.handle = out;
		bpf_map_update_elem(&contexts, &key, &device, BPF_ANY);
	}
	if (info->flags & OP_SET_CONTEXT) {
		__s32 *device;
		key.handle = f->args[0];
		device = bpf_map_lookup_elem(&contexts, &key);
		if (device)
			t->gpu_id = *device;
	}
	if (info->flags & OP_NEW_COMM)
		learn_comms(f, info, t->pid, out);
	if (info->flags & OP_NAMES && out)
		send_name(t, f, info, out);
	if (info->flags & OP_FREE_COMM) {
		key.handle = nth(f, info->comm_arg);
		bpf_map_delete_elem(&comms, &key);
	}
}

static __always_inline void name_comm(struct call *r, const struct op_info *info, const struct frame *f,
				      __u64 out)
{
	struct handle_key key = {.pid = r->h.pid};
	struct comm_value *comm;

	key.handle = info->flags & OP_NEW_COMM ? out : nth(f, info->comm_arg);
	comm = bpf_map_lookup_elem(&comms, &key);
	if (!comm || !comm->hash)	/* made before we came: only its collectives are numbered */
		return;
	r->comm_hash = comm->hash;
	r->rank = comm->rank;
	r->nranks = comm->nranks;
	r->flags |= CALL_COMM_KNOWN;
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

/* At the return the caller's frames are still there. Not static, like the next one. */
__noinline __u64 walk_call(struct pt_regs *ctx, struct thread *t, __u64 now)
{
	struct scratch *c;
	__u64 hash;

	if (!t)
		return 0;
	c = begin_stack(t, now, &hash);
	if (!c)
		return 0;
	return finish_stack(c, hash, bpf_get_stack(ctx, c->s.native, sizeof(c->s.native), BPF_F_USER_STACK), now);
}

/* A launch gets from the runtime to the driver at once and on the same stack. What was noted
 * longer ago or further away belongs to another one, which failed before it got here. */
#define PAIR_NS 1000000
#define PAIR_STACK 65536

/* Joins the driver's handle with what the runtime was given. Whether the call deserves a
 * record for it: the first of its kernel does. */
static __noinline __u32 pair_launch(struct thread *t, struct frame *f, __u64 kernel, __u32 learning)
{
	struct handle_key key = {.pid = t->pid, .handle = kernel};
	__u64 host_function = t->host_function;
	__u32 *seen;

	t->host_function = 0;
	if (!learning || f->start_ns - t->host_ns > PAIR_NS || t->host_sp - f->sp > PAIR_STACK)
		return 0;
	f->host_function = host_function;
	f->flags |= FRAME_PAIRED;
	seen = bpf_map_lookup_elem(&launched, &key);
	if (seen && *seen == learning)
		return 0;
	bpf_map_update_elem(&launched, &key, &learning, BPF_ANY);
	return WHY_NAME;
}

/* Write the record. Not static: the verifier looks at it by itself instead of once per
 * path that leads here, which took half a second. Returns 0 when it is in the ring. */
__noinline int record_call(struct pt_regs *ctx, struct thread *t, __u32 index, __u64 now, __u64 why_weight)
{
	const struct uregs *regs = (const struct uregs *)ctx;
	struct settings *set = get_settings();
	struct op_info *info;
	struct frame *f;
	struct call *r;
	__u64 stack_id = 0;
	__u32 op;
	__u16 flags;

	if (!t || !set || index >= FRAMES)
		return -1;
	f = &t->frames[index];
	op = f->op;
	info = bpf_map_lookup_elem(&op_info, &op);
	if (!info)
		return -1;
	if (set->stacks)
		stack_id = walk_call(ctx, t, now);
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
		r->split[i] = t->acc[i] - f->acc[i];
	r->stack_id = stack_id;
	r->host_function = f->flags & FRAME_PAIRED ? f->host_function : 0;
	r->comm_hash = 0;
	r->seq = f->seq;
	r->rank = -1;
	r->nranks = -1;
	if (info->comm_arg != NO_ARG || info->flags & OP_NEW_COMM)
		name_comm(r, info, f, f->out);
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline __u64 collective_number(const struct thread *t, const struct frame *f,
					       const struct op_info *info)
{
	struct handle_key key = {.pid = t->pid, .handle = nth(f, info->comm_arg)};
	struct comm_value unknown = {.rank = -1, .nranks = -1};
	struct comm_value *comm = bpf_map_lookup_elem(&comms, &key);

	if (!comm) {	/* attached after it was made: number its collectives all the same */
		bpf_map_update_elem(&comms, &key, &unknown, BPF_NOEXIST);
		comm = bpf_map_lookup_elem(&comms, &key);
	}
	return comm ? __sync_fetch_and_add(&comm->seq, 1) : 0;
}

static __always_inline void count_call(struct op_stats *s, const struct thread *t, const struct frame *f,
				       __u64 ns, __u32 bucket, bool failed, __u64 now)
{
	__sync_fetch_and_add(&s->count, 1);
	__sync_fetch_and_add(&s->sum_ns, ns);
	if (!(f->flags & CALL_NO_BYTES))
		__sync_fetch_and_add(&s->bytes, f->bytes);
	if (failed)
		__sync_fetch_and_add(&s->errors, 1);
	if (t->acc[bucket] - f->acc[bucket] == ns) {	/* never left its core: the usual case */
		__sync_fetch_and_add(&s->split[bucket], ns);
	} else {
		for (int i = 0; i < BUCKETS; i++) {
			__u64 part = t->acc[i] - f->acc[i];
			if (part)
				__sync_fetch_and_add(&s->split[i], part);
		}
	}
	__sync_fetch_and_add(&s->slots[slot_of(ns) & (HIST_SLOTS - 1)], 1);
	note_extremes(s, now >> WINDOW_BITS, ns);
	s->norm_ns = s->count == 1 ? ns : s->norm_ns - s->norm_ns / 16 + ns / 16;
}

/* A spinning wait looks every microsecond, a woken one returns in tens: a thread that
 * returns this soon after it got its core found the GPU done already. */
#define LATE_NS 100000

/* What contradicts the bounds moves them by a quarter; what they are wider than, hardly:
 * a thousand waits later they are forgotten. */
static __always_inline void note_after(struct bounds *b, __u64 ns)
{
	if (b->before_ns && ns > b->before_ns) {
		b->before_ns += (ns - b->before_ns) / 4;
		b->after_ns = b->before_ns;
	} else if (ns > b->after_ns) {
		b->after_ns = ns;
	} else {
		b->after_ns -= (b->after_ns - ns) / 1024;
	}
}

static __always_inline void note_before(struct bounds *b, __u64 ns)
{
	if (b->before_ns && ns < b->after_ns) {
		b->after_ns -= (b->after_ns - ns) / 4;
		b->before_ns = b->after_ns;
	} else if (!b->before_ns || ns < b->before_ns) {
		b->before_ns = ns;
	} else {
		b->before_ns += (ns - b->before_ns) / 1024;
	}
}

static __always_inline void note_exactly(struct bounds *b, __u64 ns)
{
	note_after(b, ns);
	note_before(b, ns);
}

static __always_inline __u64 usual(const struct bounds *b)
{
	return (b->before_ns + b->after_ns) / 2;
}

/* When the GPU was done, where the thread saw it: it had its core at that moment and had
 * waited for it, or it was woken. 0: it was away. */
static __always_inline __u64 seen_done(const struct thread *t, const struct frame *f, __u64 now)
{
	if (t->on_ns <= f->start_ns || now - t->on_ns > LATE_NS)
		return now - f->start_ns > LATE_NS ? now : 0;
	return t->blocked_ns && t->off_ns >= f->start_ns ? t->off_ns + t->blocked_ns : 0;
}

/* The thread was off its core when the GPU got there: how much later it returned for
 * that. Woken, it waited for a core the whole time. A spinning one knows only that the GPU
 * was not done when it left and was when it came back; other times it saw more, and then
 * the usual moment counts. It is counted from `from_ns`; for `slack` of that time the GPU
 * may have had nothing to do. */
static __always_inline __u64 late_by(const struct thread *t, const struct frame *f, struct bounds *b,
				     __u64 from_ns, __u64 slack, __u64 now)
{
	__u64 away, done;

	if (t->on_ns <= f->start_ns || now - t->on_ns > LATE_NS)
		return 0;
	away = t->on_ns - t->off_ns;
	/* preempted amid this: neither belongs to the other */
	if (t->off_ns < f->start_ns || t->on_ns < t->off_ns || away < t->blocked_ns)
		return 0;
	if (t->blocked_ns)
		return away - t->blocked_ns;
	note_after(b, t->off_ns > from_ns + slack ? t->off_ns - from_ns - slack : 0);
	note_before(b, t->on_ns - from_ns);
	done = from_ns + usual(b);
	if (done < t->off_ns)
		done = t->off_ns;
	return done < t->on_ns ? t->on_ns - done : 0;
}

/* A wait that leaves work behind. */
static __always_inline void note_late(struct thread *t, const struct frame *f, __u64 now)
{
	__u64 done = seen_done(t, f, now);

	t->late_ns += late_by(t, f, &t->wait, f->start_ns, 0, now);
	if (done)
		note_exactly(&t->wait, done - f->start_ns);
}

static __always_inline __u64 waits_between(const __u64 *from, const __u64 *to)
{
	return to[RUNQUEUE] - from[RUNQUEUE] + to[DISK_WAIT] - from[DISK_WAIT] +
	       to[MEMORY_WAIT] - from[MEMORY_WAIT] + to[LOCK_WAIT] - from[LOCK_WAIT] +
	       to[PEER_WAIT] - from[PEER_WAIT] + to[NET_WAIT] - from[NET_WAIT];
}

/* `lost` of the waits since the GPU got something to do, by what was waited for: it counts
 * as a gap, because the GPU had nothing to do any more. */
static __always_inline void add_to_gap(struct thread *t, __u64 lost, __u64 waited, __u64 inside)
{
	const __u32 waits[] = {RUNQUEUE, DISK_WAIT, MEMORY_WAIT, LOCK_WAIT, PEER_WAIT, NET_WAIT};
	__u64 part;

	for (int i = 0; i < 6; i++) {
		part = t->acc[waits[i]] - t->busy_acc[waits[i]];
		if (!i)		/* run-queue time inside the call that waits is `late`'s matter */
			part = part > inside ? part - inside : 0;
		/* in microseconds, so that the product stays within 64 bits */
		part = (part >> 10) * (lost >> 10) / ((waited >> 10) + 1) << 10;
		__sync_fetch_and_add(&t->gap[waits[i]], part);
	}
}

/* All is done. Waits for the GPU that follow a wait for something else are shorter by it:
 * only what exceeds them was lost. A wait after the last piece of work cost nothing where
 * the GPU was still busy then, and otherwise no more than all of it took longer than usual. */
static __always_inline void note_done(struct thread *t, const struct frame *f, bool sync, __u64 now)
{
	__u64 inside = t->acc[RUNQUEUE] - f->acc[RUNQUEUE];
	__u64 waited = waits_between(t->busy_acc, t->acc), amid = waits_between(t->busy_acc, t->given_acc);
	__u64 done, late = 0, hidden, most, lost = 0;

	t->known++;
	if (!t->busy_known)
		return;
	waited = waited > inside ? waited - inside : 0;
	if (sync)
		late = late_by(t, f, &t->span, t->work_ns, waited, now);
	t->late_ns += late;
	hidden = t->acc[GPU_WAIT] - t->busy_acc[GPU_WAIT] + (inside > late ? inside - late : 0);
	most = waited;
	if (hidden > WAITED_NS) {
		most = amid;
	} else if (t->span.before_ns && waited > amid) {
		most = now - t->work_ns > usual(&t->span) ? now - t->work_ns - usual(&t->span) : 0;
		if (most < amid)
			most = amid;
	}
	if (most > waited)
		most = waited;
	if (most > hidden) {
		lost = most - hidden;
		add_to_gap(t, lost, waited, inside);
	}
	done = sync ? seen_done(t, f, now) : 0;
	if (done > t->work_ns + lost)
		note_exactly(&t->span, done - t->work_ns - lost);
}

/* An event with more work behind it. Waited for, the GPU was busy all the time and still is:
 * nothing was lost. Done already, the GPU ran dry somewhere in between: as much was lost as
 * exceeds the usual wait for it; half of it where that is not known. */
static __always_inline void note_running(struct thread *t, const struct frame *f, __u64 ns, __u64 now)
{
	__u64 inside = t->acc[RUNQUEUE] - f->acc[RUNQUEUE], waited, hidden;

	t->known++;
	if (ns <= WAITED_NS && t->busy_known) {
		waited = waits_between(t->busy_acc, t->acc);
		waited = waited > inside ? waited - inside : 0;
		hidden = t->wait.before_ns ? usual(&t->wait) : waited / 2;
		if (waited > hidden)
			add_to_gap(t, waited - hidden, waited, inside);
	}
	__builtin_memcpy(t->busy_acc, t->acc, sizeof(t->busy_acc));
	__builtin_memcpy(t->given_acc, t->acc, sizeof(t->given_acc));
	t->busy_known = 1;
	t->work_ns = now;	/* it goes on with what is behind the event */
}

/* Whether the GPU has done all this thread gave it, now that a call that waits is over. */
static __always_inline bool drained(const struct thread *t, const struct frame *f, __u32 flags)
{
	if (flags & OP_MAY_WAIT)	/* without the time it was off its core for other reasons */
		return t->acc[GPU_WAIT] - f->acc[GPU_WAIT] > WAITED_NS;
	if (flags & OP_EVENT_SYNC)
		return !t->unrecorded && t->last_event == f->args[0];
	return true;
}

static __always_inline int call_return(void *ctx, struct thread *t)
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
	now = bpf_ktime_get_ns();
	bucket = running_bucket(t);
	settle(t, now, bucket);
	index = pop(t, arch_entry_sp(regs));
	barrier_var(index);	/* the verifier must see the bounds checked, though the compiler knows them */
	if (index < 0 || index >= FRAMES)
		return 0;
	f = &t->frames[index];
	op = f->op;
	info = bpf_map_lookup_elem(&op_info, &op);
	if (!info)
		return 0;
	ns = now - f->start_ns;
	flags = t->depth ? CALL_NESTED : 0;
	f->ret = info->flags & OP_STATUS ? (__s64)(__s32)arch_return_value(regs) : (__s64)arch_return_value(regs);
	failed = info->flags & OP_STATUS && f->ret != 0 && !(info->flags & OP_NOT_READY_OK && f->ret == 600) &&
		 !(info->flags & OP_IN_PROGRESS_OK && f->ret == 7);
	if (info->flags & OP_RECORD_EVENT) {
		t->last_event = f->args[0];
		t->unrecorded = 0;
	}
	if (info->flags & OP_DRAIN && !failed && !t->idle) {
		if (drained(t, f, info->flags)) {
			note_done(t, f, info->flags & OP_SYNC, now);
			t->idle = 1;
		} else if (info->flags & OP_EVENT_SYNC && !t->sync) {
			note_running(t, f, ns, now);
		}
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
	if (t->host_function && info->flags & OP_LAUNCH && key.caller != 2)
		why = pair_launch(t, f, nth(f, info->kernel_arg), set->learning);
	s = stats_of(&key);
	if (info->flags & OP_EVENT_SYNC && !t->sync && !t->idle)
		note_late(t, f, now);
	if (!s) {	/* the kernel's stock of per-core memory is refilled a moment later */
		why = WHY_UNCOUNTED | (failed ? WHY_ERROR : 0);
		if (record_call(ctx, t, index, now, why | 1ULL << 32))
			lose(LOSS_HISTOGRAM_FULL, 1);
		return 0;
	}
	why = deserves(s, set, info->flags, failed, ns, now, why);
	count_call(s, t, f, ns, bucket, failed, now);
	if (!why) {
		__sync_fetch_and_add(&s->unsampled, 1);
		return 0;
	}
	if (why & (WHY_SAMPLE | WHY_ALL))
		weight += __sync_lock_test_and_set(&s->unsampled, 0);
	if (!record_call(ctx, t, index, now, why | weight << 32)) {
		__sync_fetch_and_add(&s->recorded, 1);
		return 0;
	}
	lose(LOSS_RING_CALL, 1);
	__sync_fetch_and_add(&s->dropped, 1);
	__sync_fetch_and_add(&s->unsampled, weight);
	return 0;
}

/* 6.13+: one probe serves both ends; a non-zero result skips the return. The cookie
 * is ours from entry to return and starts as 0. */
extern __u64 *bpf_session_cookie(void) __ksym __weak;

SEC("uprobe/session")
int call_session(void *ctx)
{
	__u64 *slot = bpf_session_cookie();

	if (*slot)
		return call_return(ctx, thread_at(*slot));
	return call_enter(ctx, slot);
}

static __always_inline int enter_alone(void *ctx)
{
	__u64 slot;

	call_enter(ctx, &slot);
	return 0;
}

static __always_inline int return_alone(void *ctx)
{
	return call_return(ctx, find_thread(bpf_get_current_task_btf()));
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
