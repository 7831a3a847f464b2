/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of libcudart share. It reaches the device only through libcuda's
 * exported functions, as the real one does.
 */
#ifndef STUB_RUNTIME_H
#define STUB_RUNTIME_H

#include "cuda_abi.h"
#include "driver_api.h"

#include <stdbool.h>

typedef int cudaError_t;
typedef struct dim3 dim3;

#define RT_API STUB_API cudaError_t

/* Notes the error for cudaGetLastError and returns it. */
cudaError_t runtime_result(cudaError_t error);

/* Makes the thread's device current, on its first call. */
cudaError_t runtime_ready(void);

/* The body of a function that is a driver call once the runtime is ready. */
#define RUNTIME_CALL(function, usual_code, expression)					\
	do {										\
		cudaError_t error;							\
		if (__builtin_expect(stub_fail_armed, 0)) {				\
			static atomic_uint calls;					\
			error = stub_forced(#function, &calls, usual_code);		\
			if (error)							\
				return runtime_result(error);				\
		}									\
		error = runtime_ready();						\
		return runtime_result(error ? error : (expression));			\
	} while (0)

/* A function in its plain form and in the one whose default stream is the thread's own. */
#define RT_FORWARD(function, arguments, usual_code, expression)				\
	RT_API function arguments;							\
	cudaError_t function arguments							\
	{										\
		RUNTIME_CALL(function, usual_code, expression);				\
	}

cudaError_t runtime_context(int device, CUcontext *context);
cudaError_t runtime_kernel(const void *host_function, CUfunction *function);
cudaError_t runtime_symbol(const void *symbol, CUdeviceptr *pointer);

#endif
