/* SPDX-License-Identifier: Apache-2.0
 *
 * libcudart: allocations, copies and fills.
 */
#include "runtime.h"

/* Device pointers are numbers to the driver and pointers to the runtime: same bits. */
#define PTR(pointer) ((CUdeviceptr)(pointer))
#define OUT(pointer) ((CUdeviceptr *)(pointer))

RT_FORWARD(cudaMalloc, (void **pointer, size_t bytes), OUT_OF_MEMORY, cuMemAlloc_v2(OUT(pointer), bytes))
RT_FORWARD(cudaFree, (void *pointer), INVALID_VALUE, cuMemFree_v2(PTR(pointer)))
RT_FORWARD(cudaMallocHost, (void **pointer, size_t bytes), OUT_OF_MEMORY, cuMemAllocHost_v2(pointer, bytes))
RT_FORWARD(cudaHostAlloc, (void **pointer, size_t bytes, unsigned int flags), OUT_OF_MEMORY,
	   cuMemHostAlloc(pointer, bytes, flags))
RT_FORWARD(cudaFreeHost, (void *pointer), INVALID_VALUE, cuMemFreeHost(pointer))
RT_FORWARD(cudaMallocManaged, (void **pointer, size_t bytes, unsigned int flags), OUT_OF_MEMORY,
	   cuMemAllocManaged(OUT(pointer), bytes, flags))
RT_FORWARD(cudaMallocPitch, (void **pointer, size_t *pitch, size_t width, size_t height), OUT_OF_MEMORY,
	   cuMemAllocPitch_v2(OUT(pointer), pitch, width, height, 4))

