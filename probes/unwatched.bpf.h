/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * What is known of the GPU while launches are not watched. Waits for it always are, so when it
 * has done all is known; when it gets something again is told from what is usual.
 *
 * Two things are learnt of each place a thread waits at. How long it is on a core before the
 * first launch that follows: while launches are closed, a wait that begins before it has
 * been is one in which the GPU has nothing to do, however long it lasts (part_in_gap). And
 * how long a round is, from one wait for the GPU to the next: what a round takes longer than
 * usual, without a longer wait for the GPU, was lost in a wait that is as long as a round, since the GPU
 * has no more to do than that; or on a core, if the thread was seen there without a call for a
 * while. A round in which more is seen to be given to the GPU than in a whole one is another kind of work.
 */
#ifndef INGERO_UNWATCHED_H
#define INGERO_UNWATCHED_H

#include "account.bpf.h"

#define ROUNDS_KNOWN 8		/* before a round can be longer than usual */
#define FAR_MORE 2		/* times the usual work */
#define QUEUED 2		/* rounds that the GPU may have before it when an event of it is waited for */
#define QUIET_NS 5000000	/* on a core without a call: whoever launches makes hundreds meanwhile */
#define QUIET_FOR 16		/* times as long it may have computed as it was seen to */
#define BRIEF_NS 100000		/* on a core: not long enough to give the GPU much */
#define LOOK_NS 15000000	/* the shortest time launches are watched */
#define MOST_ON_CORE (1000000 >> 10)	/* to begin with; known to be more, more counts */

/* Places differ by their stack pointer; what different lines of Python call is often one place. */
static __always_inline __u32 site_of(__u64 sp, __u32 op)
{
	return (sp >> 4 ^ sp >> 9 ^ op) & (SITES - 1);
}

static __always_inline __u32 in_units(__u64 ns)
{
	return ns >> 10 < 0x7fffffff ? ns >> 10 : 0x7fffffff;
}

/* Rather too short: what comes after it is launching. */
static __always_inline void learn_on_core(__u32 *usual, __u64 ns)
{
	__u32 now = in_units(ns);

	if (!*usual)
		*usual = (now < MOST_ON_CORE ? now : MOST_ON_CORE) + 1;
	else if (now <= *usual)
		*usual -= (*usual - now) / 4;
	else
		*usual += (now - *usual < *usual ? now - *usual : *usual) / 4 + 1;
}

/* Rather too long: of a place with long rounds and short ones, the long ones. One long round in fifty is none. */
static __always_inline void learn_round(__u32 *usual, __u64 ns)
{
	__u32 now = in_units(ns);

	if (!*usual)
		*usual = now + 1;
	else if (now <= *usual)
		*usual -= (*usual - now) / 64;
	else
		*usual += (now - *usual < *usual / 2 ? now - *usual : *usual / 2) / 8 + 1;
}

static __always_inline __u64 beyond(__u64 ns, __u32 usual)
{
	return ns > (__u64)usual << 10 ? ns - ((__u64)usual << 10) : 0;
}

/* The GPU has done all. */
static __always_inline void begin_idle(struct thread *t, __u64 sp, __u32 op, __u32 watch)
{
	t->idle_on_core = on_core(t);
	t->idle_watch = watch;
	t->site = site_of(sp, op);
	t->idle = 1;
}

/* It got something to do, and nothing before that was missed: launches were watched since, or the thread was hardly
 * on a core. A pause longer than launches are watched at a time would never be known otherwise. */
static __always_inline void learn_first_work(struct thread *t, __u32 watch)
{
	__u64 seen = on_core(t) - t->idle_on_core;

	if (!(watch & 1) && (t->idle_watch == watch || seen < BRIEF_NS))
		learn_on_core(&t->round.sites[t->site & (SITES - 1)].on_core, seen);
}

/* A call begins, the first since launches were closed or opened: the thread may have been on its core
 * for a part of a look, or for whole ones, without any. */
static __always_inline void note_quiet(struct thread *t, const struct settings *set, __u64 now)
{
	__u64 from = t->on_ns > set->watch_ns ? t->on_ns : set->watch_ns;
	__u32 looks = (set->watch - 1) / 2 - t->watch / 2;

	if (t->sync || t->depth || now < t->on_ns + QUIET_NS)
		return;
	if (looks && looks < 1000)
		t->round.quiet_ns += (__u64)looks * LOOK_NS;
	if (!(set->watch & 1) && now > from + QUIET_NS)
		t->round.quiet_ns += now - from;
}

