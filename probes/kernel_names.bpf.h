/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * Names of kernels: told when a program asks for a handle, and, while they are looked for
 * (names.bpf.c), what the runtime was given joined with the handle it passes on.
 */
#ifndef INGERO_KERNEL_NAMES_H
#define INGERO_KERNEL_NAMES_H

#include "call.bpf.h"
#include "frames.bpf.h"

struct {			/* kernels seen launched, and in which settings.learning */
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct handle_key);
	__type(value, __u32);
} launched SEC(".maps");

struct told {
	__u64 from;
	__u64 ns;
	__u64 given;		/* names until then: what `from` is called may be another by now */
};

struct {			/* names told, of all processes */
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} names_given SEC(".maps");

struct {			/* handles made from others that were told */
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct handle_key);
	__type(value, struct told);
} handles_told SEC(".maps");

/* CUDA 13 asks for the function of a kernel before many a launch. */
static __always_inline bool is_told(const struct thread *t, __u64 handle, __u64 from)
{
	struct handle_key key = {.pid = t->pid, .handle = handle};
	struct told now = {.from = from, .ns = bpf_ktime_get_ns()}, *before;
	__u64 *given = bpf_map_lookup_elem(&names_given, &(__u32){0});

	if (given)
		now.given = *given;
	before = bpf_map_lookup_elem(&handles_told, &key);
	if (before && before->from == from && before->given == now.given && now.ns - before->ns < RESEND_NS)
		return true;
	bpf_map_update_elem(&handles_told, &key, &now, BPF_ANY);
	return false;
}

/* What a handle stands for, told while the text is still there. A name that cannot be read
 * is told too, as none: the handle no longer means what it did. */
static __noinline int send_name(const struct thread *t, const struct frame *f, const struct op_info *info,
				__u64 handle)
{
	struct name *r;
	__u64 *given;
	long length = 0;

	if (info->name_arg == NO_ARG) {
		if (is_told(t, handle, nth(f, info->from_arg)))
			return 0;
	} else {
		given = bpf_map_lookup_elem(&names_given, &(__u32){0});
		if (given)
			__sync_fetch_and_add(given, 1);
	}
	r = bpf_ringbuf_reserve(&frames, sizeof(*r), 0);
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

#endif
