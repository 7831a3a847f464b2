/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * The ring for stacks, code objects and names: few and large, so that they never take
 * the room of calls.
 */
#ifndef INGERO_FRAMES_H
#define INGERO_FRAMES_H

#include "maps.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 * 1024 * 1024);
} frames SEC(".maps");

#endif
