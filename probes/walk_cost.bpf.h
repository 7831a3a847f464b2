/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * What walking stacks costs: all the traced threads together, and each of them.
 */
#ifndef INGERO_WALK_COST_H
#define INGERO_WALK_COST_H

#include "frames.bpf.h"

#define WALK_CREDIT_NS 1000000000ULL	/* of time: the share of so long may be spent at once */
#define AHEAD_WAIT (WALK_CREDIT_NS / 2)
#define AHEAD_FEW WALK_CREDIT_NS
#define PAID_WAIT_NS 50000000	/* a walk takes a thousandth of a wait as long as that */

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

/* Walks take no more than a share of a thread's time: each puts off the next by its own length over that share,
 * from a second ago at the earliest. So a program whose stacks are all new is within it from the start. Waits
 * may run `ahead` by half a second's share, the few stacks that every operation is to have by a whole one: what
 * comes often cannot crowd out the rest. */
static __always_inline bool may_walk(const struct thread *t, const struct settings *set, __u64 now, __u64 ahead)
{
	return !set->walk_share || now + ahead >= t->walk_due_ns;
}

/* The stack of a long wait is what a user asks for, whatever calls have spent; there are twenty a second at most. */
static __always_inline bool may_walk_wait(const struct thread *t, const struct settings *set, __u64 now)
{
	return now - t->off_ns >= PAID_WAIT_NS || may_walk(t, set, now, AHEAD_WAIT);
}

static __always_inline void charge_walk(struct thread *t, const struct settings *set, __u64 since)
{
	__u64 ns = bpf_ktime_get_ns() - since, from = since - WALK_CREDIT_NS;

	if (!set->walk_share)
		return;
	if (t->walk_due_ns > from)
		from = t->walk_due_ns;
	t->walk_due_ns = from + (ns << 16) / set->walk_share;
}

#endif
