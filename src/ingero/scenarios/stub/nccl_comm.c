/* SPDX-License-Identifier: Apache-2.0
 *
 * libnccl: communicators. Making one waits until all its ranks have come; inside a
 * group that wait happens when the group ends.
 */
#define _GNU_SOURCE
#include "nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

const struct stub_table *nccl_device;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUfunction kernel;

/* Communicators asked for in the open group, still to be waited for. */
struct join {
	struct communicator *comm;
	int split_channel;		/* -1: not a split */
	struct communicator *parent;
	ncclComm_t *result;
};
static _Thread_local struct join joins[RANKS];
static _Thread_local unsigned int join_count;

/* The id carries the nonce of the machine it was made on. */
struct id {
	uint64_t random, nonce;
};

static CUresult make_current(void)
{
	CUcontext context = NULL;
	CUresult error = cuCtxGetCurrent(&context);

	if (!error && context)
		return SUCCESS;
	error = cuInit(0);
	if (!error)
		error = cuDevicePrimaryCtxRetain(&context, 0);
	return error ? error : cuCtxSetCurrent(context);
}

static CUresult load_kernel(void)
{
	CUresult error = SUCCESS;
	CUmodule module;

	pthread_mutex_lock(&lock);
	if (!kernel) {
		error = cuModuleLoadData(&module, "stub");
		if (!error)
			error = cuModuleGetFunction(&kernel, module, RENDEZVOUS_KERNEL "_Generic_1");
	}
	pthread_mutex_unlock(&lock);
	return error;
}

ncclResult_t nccl_ready(void)
{
	const void *table;

	if (make_current())
		return NCCL_UNHANDLED_CUDA_ERROR;
	if (cuGetExportTable(&table, (const unsigned char *)STUB_TABLE_ID))
		return NCCL_SYSTEM_ERROR;	/* a real driver: this is a stub for a stub */
	nccl_device = table;
	return load_kernel() ? NCCL_UNHANDLED_CUDA_ERROR : NCCL_SUCCESS;
}

CUfunction nccl_kernel(void)
{
	return kernel;
}

bool nccl_valid(ncclComm_t comm)
{
	return comm && comm->live;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t x = (a ^ b * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;

	x ^= x >> 31;
	return x ? x : 1;
}

NCCL_API ncclGetUniqueId(ncclUniqueId *result);
ncclResult_t ncclGetUniqueId(ncclUniqueId *result)
{
	ncclResult_t error;
	struct id id;

	NCCL_ENTER(ncclGetUniqueId);
	error = result ? nccl_ready() : NCCL_INVALID_ARGUMENT;
	if (error)
		return error;
	id.nonce = nccl_device->machine()->nonce;
	if (getrandom(&id.random, sizeof(id.random), 0) < 0)
		return NCCL_SYSTEM_ERROR;
	memset(result, 0, sizeof(*result));
	memcpy(result, &id, sizeof(id));
	return NCCL_SUCCESS;
}

/* The whole id as one number, the same on every rank. */
static uint64_t hash_id(const ncclUniqueId *unique)
{
	uint64_t words[sizeof(*unique) / sizeof(uint64_t)], hash = 0xcbf29ce484222325ull;
	size_t i;

	memcpy(words, unique, sizeof(words));
	for (i = 0; i < sizeof(words) / sizeof(*words); i++)
		hash = (hash ^ words[i]) * 0x100000001b3ull;
	return hash;
}

static struct communicator *new_comm(uint64_t key, uint64_t hash, int ranks, int rank)
{
	struct communicator *comm = calloc(1, sizeof(*comm));
	int i;

	if (!comm)
		return NULL;
	comm->key = key;
	comm->hash = hash;
	comm->ranks = ranks;
	comm->rank = rank;
	for (i = 0; i < RANKS; i++)
		comm->sends[i].channel = comm->receives[i].channel = -1;
	cuCtxGetCurrent(&comm->context);
	cuCtxGetDevice(&comm->device);
	return comm;
}

static int join_channel(uint64_t key, int parties)
{
	struct machine *machine = nccl_device->machine();
	int channel;

	nccl_device->lock(machine);
	channel = nccl_device->find(machine, key, parties);
	if (channel >= 0)
		machine->channel[channel].joined++;
	nccl_device->changed(machine);
	nccl_device->unlock(machine);
	return channel;
}

/* The channel of messages from one rank to another; made by whichever comes first. */
int nccl_pair(ncclComm_t comm, int from, int to, struct pair *pair)
{
	if (pair->channel < 0)
		pair->channel = join_channel(mix(mix(comm->key, from + 1), to + 1), 2);
	return pair->channel;
}

static bool all_joined(void *what, uint64_t *at_least_ns)
{
	const struct channel *channel = what;

	(void)at_least_ns;
	return channel->joined >= channel->parties;
}

static void wait_for_all(int channel)
{
	struct machine *machine = nccl_device->machine();

	nccl_device->wait(machine, all_joined, &machine->channel[channel], BLOCK);
}

void nccl_leave(int channel)
{
	struct machine *machine = nccl_device->machine();

	nccl_device->lock(machine);
	nccl_device->leave(&machine->channel[channel]);
	nccl_device->unlock(machine);
}

static ncclResult_t later(struct join join)
{
	if (join_count == RANKS)
		return NCCL_INVALID_USAGE;
	joins[join_count++] = join;
	return nccl_group_depth ? NCCL_SUCCESS : nccl_finish_joins();
}

static ncclResult_t join(ncclComm_t *result, uint64_t key, uint64_t hash, int ranks, int rank)
{
	struct communicator *comm;

	if (!result || ranks < 1 || ranks > RANKS || rank < 0 || rank >= ranks)
		return NCCL_INVALID_ARGUMENT;
	comm = new_comm(key, hash, ranks, rank);
	if (!comm)
		return NCCL_SYSTEM_ERROR;
	comm->channel = join_channel(key, ranks);
	if (comm->channel < 0)
		return NCCL_SYSTEM_ERROR;
	*result = comm;
	return later((struct join){.comm = comm, .split_channel = -1, .result = result});
}

static ncclResult_t join_by_id(ncclComm_t *result, int ranks, const ncclUniqueId *unique, int rank)
{
	ncclResult_t error = nccl_ready();
	struct id id;

	if (error)
		return error;
	memcpy(&id, unique, sizeof(id));
	if (id.nonce != nccl_device->machine()->nonce) {
		fprintf(stderr, "stub NCCL: this id was made on another device; "
				"ranks must share one through INGERO_STUB_DEVICE\n");
		return NCCL_INVALID_USAGE;
	}
	return join(result, mix(id.random, 0), hash_id(unique), ranks, rank);
}

NCCL_API ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
	NCCL_ENTER(ncclCommInitRank);
	return join_by_id(comm, ranks, &id, rank);
}