#define ASYNC_ALLOCATION(per_thread)								\
	RT_FORWARD(cudaMallocAsync##per_thread, (void **pointer, size_t bytes, CUstream stream), OUT_OF_MEMORY, \
		   cuMemAllocAsync##per_thread(OUT(pointer), bytes, stream))			\
	RT_FORWARD(cudaFreeAsync##per_thread, (void *pointer, CUstream stream), INVALID_VALUE,	\
		   cuMemFreeAsync##per_thread(PTR(pointer), stream))
ASYNC_ALLOCATION()
ASYNC_ALLOCATION(_ptsz)

static CUDA_MEMCPY2D plan_2d(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
			     size_t height, int kind)
{
	static const unsigned int types[5][2] = {
		{MEMORY_HOST, MEMORY_HOST}, {MEMORY_HOST, MEMORY_DEVICE}, {MEMORY_DEVICE, MEMORY_HOST},
		{MEMORY_DEVICE, MEMORY_DEVICE}, {MEMORY_UNIFIED, MEMORY_UNIFIED},
	};
	const unsigned int *type = types[kind >= 0 && kind < BY_ADDRESS ? kind : BY_ADDRESS];

	return (CUDA_MEMCPY2D){
		.src_type = type[0], .src_host = src, .src_device = PTR(src), .src_pitch = src_pitch,
		.dst_type = type[1], .dst_host = dst, .dst_device = PTR(dst), .dst_pitch = dst_pitch,
		.width_bytes = width, .height = height,
	};
}

#define ARGS_2D void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height, int kind

/* The driver has one function for each direction, the runtime one with an argument. */
#define COPIES(sync, async)										\
	static cudaError_t copy##sync(void *dst, const void *src, size_t bytes, int kind)		\
	{												\
		switch (kind) {										\
		case HOST_TO_DEVICE: return cuMemcpyHtoD_v2##sync(PTR(dst), src, bytes);		\
		case DEVICE_TO_HOST: return cuMemcpyDtoH_v2##sync(dst, PTR(src), bytes);		\
		case DEVICE_TO_DEVICE: return cuMemcpyDtoD_v2##sync(PTR(dst), PTR(src), bytes);		\
		case HOST_TO_HOST:									\
		case BY_ADDRESS: return cuMemcpy##sync(PTR(dst), PTR(src), bytes);			\
		}											\
		return INVALID_VALUE;									\
	}												\
	static cudaError_t copy_async##async(void *dst, const void *src, size_t bytes, int kind, CUstream stream) \
	{												\
		switch (kind) {										\
		case HOST_TO_DEVICE: return cuMemcpyHtoDAsync_v2##async(PTR(dst), src, bytes, stream);	\
		case DEVICE_TO_HOST: return cuMemcpyDtoHAsync_v2##async(dst, PTR(src), bytes, stream);	\
		case DEVICE_TO_DEVICE:									\
			return cuMemcpyDtoDAsync_v2##async(PTR(dst), PTR(src), bytes, stream);		\
		case HOST_TO_HOST:									\
		case BY_ADDRESS: return cuMemcpyAsync##async(PTR(dst), PTR(src), bytes, stream);	\
		}											\
		return INVALID_VALUE;									\
	}												\
	static cudaError_t copy_2d##sync(CUDA_MEMCPY2D plan)						\
	{												\
		return cuMemcpy2D_v2##sync(&plan);							\
	}												\
	static cudaError_t copy_2d_async##async(CUDA_MEMCPY2D plan, CUstream stream)			\
	{												\
		return cuMemcpy2DAsync_v2##async(&plan, stream);					\
	}												\
	RT_FORWARD(cudaMemcpy##sync, (void *dst, const void *src, size_t bytes, int kind), UNKNOWN,	\
		   copy##sync(dst, src, bytes, kind))							\
	RT_FORWARD(cudaMemcpyAsync##async,								\
		   (void *dst, const void *src, size_t bytes, int kind, CUstream stream), UNKNOWN,	\
		   copy_async##async(dst, src, bytes, kind, stream))					\
	RT_FORWARD(cudaMemcpy2D##sync, (ARGS_2D), UNKNOWN,						\
		   copy_2d##sync(plan_2d(dst, dst_pitch, src, src_pitch, width, height, kind)))		\
	RT_FORWARD(cudaMemcpy2DAsync##async, (ARGS_2D, CUstream stream), UNKNOWN,			\
		   copy_2d_async##async(plan_2d(dst, dst_pitch, src, src_pitch, width, height, kind), stream))	\
	RT_FORWARD(cudaMemset##sync, (void *dst, int value, size_t bytes), UNKNOWN,			\
		   cuMemsetD8_v2##sync(PTR(dst), value, bytes))						\
	RT_FORWARD(cudaMemsetAsync##async, (void *dst, int value, size_t bytes, CUstream stream), UNKNOWN, \
		   cuMemsetD8Async##async(PTR(dst), value, bytes, stream))				\
	RT_FORWARD(cudaMemcpyToSymbol##sync,								\
		   (const void *symbol, const void *src, size_t bytes, size_t offset, int kind), UNKNOWN,	\
		   copy_to_symbol(copy##sync, symbol, src, bytes, offset, kind))

typedef cudaError_t (*copier)(void *dst, const void *src, size_t bytes, int kind);

static cudaError_t copy_to_symbol(copier copy, const void *symbol, const void *src, size_t bytes, size_t offset,
				  int kind)
{
	CUdeviceptr pointer = 0;
	cudaError_t error = runtime_symbol(symbol, &pointer);

	return error ? error : copy((void *)(pointer + offset), src, bytes, kind);
}

COPIES(, )
COPIES(_ptds, _ptsz)

static cudaError_t peer(void *dst, int dst_device, const void *src, int src_device, size_t bytes, CUstream stream,
			bool wait)
{
	CUcontext to = NULL, from = NULL;
	cudaError_t error = runtime_context(dst_device, &to);

	if (!error)
		error = runtime_context(src_device, &from);
	if (error)
		return error;
	if (wait)
		return cuMemcpyPeer(PTR(dst), to, PTR(src), from, bytes);
	return cuMemcpyPeerAsync(PTR(dst), to, PTR(src), from, bytes, stream);
}

RT_FORWARD(cudaMemcpyPeer, (void *dst, int dst_device, const void *src, int src_device, size_t bytes), UNKNOWN,
	   peer(dst, dst_device, src, src_device, bytes, NULL, true))
RT_FORWARD(cudaMemcpyPeerAsync,
	   (void *dst, int dst_device, const void *src, int src_device, size_t bytes, CUstream stream), UNKNOWN,
	   peer(dst, dst_device, src, src_device, bytes, stream, false))
