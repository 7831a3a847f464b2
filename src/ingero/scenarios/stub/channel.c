/* SPDX-License-Identifier: Apache-2.0
 *
 * Where ranks meet: a collective ends on all devices a fixed time after the last
 * rank's device has got to it.
 */
#include "machine.h"

#include <string.h>

int channel_find(struct machine *machine, uint64_t key, uint32_t parties)
{
	int i, unused = -1;

	for (i = 0; i < CHANNELS; i++) {
		if (machine->channel[i].key == key)
			return i;
		if (!machine->channel[i].key && unused < 0)
			unused = i;
	}
	if (unused >= 0) {
		memset(&machine->channel[unused], 0, sizeof(machine->channel[unused]));
		machine->channel[unused].key = key;
		machine->channel[unused].parties = parties;
	}
	return unused;
}

void channel_leave(struct channel *channel)
{
	if (++channel->left >= channel->parties)
		channel->key = 0;
}

static struct meeting *find(struct machine *machine, const struct item *item)
{
	return &machine->channel[item->target].meeting[item->other_seq % MEETINGS];
}

void meeting_arrive(struct machine *machine, const struct item *item)
{
	struct meeting *meeting = find(machine, item);

	if (meeting->number != item->other_seq)
		*meeting = (struct meeting){.number = item->other_seq, .end_ns = NEVER};
	if (item->left_ns > meeting->took_ns)
		meeting->took_ns = item->left_ns;
	if (++meeting->arrived == machine->channel[item->target].parties)
		meeting->end_ns = machine->clock_ns + meeting->took_ns;
}

uint64_t meeting_end_ns(struct machine *machine, const struct item *item)
{
	struct meeting *meeting = find(machine, item);

	/* a later number in its place: this one ended long ago */
	return meeting->number == item->other_seq ? meeting->end_ns : 0;
}
