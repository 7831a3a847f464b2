/* SPDX-License-Identifier: Apache-2.0
 *
 * The device's clock: how queued work is drained.
 *
 * Each process has one compute and one copy engine's worth of work running on a device
 * at a time; processes with work on the same engine share it evenly, so two of them
 * each run at half speed. A collective occupies no engine: it only holds up its stream.
 */
#include "machine.h"

#include <string.h>

struct busy {
	uint64_t streams[STREAMS / 64];
	uint64_t seq[STREAMS];		/* of streams marked above only */
	unsigned int count;
};

static bool is_set(const uint64_t *bits, unsigned int n)
{
	return bits[n / 64] >> (n % 64) & 1;
}

static bool blocked(const struct queue *queue, const struct busy *busy, const struct item *item)
{
	unsigned int i;

	if (is_set(busy->streams, item->stream))
		return busy->seq[item->stream] != item->seq;
	if (item->stream != LEGACY_STREAM)
		return !is_set(queue->nonblocking, item->stream) && is_set(busy->streams, LEGACY_STREAM);
	for (i = 0; i < STREAMS / 64; i++)
		if (busy->streams[i] & ~queue->nonblocking[i])
			return true;
	return false;
}

static void mark(struct busy *busy, const struct item *item)
{
	if (is_set(busy->streams, item->stream))
		return;
	busy->streams[item->stream / 64] |= 1ull << (item->stream % 64);
	busy->seq[item->stream] = item->seq;
	busy->count++;
}

/* Items pushed together lie side by side. */
static bool group_done(const struct queue *queue, const struct item *item)
{
	const struct item *first = item, *end = queue->item + queue->tail;

	while (first > queue->item + queue->head && first[-1].seq == item->seq)
		first--;
	for (; first < end && first->seq == item->seq; first++)
		if (first->kind != DONE)
			return false;
	return true;
}

static void finish(struct queue *queue, struct item *item)
{
	struct stream_state *stream = &queue->stream[item->stream];

	item->kind = DONE;
	queue->outstanding--;
	while (queue->head < queue->tail && queue->item[queue->head].kind == DONE)
		queue->head++;
	if (!group_done(queue, item))
		return;
	stream->done_seq = item->seq;
	if (stream->done_seq == stream->last_seq)
		queue->live_streams--;
}

/* Finishes an item that has become runnable and needs no engine; true if it did. */
static bool settle_item(struct machine *machine, struct process *process, struct queue *queue,
			struct item *item, uint64_t *next_ns)
{
	uint64_t end_ns;

	switch (item->kind) {
	case EVENT:
		process->event_ns[item->target] = machine->clock_ns;
		break;
	case WAIT:
		if (!queue_reached(&process->queue[item->target >> 16], item->target & 0xffff,
				   item->other_seq))
			return false;
		break;
	case COLLECTIVE:
		if (!item->arrived) {
			item->arrived = 1;
			meeting_arrive(machine, item);
		}
		end_ns = meeting_end_ns(machine, item);
		if (end_ns > machine->clock_ns) {
			*next_ns = end_ns < *next_ns ? end_ns : *next_ns;
			return false;
		}
		break;
	case KERNEL:
	case COPY:
		if (item->left_ns)
			return false;
		break;
	default:
		return false;
	}
	finish(queue, item);
	return true;
}

static bool settle_queue(struct machine *machine, struct process *process, struct queue *queue,
			 uint64_t *next_ns)
{
	bool changed = false;
	struct busy busy;
	uint32_t i;

	memset(busy.streams, 0, sizeof(busy.streams));	/* not seq: this is the hot path */
	busy.count = 0;
	queue->computing = queue->copying = NULL;
	for (i = queue->head; i < queue->tail; i++) {
		struct item *item = &queue->item[i];

		if (item->kind == DONE)
			continue;
		if (!blocked(queue, &busy, item)) {
			if (settle_item(machine, process, queue, item, next_ns)) {
				changed = true;
				continue;
			}
			if (item->kind == KERNEL && !queue->computing)
				queue->computing = item;
			if (item->kind == COPY && !queue->copying)
				queue->copying = item;
		}
		mark(&busy, item);
		if (busy.count == queue->live_streams && (i + 1 == queue->tail || item[1].seq != item->seq))
			break;
	}
	return changed;
}

/* Picks what runs now on every queue; returns when a collective ends, or NEVER. */
static uint64_t settle(struct machine *machine)
{
	uint64_t next_ns;
	uint32_t p, d;
	bool changed;

	do {
		changed = false;
		next_ns = NEVER;
		for (p = 0; p < machine->processes; p++)
			for (d = 0; d < machine->devices; d++)
				if (machine->process[p].queue[d].outstanding)
					changed |= settle_queue(machine, &machine->process[p],
								&machine->process[p].queue[d], &next_ns);
	} while (changed);
	return next_ns;
}

struct engine {
	struct item *running[PROCESSES];
	unsigned int count;
};

