/* SPDX-License-Identifier: Apache-2.0
 *
 * libcuda: allocations.
 *
 * Device memory is kept in books only: addresses are real and unique, there is nothing
 * behind them. A freed block's address goes to the next request of the same size, as
 * real allocators do, so whoever follows pointers must expect to meet them again.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <sys/mman.h>

enum block_kind { FREE, DEVICE, MANAGED, HOST, RESERVED };

struct block {
	uint64_t base, bytes;
	enum block_kind kind;
	unsigned int device;
};

struct arena {
	uint64_t base, end, next;
	struct block *blocks;		/* by address */
	size_t count, room;
	size_t last_freed;
};

static struct arena on_device, on_host;

static bool reserve(struct arena *arena)
{
	uint64_t bytes = 1ull << 45;
	void *memory = MAP_FAILED;

	/* address space may be limited: take what there is */
	for (; !arena->base && memory == MAP_FAILED && bytes >= 1ull << 30; bytes >>= 1) {
		memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (memory != MAP_FAILED) {
			arena->base = arena->next = (uint64_t)memory;
			arena->end = arena->base + bytes;
		}
	}
	return arena->base;
}

static struct block *find(struct arena *arena, uint64_t address)
{
	size_t low = 0, high = arena->count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (arena->blocks[middle].base + arena->blocks[middle].bytes <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == arena->count || arena->blocks[low].base > address || arena->blocks[low].kind == FREE)
		return NULL;
	return &arena->blocks[low];
}

static struct block *freed(struct arena *arena, uint64_t bytes)
{
	size_t i, n;

	for (n = 0; n < arena->count && n < 256; n++) {		/* the most recent one is likely to fit */
		i = (arena->last_freed + arena->count - n) % arena->count;
		if (arena->blocks[i].kind == FREE && arena->blocks[i].bytes == bytes)
			return &arena->blocks[i];
	}
	return NULL;
}

static struct block *fresh(struct arena *arena, uint64_t bytes)
{
	struct block *grown;

	if (arena->count == arena->room) {
		grown = realloc(arena->blocks, (arena->room * 2 + 64) * sizeof(*grown));
		if (!grown)
			return NULL;
		arena->blocks = grown;
		arena->room = arena->room * 2 + 64;
	}
	if (!reserve(arena) || bytes > arena->end - arena->next)
		return NULL;
	arena->blocks[arena->count] = (struct block){.base = arena->next, .bytes = bytes};
	arena->next += bytes;
	return &arena->blocks[arena->count++];
}

/* Returns the address, or 0. */
static uint64_t take(struct arena *arena, enum block_kind kind, uint64_t bytes)
{
	bool touchable = kind == HOST || kind == MANAGED;
	uint64_t rounded = (bytes + 4095) & ~4095ull, base = 0;
	struct block *block;

	pthread_mutex_lock(&driver_lock);
	block = freed(arena, rounded);
	if (!block)
		block = fresh(arena, rounded);
	if (block && touchable && mprotect((void *)block->base, rounded, PROT_READ | PROT_WRITE))
		block = NULL;
	if (block) {
		block->kind = kind;
		block->device = driver_context->device;
		base = block->base;
	}
	pthread_mutex_unlock(&driver_lock);
	return base;
}

/* Gives back a block of one of two kinds; false if the address is not the beginning of one. */
static bool give_back(struct arena *arena, uint64_t address, enum block_kind kind, enum block_kind or_kind,
		      struct block *was)
{
	struct block *block;
	bool valid;

	pthread_mutex_lock(&driver_lock);
	block = find(arena, address);
	valid = block && block->base == address && (block->kind == kind || block->kind == or_kind);
	if (valid) {
		*was = *block;
		if (block->kind == HOST || block->kind == MANAGED) {
			madvise((void *)block->base, block->bytes, MADV_DONTNEED);
			mprotect((void *)block->base, block->bytes, PROT_NONE);
		}
		block->kind = FREE;
		arena->last_freed = block - arena->blocks;
	}
	pthread_mutex_unlock(&driver_lock);
	return valid;
}

enum memory memory_of(uint64_t address)
{
	if (address >= on_device.base && address < on_device.end)
		return ON_DEVICE;
	return address >= on_host.base && address < on_host.end ? PINNED : PAGEABLE;
}

