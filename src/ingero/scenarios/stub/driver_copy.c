/* SPDX-License-Identifier: Apache-2.0
 *
 * libcuda: copies and fills.
 *
 * No byte is moved. A copy costs what its kind costs: pageable host memory burns the
 * caller's CPU, pinned memory occupies the device's copy engine.
 */
#include "driver.h"

#define DEVICE_BYTES_PER_US 1000000ull	/* fills and copies inside the device */

static uint64_t took_ns(uint64_t bytes, uint64_t bytes_per_us)
{
	return bytes * 1000 / bytes_per_us + 1;
}

static bool on_host(int direction, uint64_t dst, uint64_t src, uint64_t *host, uint64_t *device)
{
	*host = direction == HOST_TO_DEVICE ? src : dst;
	*device = direction == HOST_TO_DEVICE ? dst : src;
	return direction == HOST_TO_DEVICE || direction == DEVICE_TO_HOST;
}

static int direction_of(uint64_t dst, uint64_t src)
{
	return (memory_of(src) == ON_DEVICE) * 2 + (memory_of(dst) == ON_DEVICE);
}

static void burn(uint64_t bytes)
{
	stub_burn_ns(took_ns(bytes, stub_settings.pageable_bytes_per_us));
}

static void copy_pageable(struct stream *stream, int direction, uint64_t bytes, bool wait)
{
	uint64_t bus_ns = took_ns(bytes, stub_settings.pcie_bytes_per_us);

	if (direction == HOST_TO_DEVICE) {
		if (wait && !stream->capture)
			stream_wait(stream);
		burn(bytes);
		if (!wait)
			stream_work(stream, COPY, bus_ns);
		return;
	}
	/* to pageable memory even the asynchronous form returns when the bytes are there */
	stream_work(stream, COPY, bus_ns);
	if (!stream->capture)
		stream_wait(stream);
	burn(bytes);
}

static CUresult copy(struct stream *stream, int direction, uint64_t dst, uint64_t src, uint64_t bytes, bool wait)
{
	uint64_t host, device;

	if (!stream)
		return INVALID_HANDLE;
	if (wait && driver_captures)
		return CAPTURE_UNSUPPORTED;
	if (!bytes)
		return SUCCESS;
	if (direction == BY_ADDRESS)
		direction = direction_of(dst, src);
	if (on_host(direction, dst, src, &host, &device)) {
		if (!host || !memory_valid(device, bytes))
			return INVALID_VALUE;
		if (memory_of(host) == PAGEABLE) {
			copy_pageable(stream, direction, bytes, wait);
			return SUCCESS;
		}
		stream_work(stream, COPY, took_ns(bytes, stub_settings.pcie_bytes_per_us));
		if (wait)
			stream_wait(stream);
	} else if (direction == DEVICE_TO_DEVICE) {
		if (!memory_valid(dst, bytes) || !memory_valid(src, bytes))
			return INVALID_VALUE;
		stream_work(stream, COPY, took_ns(bytes, DEVICE_BYTES_PER_US));
	} else {
		if (!stream->capture)
			stream_wait(stream);
		burn(bytes);
	}
	return SUCCESS;
}

/* Both pitches are bounds of the allocation, the bytes moved are width x height. */
static CUresult copy_2d(struct stream *stream, const CUDA_MEMCPY2D *c, bool wait)
{
	uint64_t src, dst;
	int direction;

	if (!c)
		return INVALID_VALUE;
	src = c->src_type == MEMORY_HOST ? (uint64_t)c->src_host : c->src_device;
	dst = c->dst_type == MEMORY_HOST ? (uint64_t)c->dst_host : c->dst_device;
	direction = (c->src_type != MEMORY_HOST) * 2 + (c->dst_type != MEMORY_HOST);
	if (c->src_type == MEMORY_UNIFIED || c->dst_type == MEMORY_UNIFIED)
		direction = BY_ADDRESS;
	return copy(stream, direction, dst, src, c->width_bytes * c->height, wait);
}

