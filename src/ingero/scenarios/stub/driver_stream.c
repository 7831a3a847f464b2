/* SPDX-License-Identifier: Apache-2.0
 *
 * libcuda: streams, putting work on them and waiting for it.
 */
#include "driver.h"

static struct stream streams[DEVICES][STREAMS];

struct per_thread {
	struct stream *stream[DEVICES];
};

static pthread_key_t per_thread_key;
static pthread_once_t per_thread_once = PTHREAD_ONCE_INIT;
static _Thread_local struct per_thread per_thread;

static void close_stream(struct stream *stream)
{
	pthread_mutex_lock(&driver_lock);
	stream->open = false;
	pthread_mutex_unlock(&driver_lock);
}

static void thread_ends(void *mine)
{
	unsigned int d;

	for (d = 0; d < DEVICES; d++)
		if (((struct per_thread *)mine)->stream[d])
			close_stream(((struct per_thread *)mine)->stream[d]);
}

static void make_key(void)
{
	pthread_key_create(&per_thread_key, thread_ends);
}

static void set_blocking(struct stream *stream, bool blocking)
{
	uint64_t *word, bit = 1ull << (stream->index % 64);

	machine_lock(driver_machine);
	word = &driver_process->queue[stream->device].nonblocking[stream->index / 64];
	*word = blocking ? *word & ~bit : *word | bit;
	machine_unlock(driver_machine);
}

static bool idle(const struct stream *stream)
{
	const struct stream_state *state = &driver_process->queue[stream->device].stream[stream->index];

	return state->done_seq == state->last_seq;
}

static struct stream *open_stream(unsigned int device, unsigned int flags)
{
	struct stream *found = NULL;
	unsigned int i;

	pthread_mutex_lock(&driver_lock);
	for (i = LEGACY_STREAM + 1; i < STREAMS && !found; i++)
		if (!streams[device][i].open) {
			streams[device][i] = (struct stream){.device = device, .index = i};
			if (!idle(&streams[device][i]))		/* destroyed with work in it */
				continue;
			found = &streams[device][i];
			found->open = true;
		}
	pthread_mutex_unlock(&driver_lock);
	if (found)
		set_blocking(found, !(flags & STREAM_NON_BLOCKING));
	return found;
}

static struct stream *own_stream(unsigned int device)
{
	if (!per_thread.stream[device]) {
		pthread_once(&per_thread_once, make_key);
		pthread_setspecific(per_thread_key, &per_thread);
		per_thread.stream[device] = open_stream(device, 0);
	}
	return per_thread.stream[device];
}

struct stream *stream_find(CUstream handle, bool use_own)
{
	unsigned int device = driver_context->device;

	if (handle == CU_STREAM_PER_THREAD || (!handle && use_own))
		return own_stream(device);
	if (!handle || handle == CU_STREAM_LEGACY) {
		streams[device][LEGACY_STREAM].device = device;
		return &streams[device][LEGACY_STREAM];
	}
	if (handle < &streams[0][0] || handle >= &streams[0][0] + DEVICES * STREAMS || !handle->open)
		return NULL;
	return handle;
}

struct push {
	const struct stream *stream;
	const struct item *items;
	unsigned int count;
	uint64_t seq;
};

static bool push_if_room(void *what, uint64_t *at_least_ns)
{
	struct push *push = what;

	(void)at_least_ns;
	if (driver_process->queue[push->stream->device].outstanding + push->count > OUTSTANDING)
		return false;
	queue_push(driver_machine, driver_process, push->stream->device, push->items, push->count);
	push->seq = driver_process->queue[push->stream->device].last_seq;
	return true;
}

/* Returns the place in the queue; a full queue is waited for. */
uint64_t stream_push(struct stream *stream, const struct item *items, unsigned int count)
{
	struct push push = {stream, items, count, 0};

	machine_wait(driver_machine, push_if_room, &push, SPIN);
	return push.seq;
}

/* Device time on a stream, or in the graph that the stream is capturing. */
void stream_work(struct stream *stream, enum item_kind kind, uint64_t took_ns)
{
	struct item item = {.kind = kind, .stream = stream->index, .left_ns = took_ns};

	if (stream->capture) {
		stream->capture->nodes++;
		stream->capture->took_ns += took_ns;
	} else {
		stream_push(stream, &item, 1);
	}
}

static bool reached(void *what, uint64_t *at_least_ns)
{
	const struct point *point = what;

	if (queue_reached(point->queue, point->stream, point->seq))
		return true;
	*at_least_ns = queue_left_ns(point->queue, point->stream, point->seq);
	return false;
}

void point_wait(struct point *point, enum patience patience)
{
	machine_wait(driver_machine, reached, point, patience);
}

/* The default stream waits for all others, so waiting for it is waiting for all. */
static struct point end_of(const struct stream *stream)
{
	const struct queue *queue = &driver_process->queue[stream->device];
	bool all = stream->index == LEGACY_STREAM;
	struct point point = {queue, all ? STREAMS : stream->index, 0};

	machine_lock(driver_machine);
	point.seq = all ? queue->last_seq : queue->stream[stream->index].last_seq;
	machine_unlock(driver_machine);
	return point;
}

void stream_wait(const struct stream *stream)
{
	struct point point = end_of(stream);

	point_wait(&point, driver_patience());
}

void device_wait(void)
{
	stream_wait(stream_find(CU_STREAM_LEGACY, false));
}

bool point_reached(const struct point *point)
{
	bool over;

	machine_lock(driver_machine);
	machine_advance(driver_machine, stub_now_ns());
	over = queue_reached(point->queue, point->stream, point->seq);
	machine_unlock(driver_machine);
	return over;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
	ENTER(cuStreamCreate);
	*stream = open_stream(driver_context->device, flags);
	return *stream ? SUCCESS : OUT_OF_MEMORY;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
	ENTER(cuStreamDestroy_v2);
	if (!stream || stream <= CU_STREAM_PER_THREAD || !stream_find(stream, false))
		return INVALID_HANDLE;
	close_stream(stream);
	return SUCCESS;
}

static CUresult synchronize(struct stream *stream)
{
	if (!stream)
		return INVALID_HANDLE;
	if (stream->capture)
		return CAPTURE_UNSUPPORTED;
	stream_wait(stream);
	return SUCCESS;
}

static CUresult query(struct stream *stream)
{
	struct point point;

	if (!stream)
		return INVALID_HANDLE;
	if (stream->capture)
		return CAPTURE_UNSUPPORTED;
	point = end_of(stream);
	return point_reached(&point) ? SUCCESS : NOT_READY;
}

#define STREAM_CALLS(per_thread, own)								\
	CUresult cuStreamSynchronize##per_thread(CUstream stream)				\
	{											\
		ENTER(cuStreamSynchronize##per_thread);						\
		return synchronize(stream_find(stream, own));					\
	}											\
	CUresult cuStreamQuery##per_thread(CUstream stream)					\
	{											\
		ENTER(cuStreamQuery##per_thread);						\
		return query(stream_find(stream, own));						\
	}
STREAM_CALLS(, false)
STREAM_CALLS(_ptsz, true)
