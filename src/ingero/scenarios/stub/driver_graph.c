/* SPDX-License-Identifier: Apache-2.0
 *
 * libcuda: graphs. A graph is the number of things captured and their device time
 * together; launching it enqueues that time as one piece of work.
 *
 * A capture covers its own stream only: events do not carry it to other streams.
 */
#include "driver.h"

#include <stdlib.h>

#define GRAPH_OF(handle) ((struct live_graph *)(handle))

struct live_graph {
	struct graph graph;	/* first: the handle points here */
	bool live;
};

struct graph_exec {
	bool live;
	unsigned int nodes;
	uint64_t took_ns;
};

enum { CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED };
enum { UPDATE_SUCCESS = 0, UPDATE_TOPOLOGY_CHANGED = 2 };

static bool valid_graph(CUgraph graph)
{
	return graph && GRAPH_OF(graph)->live;
}

static CUresult begin(struct stream *stream, int mode)
{
	struct live_graph *made;

	if (!stream)
		return INVALID_HANDLE;
	if (stream->index == LEGACY_STREAM)
		return CAPTURE_UNSUPPORTED;
	if (stream->capture)
		return ILLEGAL_STATE;
	made = calloc(1, sizeof(*made));
	if (!made)
		return OUT_OF_MEMORY;
	made->graph.whole_process = mode == CAPTURE_GLOBAL;
	driver_captures += made->graph.whole_process;
	stream->capture = &made->graph;
	return SUCCESS;
}

static CUresult end(struct stream *stream, CUgraph *graph)
{
	if (!stream)
		return INVALID_HANDLE;
	if (!stream->capture)
		return ILLEGAL_STATE;
	*graph = stream->capture;
	driver_captures -= stream->capture->whole_process;
	stream->capture = NULL;
	GRAPH_OF(*graph)->live = true;
	return SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	ENTER(cuGraphInstantiateWithFlags);
	(void)flags;
	if (!valid_graph(graph))
		return INVALID_VALUE;
	*exec = calloc(1, sizeof(**exec));
	if (!*exec)
		return OUT_OF_MEMORY;
	**exec = (struct graph_exec){.live = true, .nodes = graph->nodes, .took_ns = graph->took_ns};
	return SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	bool same;

	ENTER(cuGraphExecUpdate_v2);
	if (!exec || !exec->live || !valid_graph(graph))
		return INVALID_VALUE;
	same = exec->nodes == graph->nodes;
	if (info)
		*info = (CUgraphExecUpdateResultInfo){
			.result = same ? UPDATE_SUCCESS : UPDATE_TOPOLOGY_CHANGED};
	if (!same)
		return GRAPH_UPDATE_FAILED;
	exec->took_ns = graph->took_ns;
	return SUCCESS;
}

/* Graphs stay allocated so that a second destroy can be told from the first. */
CUresult cuGraphDestroy(CUgraph graph)
{
	ENTER(cuGraphDestroy);
	if (!valid_graph(graph))
		return INVALID_VALUE;
	GRAPH_OF(graph)->live = false;
	return SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	ENTER(cuGraphExecDestroy);
	if (!exec || !exec->live)
		return INVALID_VALUE;
	exec->live = false;
	return SUCCESS;
}

static CUresult launch(CUgraphExec exec, struct stream *stream)
{
	if (!stream)
		return INVALID_HANDLE;
	if (!exec || !exec->live)
		return INVALID_VALUE;
	stub_burn_ns(stub_settings.call_ns);
	stream_work(stream, KERNEL, exec->took_ns);
	return SUCCESS;
}

#define GRAPH_CALLS(per_thread, own)								\
	CUresult cuStreamBeginCapture_v2##per_thread(CUstream stream, int mode)			\
	{											\
		ENTER(cuStreamBeginCapture_v2##per_thread);					\
		return begin(stream_find(stream, own), mode);					\
	}											\
	CUresult cuStreamEndCapture##per_thread(CUstream stream, CUgraph *graph)		\
	{											\
		ENTER(cuStreamEndCapture##per_thread);						\
		return end(stream_find(stream, own), graph);					\
	}											\
	CUresult cuStreamIsCapturing##per_thread(CUstream stream, int *status)			\
	{											\
		struct stream *found;								\
												\
		ENTER(cuStreamIsCapturing##per_thread);						\
		found = stream_find(stream, own);						\
		*status = found && found->capture;						\
		return found ? SUCCESS : INVALID_HANDLE;					\
	}											\
	CUresult cuGraphLaunch##per_thread(CUgraphExec exec, CUstream stream)			\
	{											\
		ENTER(cuGraphLaunch##per_thread);						\
		return launch(exec, stream_find(stream, own));					\
	}
GRAPH_CALLS(, false)
GRAPH_CALLS(_ptsz, true)
