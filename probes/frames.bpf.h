/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * The ring for what is sent once and is large: stacks, code objects, names. Apart from
 * the ring of records, so that a burst of these never costs a call its record.
 */
#ifndef INGERO_FRAMES_H
#define INGERO_FRAMES_H

#include "maps.bpf.h"

#define RESEND_NS 30000000000ULL	/* what was sent once is sent again: one that was lost on the way heals */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, FRAMES_RING_BYTES);
} frames SEC(".maps");

#endif