static CUresult fill(struct stream *stream, uint64_t dst, uint64_t bytes)
{
	if (!stream)
		return INVALID_HANDLE;
	if (!memory_valid(dst, bytes))
		return INVALID_VALUE;
	stream_work(stream, KERNEL, took_ns(bytes, DEVICE_BYTES_PER_US));
	return SUCCESS;
}

#define CALL(function, arguments, expression)							\
	CUresult function arguments								\
	{											\
		ENTER(function);								\
		return expression;								\
	}

#define COPIES(name, sync, direction, dst_type, src_type, own)				\
	CALL(name##sync, (dst_type dst, src_type src, size_t bytes),				\
	     copy(stream_find(NULL, own), direction, (uint64_t)dst, (uint64_t)src, bytes, true))

#define ASYNC_COPIES(name, direction, dst_type, src_type, own)					\
	CALL(name, (dst_type dst, src_type src, size_t bytes, CUstream stream),			\
	     copy(stream_find(stream, own), direction, (uint64_t)dst, (uint64_t)src, bytes, false))

#define ALL_FORMS(sync, async, own)									\
	COPIES(cuMemcpy, sync, BY_ADDRESS, CUdeviceptr, CUdeviceptr, own)			\
	COPIES(cuMemcpyHtoD_v2, sync, HOST_TO_DEVICE, CUdeviceptr, const void *, own)		\
	COPIES(cuMemcpyDtoH_v2, sync, DEVICE_TO_HOST, void *, CUdeviceptr, own)			\
	COPIES(cuMemcpyDtoD_v2, sync, DEVICE_TO_DEVICE, CUdeviceptr, CUdeviceptr, own)		\
	ASYNC_COPIES(cuMemcpyAsync##async, BY_ADDRESS, CUdeviceptr, CUdeviceptr, own)			\
	ASYNC_COPIES(cuMemcpyHtoDAsync_v2##async, HOST_TO_DEVICE, CUdeviceptr, const void *, own)	\
	ASYNC_COPIES(cuMemcpyDtoHAsync_v2##async, DEVICE_TO_HOST, void *, CUdeviceptr, own)		\
	ASYNC_COPIES(cuMemcpyDtoDAsync_v2##async, DEVICE_TO_DEVICE, CUdeviceptr, CUdeviceptr, own)	\
	CALL(cuMemcpy2D_v2##sync, (const CUDA_MEMCPY2D *c), copy_2d(stream_find(NULL, own), c, true))	\
	CALL(cuMemcpy2DAsync_v2##async, (const CUDA_MEMCPY2D *c, CUstream stream),			\
	     copy_2d(stream_find(stream, own), c, false))						\
	CALL(cuMemcpyPeer##sync, (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,		\
				  CUcontext src_context, size_t bytes),					\
	     copy(dst_context && src_context ? stream_find(NULL, own) : NULL, DEVICE_TO_DEVICE, dst, src,	\
		  bytes, true))										\
	CALL(cuMemcpyPeerAsync##async, (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,	\
					CUcontext src_context, size_t bytes, CUstream stream),		\
	     copy(dst_context && src_context ? stream_find(stream, own) : NULL, DEVICE_TO_DEVICE, dst,	\
		  src, bytes, false))									\
	CALL(cuMemsetD8_v2##sync, (CUdeviceptr dst, unsigned char value, size_t count),			\
	     ((void)value, fill(stream_find(NULL, own), dst, count)))					\
	CALL(cuMemsetD32_v2##sync, (CUdeviceptr dst, unsigned int value, size_t count),			\
	     ((void)value, fill(stream_find(NULL, own), dst, count * 4)))				\
	CALL(cuMemsetD8Async##async, (CUdeviceptr dst, unsigned char value, size_t count, CUstream stream),	\
	     ((void)value, fill(stream_find(stream, own), dst, count)))					\
	CALL(cuMemsetD32Async##async, (CUdeviceptr dst, unsigned int value, size_t count, CUstream stream),	\
	     ((void)value, fill(stream_find(stream, own), dst, count * 4)))

ALL_FORMS(, , false)
ALL_FORMS(_ptds, _ptsz, true)
