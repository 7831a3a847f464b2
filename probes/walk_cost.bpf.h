/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * What walking stacks costs: all the traced threads together, and each of them.
 */
#ifndef INGERO_WALK_COST_H
#define INGERO_WALK_COST_H

#include "frames.bpf.h"

struct {			/* what walking costs the traced threads */
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk_cost);
} walk_costs SEC(".maps");

static __always_inline void add_cost(struct walk_cost *cost, __u64 ns)
{
	__sync_fetch_and_add(&cost->count, 1);
	__sync_fetch_and_add(&cost->ns, ns);
	if (ns > cost->max_ns)
		cost->max_ns = ns;
}

static __always_inline void count_walk(const struct thread *t, __u64 since)
{
	__u64 ns = bpf_ktime_get_ns() - since;
	struct thread_cost *own = cost_of(t);
	__u32 zero = 0;
	struct walk_cost *cost = bpf_map_lookup_elem(&walk_costs, &zero);

	if (!cost)
		return;
	add_cost(cost, ns);
	if (own) {
		__sync_fetch_and_add(&own->walks, 1);
		__sync_fetch_and_add(&own->walk_ns, ns);
	}
}

#endif
