/* SPDX-License-Identifier: Apache-2.0
 *
 * libcuda: start-up, devices and contexts.
 *
 * A child forked after the library was used gets error 3, as from the real driver.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct machine *driver_machine;
struct process *driver_process;
_Thread_local struct context *driver_context;
atomic_int driver_captures;
pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;

static struct context primary[DEVICES];
static struct context *created;		/* never given back: a stale handle must stay readable */
static bool forked, paid_for_init;

static void in_child(void)
{
	forked = driver_process != NULL;
}

__attribute__((destructor)) static void leave(void)
{
	if (driver_process && !forked)
		machine_leave(driver_machine, driver_process);
	driver_process = NULL;
}

static CUresult start(void)
{
	struct process *process;

	driver_machine = machine_open();
	process = driver_machine ? machine_join(driver_machine) : NULL;
	if (!process)
		return UNKNOWN;
	pthread_atfork(NULL, NULL, in_child);
	driver_process = process;
	return SUCCESS;
}

CUresult cuInit(unsigned int flags)
{
	CUresult result = SUCCESS;

	FAIL_IF_ASKED(cuInit, UNKNOWN);
	if (flags)
		return INVALID_VALUE;
	pthread_mutex_lock(&driver_lock);
	if (forked)
		result = NOT_INITIALIZED;
	else if (!driver_process)
		result = start();
	pthread_mutex_unlock(&driver_lock);
	return result;
}

static CUresult initialised(void)
{
	return driver_process && !forked ? SUCCESS : NOT_INITIALIZED;
}

CUresult driver_ready(void)
{
	if (__builtin_expect(!driver_process || forked, 0))
		return NOT_INITIALIZED;
	return driver_context ? SUCCESS : INVALID_CONTEXT;
}

enum patience driver_patience(void)
{
	if (driver_context->flags & SCHEDULE_BLOCK)
		return BLOCK;
	return driver_context->flags & SCHEDULE_YIELD ? YIELD : SPIN;
}

CUresult cuDriverGetVersion(int *version)
{
	FAIL_IF_ASKED(cuDriverGetVersion, INVALID_VALUE);
	*version = 12080;
	return SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
	FAIL_IF_ASKED(cuDeviceGetCount, NO_DEVICE);
	if (initialised())
		return NOT_INITIALIZED;
	*count = driver_machine->devices;
	return SUCCESS;
}

static CUresult valid_device(int device)
{
	if (initialised())
		return NOT_INITIALIZED;
	return device >= 0 && device < (int)driver_machine->devices ? SUCCESS : INVALID_DEVICE;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	FAIL_IF_ASKED(cuDeviceGet, INVALID_DEVICE);
	*device = ordinal;
	return valid_device(ordinal);
}

/* Only the first context of a process is dear. The lock is held. */
static void pay_for_init(void)
{
	if (!paid_for_init)
		stub_burn_ns(stub_settings.init_ns);
	paid_for_init = true;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	FAIL_IF_ASKED(cuDevicePrimaryCtxRetain, OUT_OF_MEMORY);
	if (valid_device(device))
		return valid_device(device);
	pthread_mutex_lock(&driver_lock);
	pay_for_init();
	primary[device].device = device;
	primary[device].users++;
	pthread_mutex_unlock(&driver_lock);
	*context = &primary[device];
	return SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	FAIL_IF_ASKED(cuDevicePrimaryCtxRelease_v2, UNKNOWN);
	if (valid_device(device))
		return valid_device(device);
	if (!primary[device].users)
		return INVALID_CONTEXT;
	primary[device].users--;
	return SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
	FAIL_IF_ASKED(cuDevicePrimaryCtxSetFlags_v2, INVALID_VALUE);
	if (valid_device(device))
		return valid_device(device);
	primary[device].flags = flags & SCHEDULE_MASK;
	return SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	struct context *made;

	FAIL_IF_ASKED(cuCtxCreate_v2, OUT_OF_MEMORY);
	if (valid_device(device))
		return valid_device(device);
	made = calloc(1, sizeof(*made));
	if (!made)
		return OUT_OF_MEMORY;
	*made = (struct context){.device = device, .flags = flags & SCHEDULE_MASK, .users = 1};
	pthread_mutex_lock(&driver_lock);
	pay_for_init();
	made->next = created;
	created = made;
	pthread_mutex_unlock(&driver_lock);
	*context = driver_context = made;
	return SUCCESS;
}

