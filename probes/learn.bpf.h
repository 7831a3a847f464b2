/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * What later calls of a process refer to: devices, contexts, communicators, kernels.
 */
#ifndef INGERO_LEARN_H
#define INGERO_LEARN_H

#include "kernel_names.bpf.h"

#define LEARNS (OP_SET_DEVICE | OP_SET_CONTEXT | OP_NEW_CONTEXT | OP_NEW_COMM | OP_FREE_COMM | OP_NAMES)

/* Communicators, contexts and devices: what later calls of the process refer to. */
static __noinline int learn_comms(const struct frame *f, const struct op_info *info, __u32 pid, __u64 out)
{
	struct handle_key key = {.pid = pid, .handle = out};
	struct comm_value value = {.hash = f->id_hash, .rank = -1, .nranks = -1};

	if (!out)	/* no part of the split, or the group is still open */
		return 0;
	if (info->flags & OP_SPLIT_COMM) {
		struct handle_key parent = {.pid = pid, .handle = nth(f, info->comm_arg)};

		name_split(&value, bpf_map_lookup_elem(&comms, &parent), (__u32)nth(f, 1));
	}
	if (info->nranks_arg != NO_ARG)
		value.nranks = (__s32)nth(f, info->nranks_arg);
	if (info->rank_arg != NO_ARG)
		value.rank = (__s32)nth(f, info->rank_arg);
	if (!(info->flags & OP_COMM_ARRAY)) {
		read_comm(pid, out, &value);
		return bpf_map_update_elem(&comms, &key, &value, BPF_ANY);
	}

	value.hash = mix(mix(0xcbf29ce484222325ULL, pid), out);
	for (int i = 0; i < 16; i++) {
		if (i >= value.nranks)
			break;
		if (bpf_probe_read_user(&key.handle, 8, (const void *)(nth(f, info->out_arg) + 8 * i)))
			break;
		value.rank = i;
		value.tries = 0;
		value.flags = 0;
		read_comm(pid, key.handle, &value);
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

#endif
