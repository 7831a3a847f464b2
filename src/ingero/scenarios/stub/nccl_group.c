/* SPDX-License-Identifier: Apache-2.0
 *
 * libnccl: collectives, messages and groups.
 *
 * Calls return at once. What a group collects becomes one kernel for each communicator
 * and stream; its parts meet their peers side by side, so that a send and a receive of
 * one group cannot wait for each other.
 */
#include "nccl.h"

#include <stdlib.h>

#define GROUP_ROOM 256
#define LATENCY_NS 10000

struct part {
	ncclComm_t comm;
	CUstream stream;
	int channel;
	uint64_t number, took_ns;
};

_Thread_local int nccl_group_depth;
static _Thread_local struct part parts[GROUP_ROOM];
static _Thread_local unsigned int part_count;

static ncclResult_t launch(ncclComm_t comm, CUstream stream, struct rendezvous *rendezvous)
{
	CUlaunchConfig config = {.grid = {1, 1, 1}, .block = {512, 1, 1}, .stream = stream};
	void *parameters[] = {&rendezvous};
	CUcontext before = NULL;
	CUresult error;
	int capturing = 0;

	if (cuCtxGetCurrent(&before))
		return NCCL_UNHANDLED_CUDA_ERROR;
	if (before != comm->context)
		cuCtxSetCurrent(comm->context);
	error = cuStreamIsCapturing(stream, &capturing);
	if (!error)
		error = capturing ? CAPTURE_UNSUPPORTED
				  : cuLaunchKernelEx(&config, nccl_kernel(), parameters, NULL);
	if (before != comm->context)
		cuCtxSetCurrent(before);
	return error ? NCCL_UNHANDLED_CUDA_ERROR : NCCL_SUCCESS;
}

/* Launches all parts that go to the same place as the first one, and forgets them. */
static ncclResult_t launch_first(struct rendezvous *rendezvous)
{
	struct part first = parts[0];
	unsigned int i, kept = 0;

	rendezvous->count = 0;
	for (i = 0; i < part_count; i++) {
		if (parts[i].comm != first.comm || parts[i].stream != first.stream) {
			parts[kept++] = parts[i];
			continue;
		}
		rendezvous->part[rendezvous->count].channel = parts[i].channel;
		rendezvous->part[rendezvous->count].number = parts[i].number;
		rendezvous->part[rendezvous->count++].took_ns = parts[i].took_ns;
	}
	part_count = kept;
	return launch(first.comm, first.stream, rendezvous);
}

static ncclResult_t launch_parts(void)
{
	struct rendezvous *rendezvous;
	ncclResult_t error = NCCL_SUCCESS;

	if (!part_count)
		return NCCL_SUCCESS;
	rendezvous = malloc(sizeof(*rendezvous) + part_count * sizeof(rendezvous->part[0]));
	if (!rendezvous)
		return NCCL_SYSTEM_ERROR;
	while (part_count && !error)
		error = launch_first(rendezvous);
	part_count = 0;
	free(rendezvous);
	return error;
}

ncclResult_t nccl_enqueue(ncclComm_t comm, CUstream stream, int channel, uint64_t number, uint64_t bytes)
{
	if (channel < 0)
		return NCCL_SYSTEM_ERROR;
	if (part_count == GROUP_ROOM)
		return NCCL_INVALID_USAGE;
	parts[part_count++] = (struct part){
		comm, stream, channel, number, LATENCY_NS + bytes * 1000 / stub_settings.nccl_bytes_per_us};
	return nccl_group_depth ? NCCL_SUCCESS : launch_parts();
}

NCCL_API ncclGroupStart(void);
ncclResult_t ncclGroupStart(void)
{
	NCCL_ENTER(ncclGroupStart);
	nccl_group_depth++;
	return NCCL_SUCCESS;
}

NCCL_API ncclGroupEnd(void);
ncclResult_t ncclGroupEnd(void)
{
	ncclResult_t error;

	NCCL_ENTER(ncclGroupEnd);
	if (!nccl_group_depth)
		return NCCL_INVALID_USAGE;
	if (--nccl_group_depth)
		return NCCL_SUCCESS;
	error = nccl_finish_joins();
	return error ? error : launch_parts();
}