NCCL_API ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
	NCCL_ENTER(ncclCommInitRankConfig);
	(void)config;
	return join_by_id(comm, ranks, &id, rank);
}

NCCL_API ncclCommInitRankScalable(ncclComm_t *comm, int ranks, int rank, int id_count, ncclUniqueId *ids,
				  ncclConfig_t *config);
ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int ranks, int rank, int id_count, ncclUniqueId *ids,
				      ncclConfig_t *config)
{
	NCCL_ENTER(ncclCommInitRankScalable);
	(void)config;
	return ids && id_count > 0 ? join_by_id(comm, ranks, ids, rank) : NCCL_INVALID_ARGUMENT;
}

static ncclResult_t join_on(ncclComm_t *comm, uint64_t key, int ranks, int rank, int device)
{
	CUcontext context;

	if (cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context))
		return NCCL_INVALID_ARGUMENT;
	return join(comm, key, key, ranks, rank);
}

NCCL_API ncclCommInitAll(ncclComm_t *comms, int count, const int *devices);
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int count, const int *devices)
{
	ncclResult_t error, end;
	CUcontext before = NULL;
	uint64_t key = 0;
	int i;

	NCCL_ENTER(ncclCommInitAll);
	error = comms && count > 0 ? nccl_ready() : NCCL_INVALID_ARGUMENT;
	if (!error && getrandom(&key, sizeof(key), 0) < 0)
		error = NCCL_SYSTEM_ERROR;
	if (error)
		return error;
	cuCtxGetCurrent(&before);
	nccl_group_depth++;
	for (i = 0; i < count && !error; i++)
		error = join_on(&comms[i], key | 1, count, i, devices ? devices[i] : i);
	nccl_group_depth--;
	cuCtxSetCurrent(before);
	if (error) {
		join_count = 0;
		return error;
	}
	end = nccl_group_depth ? NCCL_SUCCESS : nccl_finish_joins();
	return end;
}

/* Every rank says its colour and order; the new rank follows from all of them. */
NCCL_API ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *result, ncclConfig_t *config);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *result, ncclConfig_t *config)
{
	struct machine *machine;
	struct channel *channel;
	int index;

	NCCL_ENTER(ncclCommSplit);
	(void)config;
	if (!nccl_valid(comm) || !result)
		return NCCL_INVALID_ARGUMENT;
	machine = nccl_device->machine();
	nccl_device->lock(machine);
	index = nccl_device->find(machine, mix(comm->key, 0x5b117000 + ++comm->splits), comm->ranks);
	if (index >= 0) {
		channel = &machine->channel[index];
		channel->color[comm->rank] = color;
		channel->order[comm->rank] = key;
		channel->joined++;
	}
	nccl_device->changed(machine);
	nccl_device->unlock(machine);
	*result = NULL;
	return index < 0 ? NCCL_SYSTEM_ERROR
			 : later((struct join){.split_channel = index, .parent = comm, .result = result});
}

static int compare(const struct channel *channel, int a, int b)
{
	return channel->order[a] != channel->order[b] ? (channel->order[a] < channel->order[b] ? -1 : 1) : a - b;
}

static struct communicator *split(const struct join *join)
{
	struct channel *channel = &nccl_device->machine()->channel[join->split_channel];
	int me = join->parent->rank, color = channel->color[me], rank = 0, ranks = 0, i;
	struct communicator *comm = NULL;

	for (i = 0; i < join->parent->ranks; i++)
		if (channel->color[i] == color) {
			ranks++;
			rank += compare(channel, i, me) < 0;
		}
	if (color != NCCL_SPLIT_NOCOLOR)
		comm = new_comm(mix(channel->key, color + 1), mix(mix(join->parent->hash, join->parent->splits), color + 1),
				ranks, rank);
	if (comm) {
		comm->context = join->parent->context;
		comm->device = join->parent->device;
		comm->channel = join_channel(comm->key, ranks);
	}
	return comm;
}

ncclResult_t nccl_finish_joins(void)
{
	unsigned int i;

	for (i = 0; i < join_count; i++)
		if (joins[i].split_channel >= 0) {
			wait_for_all(joins[i].split_channel);
			joins[i].comm = *joins[i].result = split(&joins[i]);
			nccl_leave(joins[i].split_channel);
		}
	for (i = 0; i < join_count; i++)
		if (joins[i].comm) {
			wait_for_all(joins[i].comm->channel);
			joins[i].comm->live = true;
			joins[i].comm->magic = NCCL_MAGIC;
		}
	join_count = 0;
	return NCCL_SUCCESS;
}