bool memory_valid(uint64_t address, uint64_t bytes)
{
	struct block *block;
	bool valid;

	pthread_mutex_lock(&driver_lock);
	block = find(&on_device, address);
	valid = block && bytes <= block->base + block->bytes - address;
	pthread_mutex_unlock(&driver_lock);
	return valid;
}

/* Addresses that no memory is charged for: a module's globals, a reservation. */
CUdeviceptr memory_addresses(uint64_t bytes)
{
	return take(&on_device, RESERVED, bytes);
}

bool memory_forget(CUdeviceptr pointer)
{
	struct block was;

	return give_back(&on_device, pointer, RESERVED, RESERVED, &was);
}

static CUresult allocate(CUdeviceptr *pointer, enum block_kind kind, size_t bytes)
{
	uint64_t rounded = (bytes + 4095) & ~4095ull;

	if (!pointer || !bytes)
		return INVALID_VALUE;
	*pointer = 0;
	if (rounded < bytes || rounded >> 62 ||
	    !machine_charge(driver_machine, driver_process, driver_context->device, rounded))
		return OUT_OF_MEMORY;
	*pointer = take(&on_device, kind, bytes);
	if (!*pointer)
		machine_charge(driver_machine, driver_process, driver_context->device, -(int64_t)rounded);
	return *pointer ? SUCCESS : OUT_OF_MEMORY;
}

static CUresult release(CUdeviceptr pointer)
{
	struct block was;

	if (!pointer)
		return SUCCESS;
	if (!give_back(&on_device, pointer, DEVICE, MANAGED, &was))
		return INVALID_VALUE;
	machine_charge(driver_machine, driver_process, was.device, -(int64_t)was.bytes);
	return SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
	ENTER_ALLOCATION(cuMemAlloc_v2);
	stub_burn_ns(stub_settings.alloc_ns);
	return allocate(pointer, DEVICE, bytes);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	ENTER_ALLOCATION(cuMemAllocPitch_v2);
	(void)element;
	*pitch = (width + 511) & ~511ull;
	return allocate(pointer, DEVICE, *pitch * height);
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
	ENTER_ALLOCATION(cuMemAllocManaged);
	(void)flags;
	return allocate(pointer, MANAGED, bytes);
}

/* Like the real one it waits until the device has done everything asked so far. */
CUresult cuMemFree_v2(CUdeviceptr pointer)
{
	ENTER_ALLOCATION(cuMemFree_v2);
	if (pointer) {
		device_wait();
		stub_burn_ns(stub_settings.alloc_ns);
	}
	return release(pointer);
}

static CUresult allocate_host(void **pointer, size_t bytes)
{
	if (!pointer || !bytes)
		return INVALID_VALUE;
	*pointer = (void *)take(&on_host, HOST, bytes);
	return *pointer ? SUCCESS : OUT_OF_MEMORY;
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
	ENTER_ALLOCATION(cuMemAllocHost_v2);
	return allocate_host(pointer, bytes);
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
	ENTER_ALLOCATION(cuMemHostAlloc);
	(void)flags;
	return allocate_host(pointer, bytes);
}

CUresult cuMemFreeHost(void *pointer)
{
	struct block was;

	ENTER_ALLOCATION(cuMemFreeHost);
	if (pointer)
		device_wait();
	return !pointer || give_back(&on_host, (uint64_t)pointer, HOST, HOST, &was) ? SUCCESS : INVALID_VALUE;
}

#define ASYNC_FORMS(per_thread, own)								\
	CUresult cuMemAllocAsync##per_thread(CUdeviceptr *pointer, size_t bytes, CUstream stream)	\
	{											\
		ENTER(cuMemAllocAsync##per_thread);						\
		return stream_find(stream, own) ? allocate(pointer, DEVICE, bytes) : INVALID_HANDLE;	\
	}											\
	CUresult cuMemFreeAsync##per_thread(CUdeviceptr pointer, CUstream stream)		\
	{											\
		ENTER(cuMemFreeAsync##per_thread);						\
		return stream_find(stream, own) ? release(pointer) : INVALID_HANDLE;		\
	}
ASYNC_FORMS(, false)
ASYNC_FORMS(_ptsz, true)
