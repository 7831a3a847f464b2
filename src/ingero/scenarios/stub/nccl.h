/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of libnccl share, and the public ABI they speak. libnccl reaches the
 * device by launching kernels through libcuda; the memory where ranks meet comes from
 * libcuda's export table, so that a process has one view of the machine.
 */
#ifndef STUB_NCCL_H
#define STUB_NCCL_H

#include "driver_api.h"
#include "machine.h"

typedef int ncclResult_t;
typedef struct communicator *ncclComm_t;
typedef struct {
	char internal[128];
} ncclUniqueId;
typedef struct ncclConfig ncclConfig_t;

enum {
	NCCL_SUCCESS,
	NCCL_UNHANDLED_CUDA_ERROR,
	NCCL_SYSTEM_ERROR,
	NCCL_INTERNAL_ERROR,
	NCCL_INVALID_ARGUMENT,
	NCCL_INVALID_USAGE,
};

#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_API STUB_API ncclResult_t

#define NCCL_MAGIC 0x0280028002800280ull

/* Begins with its magic, and has its hash, rank, size and device together somewhere, as the
 * real one. Where is nobody's business. */
struct communicator {
	uint64_t magic;			/* while it can be used */
	bool live;
	uint64_t key;
	char between[0x12ef0];
	uint64_t hash;
	int rank, ranks, device;
	int channel;
	CUcontext context;
	uint64_t collectives;		/* numbered by every rank alike */
	uint64_t splits;
	struct pair {			/* one direction between this rank and a peer */
		int channel;		/* -1: not used yet */
		uint64_t messages;
	} sends[RANKS], receives[RANKS];
};

extern const struct stub_table *nccl_device;

#define NCCL_ENTER(function)								\
	do {										\
		if (__builtin_expect(stub_fail_armed, 0)) {				\
			static atomic_uint calls;					\
			int forced = stub_forced(#function, &calls, NCCL_UNHANDLED_CUDA_ERROR);	\
			if (forced)							\
				return forced;						\
		}									\
	} while (0)

/* nccl_comm.c */
ncclResult_t nccl_ready(void);
bool nccl_valid(ncclComm_t comm);
int nccl_pair(ncclComm_t comm, int from, int to, struct pair *pair);
CUfunction nccl_kernel(void);
ncclResult_t nccl_finish_joins(void);
void nccl_leave(int channel);

/* nccl_group.c */
extern _Thread_local int nccl_group_depth;
ncclResult_t nccl_enqueue(ncclComm_t comm, CUstream stream, int channel, uint64_t number, uint64_t bytes);

#endif