/* A wait of any kind but for the GPU is over, and not known to be one in which the GPU had nothing to do. */
static __always_inline void note_long_wait(struct thread *t, __u64 ns)
{
	if (t->round.from_ns && !t->sync && !t->idle &&
	    beyond(ns, t->round.sites[t->round.site & (SITES - 1)].round))
		t->round.long_ns += ns;
}

static __always_inline __u64 outside_gap(const struct thread *t, __u32 bucket)
{
	__u64 all = t->ended[bucket] - t->round.acc[bucket], gap = t->gap[bucket] - t->round.gap[bucket];

	return all > gap ? all - gap : 0;
}

static __always_inline __u64 gap_so_far(const struct thread *t)
{
	__u64 sum = 0;

	for (int i = 0; i < BUCKETS; i++)
		sum += t->gap[i] - t->round.gap[i];
	return sum;
}

/* `longer` of the round, as far as there were other waits; then what it computed. */
static __always_inline void add_lost(struct thread *t, const struct site *s, __u64 longer)
{
	const __u32 waits[] = {RUNQUEUE, DISK_WAIT, MEMORY_WAIT, LOCK_WAIT, PEER_WAIT, NET_WAIT};
	__u64 waited = 0, lost, host;

	for (int i = 0; i < 6; i++)
		waited += outside_gap(t, waits[i]);
	lost = longer < waited ? longer : waited;
	if (lost > t->round.long_ns)
		lost = t->round.long_ns;
	for (int i = 0; i < 6; i++)	/* in microseconds, so that the product stays within 64 bits */
		__sync_fetch_and_add(&t->gap[waits[i]], (outside_gap(t, waits[i]) >> 10) * (lost >> 10) /
							((waited >> 10) + 1) << 10);
	host = outside_gap(t, HOST_CPU);
	if (host > longer - lost)
		host = longer - lost;
	if (host > t->round.quiet_ns * QUIET_FOR)
		host = t->round.quiet_ns * QUIET_FOR;
	if (t->round.works <= s->works)
		__sync_fetch_and_add(&t->gap[HOST_CPU], host);
}

/* A wait for the GPU is over, and the round that began when the last one was. What was watched from its
 * begin to its end is known already (done.bpf.h). Not static: verified once, not in every state
 * that leads here. */
__noinline int end_round(struct thread *t, __u64 sp, __u64 op_flags, __u64 now)
{
	struct settings *set = get_settings();
	struct site *s;
	__u64 took, host, gpu, longer, more, less;
	bool throughout;

	if (!t || !set)
		return 0;
	s = &t->round.sites[t->round.site & (SITES - 1)];
	if (t->round.from_ns && now > t->round.from_ns) {
		took = now - t->round.from_ns;
		gpu = t->ended[GPU_WAIT] - t->round.acc[GPU_WAIT];
		host = took > gpu ? took - gpu : 0;
		longer = beyond(took, s->round);
		more = beyond(host, s->host);
		if (more < longer)
			longer = more;
		less = gap_so_far(t);
		if (op_flags & OP_EVENT_SYNC)
			less += (__u64)s->round * QUEUED << 10;
		longer = longer > less ? longer - less : 0;
		throughout = !(set->watch & 1) && t->round.watch == set->watch;
		if (s->rounds >= ROUNDS_KNOWN && longer > WAITED_NS && !throughout &&
		    (!s->works || t->round.works <= FAR_MORE * s->works))
			add_lost(t, s, longer);
		if (throughout)
			learn_round(&s->works, (__u64)t->round.works << 10);
		learn_round(&s->round, took);
		learn_round(&s->host, host);
		s->rounds++;
	}
	__builtin_memcpy(t->round.acc, t->ended, sizeof(t->round.acc));
	__builtin_memcpy(t->round.gap, t->gap, sizeof(t->round.gap));
	t->round.from_ns = now;
	t->round.watch = set->watch;
	t->round.site = site_of(sp, op_flags >> 32);
	t->round.quiet_ns = 0;
	t->round.works = 0;
	t->round.long_ns = 0;
	return 0;
}

#endif
