/* SPDX-License-Identifier: Apache-2.0
 *
 * libcuda: modules, functions and launches.
 *
 * A kernel takes a microsecond for each thread block, or INGERO_STUB_KERNEL_US. Kernels
 * whose name begins with RENDEZVOUS_KERNEL instead end when all parties have arrived.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define MODULE 0x6d6f6475u
#define FUNCTION 0x66756e63u

struct function {
	unsigned int magic;
	bool rendezvous;
	char *name;
	struct function *next;
};

struct module {
	unsigned int magic;
	struct function *functions;
};

/* Objects are never given back to the allocator, so that a stale handle can be told. */
static CUresult load(CUmodule *module)
{
	stub_burn_ns(stub_settings.load_ns);
	*module = calloc(1, sizeof(**module));
	if (!*module)
		return OUT_OF_MEMORY;
	(*module)->magic = MODULE;
	return SUCCESS;
}

static CUresult unload(CUmodule module)
{
	struct function *function;

	if (!module || module->magic != MODULE)
		return INVALID_HANDLE;
	for (function = module->functions; function; function = function->next)
		function->magic = 0;
	module->magic = 0;
	return SUCCESS;
}

static struct function *new_function(const char *name)
{
	struct function *function = calloc(1, sizeof(*function));

	if (!function)
		return NULL;
	function->magic = FUNCTION;
	function->name = strdup(name);
	function->rendezvous = !strncmp(name, RENDEZVOUS_KERNEL, strlen(RENDEZVOUS_KERNEL));
	return function;
}

static CUresult lookup(CUfunction *function, CUmodule module, const char *name)
{
	struct function *found;

	if (!module || module->magic != MODULE)
		return INVALID_HANDLE;
	if (!name || !*name)
		return NOT_FOUND;
	pthread_mutex_lock(&driver_lock);
	for (found = module->functions; found && strcmp(found->name, name); found = found->next)
		;
	if (!found) {
		found = new_function(name);
		if (found) {
			found->next = module->functions;
			module->functions = found;
		}
	}
	pthread_mutex_unlock(&driver_lock);
	*function = found;
	return found ? SUCCESS : OUT_OF_MEMORY;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	ENTER(cuModuleLoadData);
	return image ? load(module) : INVALID_VALUE;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, int *options, void **values)
{
	ENTER(cuModuleLoadDataEx);
	(void)count, (void)options, (void)values;
	return image ? load(module) : INVALID_VALUE;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	ENTER(cuModuleGetFunction);
	return lookup(function, module, name);
}

CUresult cuModuleUnload(CUmodule module)
{
	ENTER(cuModuleUnload);
	return unload(module);
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, int *jit_options, void **jit_values,
			   unsigned int jit_count, int *options, void **values, unsigned int count)
{
	ENTER(cuLibraryLoadData);
	(void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
	return code ? load(library) : INVALID_VALUE;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	ENTER(cuLibraryGetKernel);
	return lookup(kernel, library, name);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name)
{
	ENTER(cuLibraryGetGlobal);
	if (!library || library->magic != MODULE || !name)
		return INVALID_HANDLE;
	*pointer = memory_addresses(65536);
	if (bytes)
		*bytes = 65536;
	return *pointer ? SUCCESS : OUT_OF_MEMORY;
}

CUresult cuLibraryUnload(CUlibrary library)
{
	ENTER(cuLibraryUnload);
	return unload(library);
}

static CUresult name_of(const char **name, CUfunction function)
{
	if (!function || function->magic != FUNCTION)
		return INVALID_HANDLE;
	*name = function->name;
	return SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction function)
{
	ENTER(cuFuncGetName);
	return name_of(name, function);
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
	ENTER(cuKernelGetName);
	return name_of(name, kernel);
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
	ENTER(cuKernelGetFunction);
	*function = kernel;
	return kernel && kernel->magic == FUNCTION ? SUCCESS : INVALID_HANDLE;
}

static CUresult meet(struct stream *stream, const struct rendezvous *rendezvous)
{
	struct item *items;
	uint32_t i;

	if (stream->capture || !rendezvous->count || rendezvous->count > OUTSTANDING)
		return INVALID_VALUE;
	items = calloc(rendezvous->count, sizeof(*items));
	if (!items)
		return OUT_OF_MEMORY;
	for (i = 0; i < rendezvous->count; i++)
		items[i] = (struct item){
			.kind = COLLECTIVE, .stream = stream->index, .target = rendezvous->part[i].channel,
			.other_seq = rendezvous->part[i].number, .left_ns = rendezvous->part[i].took_ns,
		};
	stream_push(stream, items, rendezvous->count);
	free(items);
	return SUCCESS;
}

static CUresult launch(CUfunction function, const unsigned int grid[3], const unsigned int block[3],
		       struct stream *stream, void **parameters)
{
	uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];

	if (!function || function->magic != FUNCTION || !stream)
		return INVALID_HANDLE;
	if (!blocks || !block[0] || !block[1] || !block[2])
		return INVALID_VALUE;
	stub_burn_ns(stub_settings.call_ns);
	if (function->rendezvous)
		return meet(stream, *(const struct rendezvous **)parameters[0]);
	stream_work(stream, KERNEL, stub_settings.kernel_ns ? stub_settings.kernel_ns : blocks * 1000);
	return SUCCESS;
}

#define LAUNCH(own)									\
	unsigned int grid[3] = {grid_x, grid_y, grid_z};				\
	unsigned int block[3] = {block_x, block_y, block_z};				\
	(void)shared_bytes;								\
	return launch(function, grid, block, stream_find(stream, own), parameters)

#define LAUNCH_CALLS(per_thread, own)							\
	CUresult cuLaunchKernel##per_thread(LAUNCH_ARGS, void **extra)			\
	{										\
		ENTER(cuLaunchKernel##per_thread);					\
		(void)extra;								\
		LAUNCH(own);								\
	}										\
	CUresult cuLaunchCooperativeKernel##per_thread(LAUNCH_ARGS)			\
	{										\
		ENTER(cuLaunchCooperativeKernel##per_thread);				\
		LAUNCH(own);								\
	}										\
	CUresult cuLaunchKernelEx##per_thread(const CUlaunchConfig *config, CUfunction function,	\
					      void **parameters, void **extra)		\
	{										\
		ENTER(cuLaunchKernelEx##per_thread);					\
		(void)extra;								\
		if (!config)								\
			return INVALID_VALUE;						\
		return launch(function, config->grid, config->block,			\
			      stream_find(config->stream, own), parameters);		\
	}
LAUNCH_CALLS(, false)
LAUNCH_CALLS(_ptsz, true)
