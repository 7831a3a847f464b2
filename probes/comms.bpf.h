/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * NCCL communicators: what they are called, and which rank of how many this one is. Of those
 * we see being made the arguments say it; of all it stands in the communicator itself, where
 * it is read once. That memory may say anything: what cannot be is not believed.
 */
#ifndef INGERO_COMMS_H
#define INGERO_COMMS_H

#include "maps.bpf.h"

#define COMM_TRIES 8		/* at its first collectives; while a group is open nothing stands in it yet */
#define MOST_RANKS (1 << 20)
#define MOST_DEVICES 4096

struct handle_key {
	__u32 pid;
	__u32 pad;
	__u64 handle;
};

enum comm_flag {
	COMM_READ = 1,		/* what it says of itself is known */
	COMM_JOINED = 2,	/* made before we came */
	COMM_NAMED = 4,		/* its hash is not to be replaced by what it says */
};

struct comm_value {
	__u64 hash;
	__u64 seq;
	__u64 splits;
	__s32 rank;
	__s32 nranks;
	__u32 flags;
	__u32 tries;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct handle_key);
	__type(value, struct comm_value);
} comms SEC(".maps");

static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	return (hash ^ word) * 0x100000001b3ULL;
}

/* The 128-byte NCCL id as one number; Python computes the same. */
static __noinline __u64 hash_id(__u64 address)
{
	__u64 words[16];
	__u64 hash = 0xcbf29ce484222325ULL;

	if (bpf_probe_read_user(words, sizeof(words), (const void *)address)) {
		lose(LOSS_USER_READ, 1);
		return 0;
	}
	for (int i = 0; i < 16; i++)
		hash = mix(hash, words[i]);
	return hash ? hash : 1;
}

/* What the communicator says of itself. It must agree with what its making told. */
static __noinline int read_comm(__u32 pid, __u64 handle, struct comm_value *comm)
{
	struct proc *proc = bpf_map_lookup_elem(&procs, &pid);
	struct {
		__s32 rank, nranks, device;
	} at;
	__u64 hash, magic = 0;

	if (!proc || !comm || proc->comm.state != COMMS_READABLE || comm->tries >= COMM_TRIES)
		return -1;
	comm->tries++;
	if (proc->comm.magic && (bpf_probe_read_user(&magic, sizeof(magic), (const void *)handle) ||
				 magic != proc->comm.magic))
		return -1;
	if (bpf_probe_read_user(&at, sizeof(at), (const void *)(handle + proc->comm.rank_at)) ||
	    bpf_probe_read_user(&hash, sizeof(hash), (const void *)(handle + proc->comm.hash_at)))
		return -1;
	if (at.nranks < 1 || at.nranks > MOST_RANKS || at.rank < 0 || at.rank >= at.nranks || at.device < 0 ||
	    at.device >= MOST_DEVICES || !hash)
		return -1;
	if ((comm->nranks >= 0 && comm->nranks != at.nranks) || (comm->rank >= 0 && comm->rank != at.rank))
		return -1;
	comm->rank = at.rank;
	comm->nranks = at.nranks;
	if (!(comm->flags & COMM_NAMED))
		comm->hash = hash;
	comm->flags |= COMM_READ;
	return 0;
}

/* Splits of a communicator that was seen being made are named after it, their colour and their number: some NCCLs
 * give two of them one hash; and whether theirs can be read yet depends on when the agent looked at the process, so
 * that ranks of one split would be called different things. */
static __always_inline void name_split(struct comm_value *comm, struct comm_value *parent, __u32 color)
{
	if (!parent || !parent->hash || parent->flags & COMM_JOINED)
		return;
	comm->hash = mix(mix(parent->hash, color), __sync_fetch_and_add(&parent->splits, 1));
	comm->flags |= COMM_NAMED;
}

/* Its number, and its communicator's entry made where there is none. */
static __always_inline __u64 next_collective(__u32 pid, __u64 handle)
{
	struct handle_key key = {.pid = pid, .handle = handle};
	struct comm_value joined = {.rank = -1, .nranks = -1, .flags = COMM_JOINED};
	struct comm_value *comm = bpf_map_lookup_elem(&comms, &key);

	if (!comm) {	/* attached after it was made: number its collectives all the same */
		bpf_map_update_elem(&comms, &key, &joined, BPF_NOEXIST);
		comm = bpf_map_lookup_elem(&comms, &key);
	}
	if (!comm)
		return 0;
	if (!(comm->flags & COMM_READ))
		read_comm(pid, handle, comm);
	return __sync_fetch_and_add(&comm->seq, 1);
}

#endif
