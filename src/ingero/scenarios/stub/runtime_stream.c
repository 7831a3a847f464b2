/* SPDX-License-Identifier: Apache-2.0
 *
 * libcudart: streams, events and graphs.
 */
#include "runtime.h"

RT_FORWARD(cudaStreamCreate, (CUstream * stream), UNKNOWN, cuStreamCreate(stream, 0))
RT_FORWARD(cudaStreamCreateWithFlags, (CUstream * stream, unsigned int flags), UNKNOWN,
	   cuStreamCreate(stream, flags))
RT_FORWARD(cudaStreamDestroy, (CUstream stream), INVALID_HANDLE, cuStreamDestroy_v2(stream))
RT_FORWARD(cudaEventCreate, (CUevent * event), UNKNOWN, cuEventCreate(event, 0))
RT_FORWARD(cudaEventCreateWithFlags, (CUevent * event, unsigned int flags), UNKNOWN, cuEventCreate(event, flags))
RT_FORWARD(cudaEventDestroy, (CUevent event), INVALID_HANDLE, cuEventDestroy_v2(event))
RT_FORWARD(cudaEventQuery, (CUevent event), UNKNOWN, cuEventQuery(event))
RT_FORWARD(cudaEventSynchronize, (CUevent event), UNKNOWN, cuEventSynchronize(event))
RT_FORWARD(cudaEventElapsedTime, (float *ms, CUevent start, CUevent end), UNKNOWN,
	   cuEventElapsedTime(ms, start, end))

#define STREAM_CALLS(per_thread)									\
	RT_FORWARD(cudaStreamSynchronize##per_thread, (CUstream stream), UNKNOWN,			\
		   cuStreamSynchronize##per_thread(stream))						\
	RT_FORWARD(cudaStreamQuery##per_thread, (CUstream stream), UNKNOWN,				\
		   cuStreamQuery##per_thread(stream))							\
	RT_FORWARD(cudaStreamWaitEvent##per_thread, (CUstream stream, CUevent event, unsigned int flags),	\
		   UNKNOWN, cuStreamWaitEvent##per_thread(stream, event, flags))			\
	RT_FORWARD(cudaEventRecord##per_thread, (CUevent event, CUstream stream), UNKNOWN,		\
		   cuEventRecord##per_thread(event, stream))						\
	RT_FORWARD(cudaStreamBeginCapture##per_thread, (CUstream stream, int mode), CAPTURE_UNSUPPORTED,	\
		   cuStreamBeginCapture_v2##per_thread(stream, mode))					\
	RT_FORWARD(cudaStreamEndCapture##per_thread, (CUstream stream, CUgraph * graph), CAPTURE_INVALIDATED,	\
		   cuStreamEndCapture##per_thread(stream, graph))					\
	RT_FORWARD(cudaStreamIsCapturing##per_thread, (CUstream stream, int *status), UNKNOWN,		\
		   cuStreamIsCapturing##per_thread(stream, status))					\
	RT_FORWARD(cudaGraphLaunch##per_thread, (CUgraphExec exec, CUstream stream), UNKNOWN,		\
		   cuGraphLaunch##per_thread(exec, stream))
STREAM_CALLS()
STREAM_CALLS(_ptsz)

RT_FORWARD(cudaGraphInstantiate, (CUgraphExec * exec, CUgraph graph, unsigned long long flags), UNKNOWN,
	   cuGraphInstantiateWithFlags(exec, graph, flags))
RT_FORWARD(cudaGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info),
	   GRAPH_UPDATE_FAILED, cuGraphExecUpdate_v2(exec, graph, info))
RT_FORWARD(cudaGraphDestroy, (CUgraph graph), UNKNOWN, cuGraphDestroy(graph))
RT_FORWARD(cudaGraphExecDestroy, (CUgraphExec exec), UNKNOWN, cuGraphExecDestroy(exec))