static bool known(CUcontext context)
{
	struct context *other;

	if (context >= primary && context < primary + DEVICES)
		return context->users > 0;
	for (other = created; other; other = other->next)
		if (other == context)
			return context->users > 0;
	return false;
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
	FAIL_IF_ASKED(cuCtxDestroy_v2, UNKNOWN);
	if (!known(context))
		return INVALID_CONTEXT;
	context->users = 0;
	if (driver_context == context)
		driver_context = NULL;
	return SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
	FAIL_IF_ASKED(cuCtxSetCurrent, INVALID_CONTEXT);
	if (initialised())
		return NOT_INITIALIZED;
	if (context && !known(context))
		return INVALID_CONTEXT;
	driver_context = context;
	return SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
	if (initialised())
		return NOT_INITIALIZED;
	*context = driver_context;
	return SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	ENTER(cuCtxGetDevice);
	*device = driver_context->device;
	return SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
	ENTER(cuCtxSynchronize);
	if (driver_captures)
		return CAPTURE_UNSUPPORTED;
	device_wait();
	return SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	ENTER(cuMemGetInfo_v2);
	machine_lock(driver_machine);
	*total_bytes = driver_machine->memory_bytes;
	*free_bytes = *total_bytes - machine_used(driver_machine, driver_context->device);
	machine_unlock(driver_machine);
	return SUCCESS;
}

/* Like the real one: the newest version of a name, per-thread form on request. */
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status)
{
	static const char *const endings[] = {"_v2_ptsz", "_v2_ptds", "_ptsz", "_ptds", "_v2", ""};
	char name[128];
	unsigned int i;
	Dl_info self;
	void *library;

	(void)version;
	*function = NULL;
	if (!dladdr(&driver_lock, &self))
		return NOT_FOUND;
	library = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	for (i = flags & 2 ? 0 : 4; library && i < sizeof(endings) / sizeof(*endings) && !*function; i++) {
		snprintf(name, sizeof(name), "%s%s", symbol, endings[i]);
		*function = dlsym(library, name);
	}
	if (library)
		dlclose(library);
	if (status)
		*status = *function ? 0 : 1;
	return *function ? SUCCESS : NOT_FOUND;
}

static struct machine *table_machine(void)
{
	return driver_machine;
}

static struct process *table_process(void)
{
	return driver_process;
}

static const struct stub_table table = {
	sizeof(table), table_machine, table_process, machine_lock, machine_unlock,
	machine_changed, machine_wait, channel_find, channel_leave, queue_drop,
};

CUresult cuGetExportTable(const void **result, const unsigned char *id)
{
	if (memcmp(id, STUB_TABLE_ID, 16))
		return NOT_FOUND;
	*result = &table;
	return SUCCESS;
}

static const struct {
	CUresult code;
	const char *name, *text;
} errors[] = {
	{SUCCESS, "CUDA_SUCCESS", "no error"},
	{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
	{CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
	 "operation not permitted when stream is capturing"},
	{UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static unsigned int find_error(CUresult error)
{
	unsigned int i = 0, last = sizeof(errors) / sizeof(*errors) - 1;

	while (i < last && errors[i].code != error)
		i++;
	return i;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
	FAIL_IF_ASKED(cuGetErrorString, INVALID_VALUE);
	*text = errors[find_error(error)].text;
	return SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **text)
{
	FAIL_IF_ASKED(cuGetErrorName, INVALID_VALUE);
	*text = errors[find_error(error)].name;
	return SUCCESS;
}
