/* SPDX-License-Identifier: Apache-2.0
 *
 * The exported functions of libcuda: names and argument order of the public driver API.
 */
#ifndef STUB_DRIVER_API_H
#define STUB_DRIVER_API_H

#include "cuda_abi.h"
#include "settings.h"

#define API STUB_API CUresult

API cuInit(unsigned int flags);
API cuDriverGetVersion(int *version);
API cuDeviceGet(CUdevice *device, int ordinal);
API cuDeviceGetCount(int *count);
API cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
API cuDevicePrimaryCtxRelease_v2(CUdevice device);
API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags);
API cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
API cuCtxDestroy_v2(CUcontext context);
API cuCtxSetCurrent(CUcontext context);
API cuCtxGetCurrent(CUcontext *context);
API cuCtxGetDevice(CUdevice *device);
API cuCtxSynchronize(void);
API cuGetErrorString(CUresult error, const char **text);
API cuGetErrorName(CUresult error, const char **text);
API cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status);
API cuGetExportTable(const void **table, const unsigned char *id);

#define LAUNCH_ARGS CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,	\
	unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,	\
	CUstream stream, void **parameters
API cuLaunchKernel(LAUNCH_ARGS, void **extra);
API cuLaunchKernel_ptsz(LAUNCH_ARGS, void **extra);
API cuLaunchCooperativeKernel(LAUNCH_ARGS);
API cuLaunchCooperativeKernel_ptsz(LAUNCH_ARGS);
API cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra);
API cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra);

API cuModuleLoadData(CUmodule *module, const void *image);
API cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, int *options, void **values);
API cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
API cuModuleUnload(CUmodule module);
API cuLibraryLoadData(CUlibrary *library, const void *code, int *jit_options, void **jit_values,
		      unsigned int jit_count, int *options, void **values, unsigned int count);
API cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name);
API cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name);
API cuLibraryUnload(CUlibrary library);
API cuFuncGetName(const char **name, CUfunction function);
API cuKernelGetName(const char **name, CUkernel kernel);
API cuKernelGetFunction(CUfunction *function, CUkernel kernel);

API cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
API cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
API cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned int element);
API cuMemFree_v2(CUdeviceptr pointer);
API cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags);
API cuMemAllocHost_v2(void **pointer, size_t bytes);
API cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags);
API cuMemFreeHost(void *pointer);
API cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream);
API cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream);
API cuMemFreeAsync(CUdeviceptr pointer, CUstream stream);
API cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream);
API cuMemCreate(CUhandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags);
API cuMemRelease(CUhandle handle);
API cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr address,
			unsigned long long flags);
API cuMemAddressFree(CUdeviceptr pointer, size_t bytes);
API cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUhandle handle, unsigned long long flags);
API cuMemUnmap(CUdeviceptr pointer, size_t bytes);
API cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const void *access, size_t count);

#define EACH_COPY(X, per_thread_sync, per_thread_async)							\
	X(cuMemcpy##per_thread_sync, (CUdeviceptr dst, CUdeviceptr src, size_t bytes))			\
	X(cuMemcpyAsync##per_thread_async, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)) \
	X(cuMemcpyHtoD_v2##per_thread_sync, (CUdeviceptr dst, const void *src, size_t bytes))		\
	X(cuMemcpyHtoDAsync_v2##per_thread_async,							\
	  (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream))				\
	X(cuMemcpyDtoH_v2##per_thread_sync, (void *dst, CUdeviceptr src, size_t bytes))			\
	X(cuMemcpyDtoHAsync_v2##per_thread_async,							\
	  (void *dst, CUdeviceptr src, size_t bytes, CUstream stream))					\
	X(cuMemcpyDtoD_v2##per_thread_sync, (CUdeviceptr dst, CUdeviceptr src, size_t bytes))		\
	X(cuMemcpyDtoDAsync_v2##per_thread_async,							\
	  (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream))				\
	X(cuMemcpy2D_v2##per_thread_sync, (const CUDA_MEMCPY2D *copy))					\
	X(cuMemcpy2DAsync_v2##per_thread_async, (const CUDA_MEMCPY2D *copy, CUstream stream))		\
	X(cuMemcpyPeer##per_thread_sync, (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,	\
					  CUcontext src_context, size_t bytes))				\
	X(cuMemcpyPeerAsync##per_thread_async, (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, \
						CUcontext src_context, size_t bytes, CUstream stream))	\
	X(cuMemsetD8_v2##per_thread_sync, (CUdeviceptr dst, unsigned char value, size_t count))		\
	X(cuMemsetD32_v2##per_thread_sync, (CUdeviceptr dst, unsigned int value, size_t count))		\
	X(cuMemsetD8Async##per_thread_async,								\
	  (CUdeviceptr dst, unsigned char value, size_t count, CUstream stream))			\
	X(cuMemsetD32Async##per_thread_async,								\
	  (CUdeviceptr dst, unsigned int value, size_t count, CUstream stream))
#define DECLARE(function, arguments) API function arguments;
EACH_COPY(DECLARE, , )
EACH_COPY(DECLARE, _ptds, _ptsz)

API cuStreamCreate(CUstream *stream, unsigned int flags);
API cuStreamDestroy_v2(CUstream stream);
API cuEventCreate(CUevent *event, unsigned int flags);
API cuEventDestroy_v2(CUevent event);
API cuEventQuery(CUevent event);
API cuEventSynchronize(CUevent event);
API cuEventElapsedTime(float *ms, CUevent start, CUevent end);

#define EACH_STREAM_CALL(X, per_thread)									\
	X(cuStreamSynchronize##per_thread, (CUstream stream))						\
	X(cuStreamQuery##per_thread, (CUstream stream))							\
	X(cuStreamWaitEvent##per_thread, (CUstream stream, CUevent event, unsigned int flags))		\
	X(cuEventRecord##per_thread, (CUevent event, CUstream stream))					\
	X(cuStreamBeginCapture_v2##per_thread, (CUstream stream, int mode))				\
	X(cuStreamEndCapture##per_thread, (CUstream stream, CUgraph *graph))				\
	X(cuStreamIsCapturing##per_thread, (CUstream stream, int *status))				\
	X(cuGraphLaunch##per_thread, (CUgraphExec exec, CUstream stream))
EACH_STREAM_CALL(DECLARE, )
EACH_STREAM_CALL(DECLARE, _ptsz)

API cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
API cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info);
API cuGraphDestroy(CUgraph graph);
API cuGraphExecDestroy(CUgraphExec exec);

#endif