static uint64_t type_bytes(int type)
{
	static const unsigned char bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

	return type >= 0 && type < (int)sizeof(bytes) ? bytes[type] : 0;
}

static ncclResult_t collective(ncclComm_t comm, size_t count, int type, int root, CUstream stream)
{
	if (!nccl_valid(comm) || !type_bytes(type) || root < 0 || root >= comm->ranks)
		return NCCL_INVALID_ARGUMENT;
	return nccl_enqueue(comm, stream, comm->channel, ++comm->collectives, count * type_bytes(type));
}

#define COLLECTIVE_CALL(function, arguments, root)						\
	NCCL_API function arguments;								\
	ncclResult_t function arguments								\
	{											\
		NCCL_ENTER(function);								\
		(void)in, (void)out;								\
		return collective(comm, count, type, root, stream);				\
	}
#define BUFFERS const void *in, void *out, size_t count, int type
COLLECTIVE_CALL(ncclAllReduce, (BUFFERS, int op, ncclComm_t comm, CUstream stream), ((void)op, 0))
COLLECTIVE_CALL(ncclBroadcast, (BUFFERS, int root, ncclComm_t comm, CUstream stream), root)
COLLECTIVE_CALL(ncclReduce, (BUFFERS, int op, int root, ncclComm_t comm, CUstream stream), ((void)op, root))
COLLECTIVE_CALL(ncclAllGather, (BUFFERS, ncclComm_t comm, CUstream stream), 0)
COLLECTIVE_CALL(ncclReduceScatter, (BUFFERS, int op, ncclComm_t comm, CUstream stream), ((void)op, 0))
COLLECTIVE_CALL(ncclAlltoAll, (BUFFERS, ncclComm_t comm, CUstream stream), 0)
COLLECTIVE_CALL(ncclGather, (BUFFERS, int root, ncclComm_t comm, CUstream stream), root)
COLLECTIVE_CALL(ncclScatter, (BUFFERS, int root, ncclComm_t comm, CUstream stream), root)

NCCL_API ncclBcast(void *buffer, size_t count, int type, int root, ncclComm_t comm, CUstream stream);
ncclResult_t ncclBcast(void *buffer, size_t count, int type, int root, ncclComm_t comm, CUstream stream)
{
	NCCL_ENTER(ncclBcast);
	(void)buffer;
	return collective(comm, count, type, root, stream);
}

static bool valid_message(ncclComm_t comm, int type, int peer)
{
	return nccl_valid(comm) && type_bytes(type) && peer >= 0 && peer < comm->ranks;
}

NCCL_API ncclSend(const void *buffer, size_t count, int type, int peer, ncclComm_t comm, CUstream stream);
ncclResult_t ncclSend(const void *buffer, size_t count, int type, int peer, ncclComm_t comm, CUstream stream)
{
	struct pair *pair;

	NCCL_ENTER(ncclSend);
	(void)buffer;
	if (!valid_message(comm, type, peer))
		return NCCL_INVALID_ARGUMENT;
	pair = &comm->sends[peer];
	return nccl_enqueue(comm, stream, nccl_pair(comm, comm->rank, peer, pair), ++pair->messages,
			    count * type_bytes(type));
}

NCCL_API ncclRecv(void *buffer, size_t count, int type, int peer, ncclComm_t comm, CUstream stream);
ncclResult_t ncclRecv(void *buffer, size_t count, int type, int peer, ncclComm_t comm, CUstream stream)
{
	struct pair *pair;

	NCCL_ENTER(ncclRecv);
	(void)buffer;
	if (!valid_message(comm, type, peer))
		return NCCL_INVALID_ARGUMENT;
	pair = &comm->receives[peer];
	return nccl_enqueue(comm, stream, nccl_pair(comm, peer, comm->rank, pair), ++pair->messages,
			    count * type_bytes(type));
}

STUB_API const char *ncclGetErrorString(ncclResult_t error);
const char *ncclGetErrorString(ncclResult_t error)
{
	static const char *const texts[] = {
		"no error", "unhandled cuda error", "unhandled system error", "internal error",
		"invalid argument", "invalid usage",
	};

	return error >= 0 && error < (int)(sizeof(texts) / sizeof(*texts)) ? texts[error] : "unknown result code";
}
