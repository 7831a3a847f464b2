/* SPDX-License-Identifier: Apache-2.0
 *
 * libcudart: kernels and their launches.
 *
 * A kernel is known by the address of its host function. Its driver handle is asked for
 * at its first launch and kept; its name is the one registered, as nvcc's start-up code
 * does, or else the symbol at that address.
 */
#define _GNU_SOURCE
#include "runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#define KERNELS 4096	/* power of two */

struct kernel {
	const void *_Atomic host_function;
	CUfunction function;
	const char *name;
};

static struct kernel kernels[KERNELS];
static CUlibrary library;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The place of a host function in the table, or the free place where it would go. */
static struct kernel *place(const void *host_function)
{
	size_t i = ((size_t)host_function >> 4) * 0x9e3779b97f4a7c15ull >> 52;
	size_t n;

	for (n = 0; n < KERNELS; n++, i = (i + 1) % KERNELS)
		if (!kernels[i].host_function || kernels[i].host_function == host_function)
			return &kernels[i];
	return NULL;
}

static cudaError_t load(void)
{
	static const char image[] = "stub";

	return library ? SUCCESS : cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0);
}

static cudaError_t resolve(const void *host_function, struct kernel *kernel)
{
	cudaError_t error = load();
	const char *name = kernel->name;
	char made_up[32];
	Dl_info symbol;

	if (!name && dladdr(host_function, &symbol) && symbol.dli_saddr == host_function)
		name = symbol.dli_sname;
	if (!name) {
		snprintf(made_up, sizeof(made_up), "kernel_%lx", (unsigned long)host_function);
		name = made_up;
	}
	if (!error)
		error = cuLibraryGetKernel(&kernel->function, library, name);
	if (!error)
		atomic_store(&kernel->host_function, host_function);
	return error;
}

cudaError_t runtime_kernel(const void *host_function, CUfunction *function)
{
	struct kernel *kernel = host_function ? place(host_function) : NULL;
	cudaError_t error = SUCCESS;

	if (!kernel)
		return 98;	/* cudaErrorInvalidDeviceFunction */
	if (!kernel->host_function || !kernel->function) {
		pthread_mutex_lock(&lock);
		kernel = place(host_function);
		if (!kernel)
			error = OUT_OF_MEMORY;
		else if (!kernel->host_function || !kernel->function)
			error = resolve(host_function, kernel);
		pthread_mutex_unlock(&lock);
	}
	if (!error)
		*function = kernel->function;
	return error;
}

/* One global for all symbols: the stub moves no bytes. */
cudaError_t runtime_symbol(const void *symbol, CUdeviceptr *pointer)
{
	static CUdeviceptr global;
	cudaError_t error = symbol ? SUCCESS : 13;	/* cudaErrorInvalidSymbol */

	pthread_mutex_lock(&lock);
	if (!error && !global) {
		error = load();
		if (!error)
			error = cuLibraryGetGlobal(&global, NULL, library, "constants");
	}
	*pointer = global;
	pthread_mutex_unlock(&lock);
	return error;
}

static cudaError_t configuration(dim3 grid, dim3 block)
{
	return grid.x && grid.y && grid.z && block.x && block.y && block.z ? SUCCESS : INVALID_CONFIGURATION;
}

#define LAUNCH_CALLS(per_thread)									\
	static cudaError_t launch##per_thread(const void *kernel, dim3 grid, dim3 block, void **args,	\
					      size_t shared_bytes, CUstream stream, bool cooperative)	\
	{												\
		cudaError_t error = configuration(grid, block);						\
		CUfunction function;									\
													\
		if (!error)										\
			error = runtime_kernel(kernel, &function);					\
		if (error)										\
			return error;									\
		if (cooperative)									\
			return cuLaunchCooperativeKernel##per_thread(function, grid.x, grid.y, grid.z,	\
				block.x, block.y, block.z, shared_bytes, stream, args);			\
		return cuLaunchKernel##per_thread(function, grid.x, grid.y, grid.z, block.x, block.y,	\
						  block.z, shared_bytes, stream, args, NULL);		\
	}												\
	static cudaError_t launch_ex##per_thread(const cudaLaunchConfig_t *config, const void *kernel,	\
						 void **args)						\
	{												\
		cudaError_t error = config ? configuration(config->grid, config->block) : INVALID_VALUE;	\
		CUfunction function;									\
		CUlaunchConfig driver;									\
													\
		if (!error)										\
			error = runtime_kernel(kernel, &function);					\
		if (error)										\
			return error;									\
		driver = (CUlaunchConfig){								\
			.grid = {config->grid.x, config->grid.y, config->grid.z},			\
			.block = {config->block.x, config->block.y, config->block.z},			\
			.shared_bytes = config->shared_bytes, .stream = config->stream,			\
		};											\
		return cuLaunchKernelEx##per_thread(&driver, function, args, NULL);			\
	}												\
	RT_FORWARD(cudaLaunchKernel##per_thread,							\
		   (const void *kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes, CUstream stream), \
		   719, launch##per_thread(kernel, grid, block, args, shared_bytes, stream, false))	\
	RT_FORWARD(cudaLaunchCooperativeKernel##per_thread,						\
		   (const void *kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes, CUstream stream), \
		   719, launch##per_thread(kernel, grid, block, args, shared_bytes, stream, true))	\
	RT_FORWARD(cudaLaunchKernelExC##per_thread,							\
		   (const cudaLaunchConfig_t *config, const void *kernel, void **args), 719,		\
		   launch_ex##per_thread(config, kernel, args))
LAUNCH_CALLS()
LAUNCH_CALLS(_ptsz)

/* What nvcc's start-up code calls. */
STUB_API void **__cudaRegisterFatBinary(void *binary);
void **__cudaRegisterFatBinary(void *binary)
{
	static void *registered;

	registered = binary;
	return &registered;
}

STUB_API void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle;
}

STUB_API void __cudaUnregisterFatBinary(void **handle);
void __cudaUnregisterFatBinary(void **handle)
{
	(void)handle;
}

STUB_API void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function,
				     const char *name, int thread_limit, void *tid, void *bid, void *block,
				     void *grid, int *warp_size);
void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function, const char *name,
			    int thread_limit, void *tid, void *bid, void *block, void *grid, int *warp_size)
{
	struct kernel *kernel;

	(void)handle, (void)device_function, (void)thread_limit, (void)tid, (void)bid, (void)block, (void)grid,
		(void)warp_size;
	pthread_mutex_lock(&lock);
	kernel = place(host_function);
	if (kernel) {
		kernel->name = name;
		atomic_store(&kernel->host_function, host_function);
	}
	pthread_mutex_unlock(&lock);
}
