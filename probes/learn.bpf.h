/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * What later calls of a process refer to: devices, contexts, communicators, and the
 * names of what is launched.
 */
#ifndef INGERO_LEARN_H
#define INGERO_LEARN_H

#include "call.bpf.h"
#include "frames.bpf.h"

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
