/* SPDX-License-Identifier: Apache-2.0
 *
 * libcudart: devices, initialisation and the last error.
 *
 * A thread's first call makes the primary context of its device current; later calls
 * trust that it still is, so that a call makes no driver calls of its own.
 */
#include "runtime.h"

#include <pthread.h>

#define DEVICES 64

static CUcontext contexts[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int device, ready_on = -1;
static _Thread_local cudaError_t last_error;

cudaError_t runtime_result(cudaError_t error)
{
	if (error && error != NOT_READY)
		last_error = error;
	return error;
}

cudaError_t runtime_context(int on, CUcontext *context)
{
	cudaError_t error = SUCCESS;
	CUdevice handle;

	if (on < 0 || on >= DEVICES)
		return INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	if (!contexts[on]) {
		error = cuInit(0);
		if (!error)
			error = cuDeviceGet(&handle, on);
		if (!error)
			error = cuDevicePrimaryCtxRetain(&contexts[on], handle);
	}
	*context = contexts[on];
	pthread_mutex_unlock(&lock);
	return error;
}

cudaError_t runtime_ready(void)
{
	CUcontext context;
	cudaError_t error;

	if (__builtin_expect(ready_on == device, 1))
		return SUCCESS;
	error = runtime_context(device, &context);
	if (!error)
		error = cuCtxSetCurrent(context);
	if (!error)
		ready_on = device;
	return error;
}

static cudaError_t set_device(int on)
{
	int before = device;
	cudaError_t error;

	device = on;
	error = runtime_ready();
	if (error)
		device = before;
	return error;
}

static cudaError_t with_driver(cudaError_t (*call)(int *value), int *value)
{
	cudaError_t error = value ? cuInit(0) : INVALID_VALUE;

	return error ? error : call(value);
}

#define NOT_READYING(function, arguments, usual_code, expression)			\
	RT_API function arguments;							\
	cudaError_t function arguments							\
	{										\
		if (__builtin_expect(stub_fail_armed, 0)) {				\
			static atomic_uint calls;					\
			cudaError_t forced = stub_forced(#function, &calls, usual_code);	\
			if (forced)							\
				return runtime_result(forced);				\
		}									\
		return runtime_result(expression);					\
	}

static cudaError_t set_flags(unsigned int flags)
{
	cudaError_t error = cuInit(0);

	return error ? error : cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

static cudaError_t get_device(int *value)
{
	*value = device;
	return SUCCESS;
}

NOT_READYING(cudaSetDevice, (int on), INVALID_DEVICE, set_device(on))
NOT_READYING(cudaGetDevice, (int *on), INVALID_VALUE, on ? get_device(on) : INVALID_VALUE)
NOT_READYING(cudaGetDeviceCount, (int *count), NO_DEVICE, with_driver(cuDeviceGetCount, count))
NOT_READYING(cudaSetDeviceFlags, (unsigned int flags), INVALID_VALUE, set_flags(flags))
NOT_READYING(cudaDriverGetVersion, (int *version), INVALID_VALUE, cuDriverGetVersion(version))
NOT_READYING(cudaRuntimeGetVersion, (int *version), INVALID_VALUE, (*version = 12080, SUCCESS))
RT_FORWARD(cudaDeviceSynchronize, (void), UNKNOWN, cuCtxSynchronize())
RT_FORWARD(cudaMemGetInfo, (size_t *free_bytes, size_t *total_bytes), UNKNOWN,
	   cuMemGetInfo_v2(free_bytes, total_bytes))

RT_API cudaGetLastError(void);
cudaError_t cudaGetLastError(void)
{
	cudaError_t error = last_error;

	last_error = SUCCESS;
	return error;
}

RT_API cudaPeekAtLastError(void);
cudaError_t cudaPeekAtLastError(void)
{
	return last_error;
}

STUB_API const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error)
{
	const char *text;

	if (error == INVALID_CONFIGURATION)
		return "invalid configuration argument";
	cuGetErrorString(error, &text);
	return text;
}

STUB_API const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error)
{
	const char *text;

	cuGetErrorName(error, &text);
	return text;
}
