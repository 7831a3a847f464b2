/* SPDX-License-Identifier: Apache-2.0
 *
 * libcuda: events. An event is a place in a stream, and the device's time when it got there.
 */
#include "driver.h"

static struct event events[EVENTS];

static bool valid_event(CUevent event)
{
	return event >= events && event < events + EVENTS && event->open;
}

static CUresult record(CUevent event, struct stream *stream)
{
	struct item item = {.kind = EVENT};

	if (!stream || !valid_event(event))
		return INVALID_HANDLE;
	if (stream->capture)
		return SUCCESS;
	item.stream = stream->index;
	item.target = event - events;
	event->seq = stream_push(stream, &item, 1);
	event->device = stream->device;
	event->stream = stream->index;
	event->recorded = true;
	return SUCCESS;
}

static CUresult wait_event(struct stream *stream, CUevent event)
{
	struct item item = {.kind = WAIT};

	if (!stream || !valid_event(event))
		return INVALID_HANDLE;
	if (!event->recorded || stream->capture)
		return SUCCESS;
	item.stream = stream->index;
	item.target = event->device << 16 | event->stream;
	item.other_seq = event->seq;
	stream_push(stream, &item, 1);
	return SUCCESS;
}

#define EVENT_CALLS(per_thread, own)								\
	CUresult cuStreamWaitEvent##per_thread(CUstream stream, CUevent event, unsigned int flags)	\
	{											\
		ENTER(cuStreamWaitEvent##per_thread);						\
		(void)flags;									\
		return wait_event(stream_find(stream, own), event);				\
	}											\
	CUresult cuEventRecord##per_thread(CUevent event, CUstream stream)			\
	{											\
		ENTER(cuEventRecord##per_thread);						\
		return record(event, stream_find(stream, own));					\
	}
EVENT_CALLS(, false)
EVENT_CALLS(_ptsz, true)

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
	unsigned int i;

	ENTER(cuEventCreate);
	*event = NULL;
	pthread_mutex_lock(&driver_lock);
	for (i = 0; i < EVENTS && !*event; i++)
		if (!events[i].open) {
			events[i] = (struct event){.open = true, .flags = flags};
			*event = &events[i];
		}
	pthread_mutex_unlock(&driver_lock);
	return *event ? SUCCESS : OUT_OF_MEMORY;
}

CUresult cuEventDestroy_v2(CUevent event)
{
	ENTER(cuEventDestroy_v2);
	if (!valid_event(event))
		return INVALID_HANDLE;
	event->open = false;
	return SUCCESS;
}

static struct point point_of(CUevent event)
{
	return (struct point){&driver_process->queue[event->device], event->stream, event->seq};
}

CUresult cuEventQuery(CUevent event)
{
	struct point point;

	ENTER(cuEventQuery);
	if (!valid_event(event))
		return INVALID_HANDLE;
	if (!event->recorded)
		return SUCCESS;
	point = point_of(event);
	return point_reached(&point) ? SUCCESS : NOT_READY;
}

CUresult cuEventSynchronize(CUevent event)
{
	struct point point;

	ENTER(cuEventSynchronize);
	if (!valid_event(event))
		return INVALID_HANDLE;
	if (!event->recorded)
		return SUCCESS;
	point = point_of(event);
	point_wait(&point, event->flags & EVENT_BLOCKING_SYNC ? BLOCK : driver_patience());
	return SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	struct point first, last;
	int64_t ns;

	ENTER(cuEventElapsedTime);
	if (!valid_event(start) || !valid_event(end) || !start->recorded || !end->recorded ||
	    (start->flags | end->flags) & EVENT_DISABLE_TIMING)
		return INVALID_HANDLE;
	first = point_of(start);
	last = point_of(end);
	if (!point_reached(&first) || !point_reached(&last))
		return NOT_READY;
	ns = driver_process->event_ns[end - events] - driver_process->event_ns[start - events];
	*ms = ns / 1e6f;
	return SUCCESS;
}
