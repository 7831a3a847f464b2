/* SPDX-License-Identifier: Apache-2.0
 *
 * libnccl: the end of a communicator, and questions to it.
 */
#include "nccl.h"

static void drop(int channel)
{
	struct machine *machine = nccl_device->machine();

	nccl_device->lock(machine);
	nccl_device->drop(machine, nccl_device->process(), channel);
	nccl_device->unlock(machine);
}

/* Objects stay allocated so that a second destroy can be told from the first. */
static ncclResult_t end(ncclComm_t comm, bool abandon)
{
	int i;

	if (!nccl_valid(comm))
		return NCCL_INVALID_ARGUMENT;
	comm->live = false;
	comm->magic = 0;
	for (i = 0; i < RANKS; i++) {
		struct pair *pairs[2] = {&comm->sends[i], &comm->receives[i]};
		int p;

		for (p = 0; p < 2; p++)
			if (pairs[p]->channel >= 0) {
				if (abandon)
					drop(pairs[p]->channel);
				nccl_leave(pairs[p]->channel);
			}
	}
	if (abandon)
		drop(comm->channel);
	nccl_leave(comm->channel);
	return NCCL_SUCCESS;
}

NCCL_API ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	NCCL_ENTER(ncclCommDestroy);
	return end(comm, false);
}

NCCL_API ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	NCCL_ENTER(ncclCommAbort);
	return end(comm, true);
}

#define QUESTION(function, type, value)							\
	NCCL_API function(ncclComm_t comm, type *answer);				\
	ncclResult_t function(ncclComm_t comm, type *answer)				\
	{										\
		NCCL_ENTER(function);							\
		if (!nccl_valid(comm) || !answer)					\
			return NCCL_INVALID_ARGUMENT;					\
		*answer = value;							\
		return NCCL_SUCCESS;							\
	}
QUESTION(ncclCommCount, int, comm->ranks)
QUESTION(ncclCommUserRank, int, comm->rank)
QUESTION(ncclCommCuDevice, int, comm->device)
QUESTION(ncclCommGetAsyncError, ncclResult_t, NCCL_SUCCESS)

NCCL_API ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
	NCCL_ENTER(ncclCommFinalize);
	return nccl_valid(comm) ? NCCL_SUCCESS : NCCL_INVALID_ARGUMENT;
}

NCCL_API ncclGetVersion(int *version);
ncclResult_t ncclGetVersion(int *version)
{
	NCCL_ENTER(ncclGetVersion);
	*version = 22800;
	return NCCL_SUCCESS;
}
