/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the public CUDA driver and runtime ABI that the stub speaks: sizes,
 * offsets and numbers, so that probes written for the real libraries read the same
 * bytes here.
 */
#ifndef STUB_CUDA_ABI_H
#define STUB_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;		/* enum; the runtime's cudaError_t has the same numbers */
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUhandle;	/* CUmemGenericAllocationHandle */
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef struct module *CUmodule, *CUlibrary;
typedef struct function *CUfunction, *CUkernel;
typedef struct graph *CUgraph;
typedef struct graph_exec *CUgraphExec;

#define CU_STREAM_LEGACY ((CUstream)1)
#define CU_STREAM_PER_THREAD ((CUstream)2)

enum {
	SUCCESS = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	INVALID_CONFIGURATION = 9,	/* runtime only */
	NO_DEVICE = 100,
	INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201,
	INVALID_HANDLE = 400,
	ILLEGAL_STATE = 401,
	NOT_FOUND = 500,
	NOT_READY = 600,
	CAPTURE_UNSUPPORTED = 900,
	CAPTURE_INVALIDATED = 901,
	GRAPH_UPDATE_FAILED = 910,
	UNKNOWN = 999,
};

enum { SCHEDULE_SPIN = 1, SCHEDULE_YIELD = 2, SCHEDULE_BLOCK = 4, SCHEDULE_MASK = 7 };
enum { STREAM_NON_BLOCKING = 1 };
enum { EVENT_BLOCKING_SYNC = 1, EVENT_DISABLE_TIMING = 2 };
enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2, MEMORY_UNIFIED = 4 };
enum { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, BY_ADDRESS };

struct dim3 {
	unsigned int x, y, z;
};

typedef struct {
	unsigned int grid[3], block[3], shared_bytes;
	CUstream stream;
	void *attributes;
	unsigned int attribute_count;
} CUlaunchConfig;

typedef struct {
	struct dim3 grid, block;
	size_t shared_bytes;
	CUstream stream;
	void *attributes;
	unsigned int attribute_count;
} cudaLaunchConfig_t;

typedef struct {
	size_t src_x, src_y;
	unsigned int src_type;
	const void *src_host;
	CUdeviceptr src_device;
	void *src_array;
	size_t src_pitch;
	size_t dst_x, dst_y;
	unsigned int dst_type;
	void *dst_host;
	CUdeviceptr dst_device;
	void *dst_array;
	size_t dst_pitch;
	size_t width_bytes, height;
} CUDA_MEMCPY2D;

typedef struct {
	int type, handle_types;
	int location_type, location_id;
	void *win32;
	unsigned char flags[8];
} CUmemAllocationProp;

typedef struct {
	int result;
	void *error_node, *error_from_node;
} CUgraphExecUpdateResultInfo;

_Static_assert(offsetof(CUlaunchConfig, stream) == 32, "CUlaunchConfig");
_Static_assert(offsetof(cudaLaunchConfig_t, stream) == 32, "cudaLaunchConfig_t");
_Static_assert(offsetof(CUDA_MEMCPY2D, width_bytes) == 112, "CUDA_MEMCPY2D");

#endif