static void collect(struct machine *machine, unsigned int device, struct engine *compute, struct engine *copy)
{
	uint32_t p;

	compute->count = copy->count = 0;
	for (p = 0; p < machine->processes; p++) {
		struct queue *queue = &machine->process[p].queue[device];

		if (!queue->outstanding)
			continue;
		if (queue->computing)
			compute->running[compute->count++] = queue->computing;
		if (queue->copying)
			copy->running[copy->count++] = queue->copying;
	}
}

static uint64_t shortest_ns(const struct engine *engine, uint64_t at_most_ns)
{
	unsigned int i;

	for (i = 0; i < engine->count; i++)
		if (engine->running[i]->left_ns * engine->count < at_most_ns)
			at_most_ns = engine->running[i]->left_ns * engine->count;
	return at_most_ns;
}

static void run_for(struct engine *engine, uint64_t step_ns)
{
	unsigned int i;

	for (i = 0; i < engine->count; i++)
		engine->running[i]->left_ns -= step_ns / engine->count;
}

/* The longest time in which nothing ends, at most until `until_ns`. */
static uint64_t next_step_ns(struct machine *machine, uint64_t collective_ns, uint64_t until_ns)
{
	uint64_t step_ns = (collective_ns < until_ns ? collective_ns : until_ns) - machine->clock_ns;
	struct engine compute, copy;
	uint32_t d;

	for (d = 0; d < machine->devices; d++) {
		collect(machine, d, &compute, &copy);
		step_ns = shortest_ns(&copy, shortest_ns(&compute, step_ns));
	}
	return step_ns;
}

static void run_all(struct machine *machine, uint64_t step_ns)
{
	struct engine compute, copy;
	uint32_t d;

	for (d = 0; d < machine->devices; d++) {
		collect(machine, d, &compute, &copy);
		run_for(&compute, step_ns);
		run_for(&copy, step_ns);
	}
}

void machine_advance(struct machine *machine, uint64_t now_ns)
{
	uint64_t collective_ns = settle(machine), step_ns;

	while (now_ns > machine->clock_ns) {
		step_ns = next_step_ns(machine, collective_ns, now_ns);
		run_all(machine, step_ns);
		machine->clock_ns += step_ns;
		collective_ns = settle(machine);
	}
	step_ns = next_step_ns(machine, collective_ns, NEVER);
	machine->next_ns = step_ns >= NEVER - machine->clock_ns ? NEVER : machine->clock_ns + step_ns;
}

static void compact(struct queue *queue)
{
	uint32_t from, to = 0;

	for (from = queue->head; from < queue->tail; from++)
		if (queue->item[from].kind != DONE)
			queue->item[to++] = queue->item[from];
	queue->head = 0;
	queue->tail = to;
}

/* All of `items` run together. The caller has advanced the machine and seen that there is room. */
void queue_push(struct machine *machine, struct process *process, unsigned int device,
		const struct item *items, unsigned int count)
{
	struct queue *queue = &process->queue[device];
	struct stream_state *stream = &queue->stream[items->stream];
	unsigned int i;

	if (queue->tail + count > ITEMS)
		compact(queue);
	queue->last_seq++;
	for (i = 0; i < count; i++) {
		queue->item[queue->tail] = items[i];
		queue->item[queue->tail++].seq = queue->last_seq;
	}
	queue->outstanding += count;
	queue->live_streams += stream->last_seq == stream->done_seq;
	stream->last_seq = queue->last_seq;
	machine_advance(machine, machine->clock_ns);
	machine_changed(machine);
}

/* stream STREAMS means every stream */
bool queue_reached(const struct queue *queue, unsigned int stream, uint64_t seq)
{
	if (stream < STREAMS)
		return queue->stream[stream].done_seq >= seq;
	return queue->head == queue->tail || queue->item[queue->head].seq > seq;
}

/* Device time that must pass before that point: a lower bound. */
uint64_t queue_left_ns(const struct queue *queue, unsigned int stream, uint64_t seq)
{
	uint64_t compute_ns = 0, copy_ns = 0;
	uint32_t i;

	for (i = queue->head; i < queue->tail && queue->item[i].seq <= seq; i++) {
		const struct item *item = &queue->item[i];

		if (stream < STREAMS && item->stream != stream)
			continue;
		if (item->kind == KERNEL)
			compute_ns += item->left_ns;
		if (item->kind == COPY)
			copy_ns += item->left_ns;
	}
	return compute_ns > copy_ns ? compute_ns : copy_ns;
}

/* Takes a process's unfinished collectives on a channel out of its queues. */
void queue_drop(struct machine *machine, struct process *process, unsigned int channel)
{
	uint32_t d, i;

	for (d = 0; d < machine->devices; d++) {
		struct queue *queue = &process->queue[d];

		for (i = queue->head; i < queue->tail; i++)
			if (queue->item[i].kind == COLLECTIVE && queue->item[i].target == channel)
				finish(queue, &queue->item[i]);
	}
	machine_advance(machine, machine->clock_ns);
	machine_changed(machine);
}
