/* SPDX-License-Identifier: Apache-2.0
 *
 * libcuda: virtual memory management. Addresses, memory and the mapping between them are
 * separate things here; only memory counts against the device's size.
 */
#include "driver.h"

#include <stdlib.h>

struct physical {			/* cuMemCreate */
	uint64_t bytes;
	unsigned int device;
	unsigned int uses;		/* one for the handle, one for each mapping */
	uint64_t mapped_at;
	struct physical *next;
};

static struct physical *physicals;

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr address,
			     unsigned long long flags)
{
	ENTER_ALLOCATION(cuMemAddressReserve);
	(void)alignment, (void)address, (void)flags;
	*pointer = bytes ? memory_addresses(bytes) : 0;
	return *pointer ? SUCCESS : bytes ? OUT_OF_MEMORY : INVALID_VALUE;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
	ENTER(cuMemAddressFree);
	(void)bytes;
	return memory_forget(pointer) ? SUCCESS : INVALID_VALUE;
}

CUresult cuMemCreate(CUhandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct physical *made;

	ENTER_ALLOCATION(cuMemCreate);
	(void)flags;
	if (!bytes || bytes >> 62 || !prop || (unsigned int)prop->location_id >= driver_machine->devices)
		return INVALID_VALUE;
	if (!machine_charge(driver_machine, driver_process, prop->location_id, bytes))
		return OUT_OF_MEMORY;
	made = calloc(1, sizeof(*made));
	if (!made)
		return OUT_OF_MEMORY;
	*made = (struct physical){.bytes = bytes, .device = prop->location_id, .uses = 1};
	pthread_mutex_lock(&driver_lock);
	made->next = physicals;		/* never given back: a stale handle must stay readable */
	physicals = made;
	pthread_mutex_unlock(&driver_lock);
	*handle = (CUhandle)made;
	return SUCCESS;
}

/* By handle, or by the address it is mapped at. The lock is held. */
static struct physical *find_physical(CUhandle handle, CUdeviceptr mapped_at)
{
	struct physical *p;

	for (p = physicals; p; p = p->next)
		if (p->uses && (handle ? (CUhandle)p == handle : p->mapped_at == mapped_at))
			return p;
	return NULL;
}

static CUresult drop_use(CUhandle handle, CUdeviceptr mapped_at)
{
	struct physical *physical;
	bool last;

	pthread_mutex_lock(&driver_lock);
	physical = find_physical(handle, mapped_at);
	last = physical && --physical->uses == 0;
	if (physical && !handle)
		physical->mapped_at = 0;
	pthread_mutex_unlock(&driver_lock);
	if (last)
		machine_charge(driver_machine, driver_process, physical->device, -(int64_t)physical->bytes);
	return physical ? SUCCESS : INVALID_VALUE;
}

CUresult cuMemRelease(CUhandle handle)
{
	ENTER(cuMemRelease);
	return handle ? drop_use(handle, 0) : INVALID_VALUE;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUhandle handle, unsigned long long flags)
{
	struct physical *physical;

	ENTER_ALLOCATION(cuMemMap);
	(void)offset, (void)flags;
	if (!handle || !memory_valid(pointer, bytes))
		return INVALID_VALUE;
	pthread_mutex_lock(&driver_lock);
	physical = find_physical(handle, 0);
	if (physical && !physical->mapped_at) {
		physical->mapped_at = pointer;
		physical->uses++;
	} else {
		physical = NULL;
	}
	pthread_mutex_unlock(&driver_lock);
	return physical ? SUCCESS : INVALID_VALUE;
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
	ENTER(cuMemUnmap);
	(void)bytes;
	return pointer ? drop_use(0, pointer) : INVALID_VALUE;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const void *access, size_t count)
{
	ENTER(cuMemSetAccess);
	return access && count && memory_valid(pointer, bytes) ? SUCCESS : INVALID_VALUE;
}
