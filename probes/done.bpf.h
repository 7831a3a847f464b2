/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * When the GPU was done with what a thread gave it, and what the thread's other waits
 * cost: time in which the GPU had nothing to do (`gap`), and time the thread came late
 * because it had no core (`late_ns`).
 */
#ifndef INGERO_DONE_H
#define INGERO_DONE_H

#include "unwatched.bpf.h"

/* A spinning wait looks every microsecond, a woken one returns in tens: a thread that
 * returns this soon after it got its core found the GPU done already. Back from a long absence
 * it may take longer: its caches are cold, and it has much to catch up with. */
#define LATE_NS 100000
#define LATE_SHIFT 4		/* a sixteenth of how long it was away */

static __always_inline bool found_done(const struct thread *t, __u64 now)
{
	__u64 soon = (t->on_ns - t->off_ns) >> LATE_SHIFT;

	return now - t->on_ns <= (soon > LATE_NS ? soon : LATE_NS);
}

/* When the GPU was done, where the thread saw it: it had its core at that moment and had
 * waited for it, or it was woken. 0: it was away. */
static __always_inline __u64 seen_done(const struct thread *t, const struct frame *f, __u64 now)
{
	if (t->copies && t->woken)	/* it copied since */
		return 0;
	if (t->on_ns <= f->start_ns || !found_done(t, now))
		return now - f->start_ns > LATE_NS ? now : 0;
	return t->blocked_ns && t->off_ns >= f->start_ns ? t->off_ns + t->blocked_ns : 0;
}

/* The thread was off its core when the GPU got there: how much later it returned for
 * that. Woken, it waited for a core the whole time. A spinning one knows only that the GPU
 * was not done when it left and was when it came back; other times it saw more, and then
 * the usual moment counts. It is counted from `from_ns`; for `slack` of that time the GPU
 * may have had nothing to do. */
static __always_inline __u64 late_by(const struct thread *t, const struct frame *f, struct bounds *b,
				     __u64 from_ns, __u64 slack, __u64 now)
{
	__u64 away, done;

	if (t->on_ns <= f->start_ns || !found_done(t, now))
		return 0;
	away = t->on_ns - t->off_ns;
	/* preempted amid this: neither belongs to the other */
	if (t->off_ns < f->start_ns || t->on_ns < t->off_ns || away < t->blocked_ns)
		return 0;
	if (t->blocked_ns)
		return away - t->blocked_ns;
	note_after(b, t->off_ns > from_ns + slack ? t->off_ns - from_ns - slack : 0);
	note_before(b, t->on_ns - from_ns);
	done = from_ns + usual(b);
	if (done < t->off_ns)
		done = t->off_ns;
	return done < t->on_ns ? t->on_ns - done : 0;
}

/* A wait that leaves work behind; or one of which it is not known since when there was any: how long those
 * last must have been seen. */
static __always_inline void note_late(struct thread *t, const struct frame *f, struct bounds *b, bool seen, __u64 now)
{
	__u64 done = seen_done(t, f, now), late = late_by(t, f, b, f->start_ns, 0, now);

	if (!seen || b->seen)
		t->late_ns += late;
	if (done)
		note_exactly(b, done - f->start_ns);
}

static __always_inline __u64 waits_between(const __u64 *from, const __u64 *to)
{
	return to[RUNQUEUE] - from[RUNQUEUE] + to[DISK_WAIT] - from[DISK_WAIT] +
	       to[MEMORY_WAIT] - from[MEMORY_WAIT] + to[LOCK_WAIT] - from[LOCK_WAIT] +
	       to[PEER_WAIT] - from[PEER_WAIT] + to[NET_WAIT] - from[NET_WAIT];
}

/* `lost` of the waits since the GPU got something to do, by what was waited for: it counts
 * as a gap, because the GPU had nothing to do any more. */
static __always_inline void add_to_gap(struct thread *t, __u64 lost, __u64 waited, __u64 inside)
{
	const __u32 waits[] = {RUNQUEUE, DISK_WAIT, MEMORY_WAIT, LOCK_WAIT, PEER_WAIT, NET_WAIT};
	__u64 part;

	for (int i = 0; i < 6; i++) {
		part = t->ended[waits[i]] - t->busy_acc[waits[i]];
		if (!i)		/* run-queue time inside the call that waits is `late`'s matter */
			part = part > inside ? part - inside : 0;
		/* in microseconds, so that the product stays within 64 bits */
		part = (part >> 10) * (lost >> 10) / ((waited >> 10) + 1) << 10;
		__sync_fetch_and_add(&t->gap[waits[i]], part);
	}
}

/* What of the waits since the GPU got something to do it had nothing to do in, now that all
 * is done. Where the thread had to wait for it at last, waits after the last piece of work
 * cost nothing, and those before it what exceeds that wait. Where it was done already, as
 * much as all of it took longer than usual. */
static __always_inline __u64 lost_of(const struct thread *t, const struct frame *f, __u64 waited, __u64 inside,
				     __u64 late, __u64 now)
{
	__u64 at_last = t->ended[GPU_WAIT] - f->acc[GPU_WAIT] + inside - late;
	__u64 hidden = t->ended[GPU_WAIT] - t->busy_acc[GPU_WAIT] + inside - late;
	__u64 took = now - t->work_ns, most = waited;

	if (at_last <= WAITED_NS && t->span.before_ns) {
		most = took > usual(&t->span) ? took - usual(&t->span) : 0;
		return most < waited ? most : waited;
	}
	if (at_last > WAITED_NS) {
		most = waits_between(t->busy_acc, t->given_acc);
		if (most > waited)
			most = waited;
	}
	return most > hidden ? most - hidden : 0;
}

/* All is done, and the thread knows it. */
static __always_inline void note_done(struct thread *t, const struct frame *f, bool sync, __u64 now)
{
	__u64 inside = t->ended[RUNQUEUE] - f->acc[RUNQUEUE];
	__u64 waited = waits_between(t->busy_acc, t->ended);
	__u64 done, late = 0, lost;

	t->known++;
	if (!t->busy_known) {
		if (sync)
			note_late(t, f, &t->drain, true, now);
		return;
	}
	waited = waited > inside ? waited - inside : 0;
	if (sync)
		late = late_by(t, f, &t->span, t->work_ns, waited, now);
	if (late > inside)
		late = inside;
	t->late_ns += late;
	lost = lost_of(t, f, waited, inside, late, now);
	if (lost)
		add_to_gap(t, lost, waited, inside);
	done = sync ? seen_done(t, f, now) : 0;
	if (done)
		note_exactly(&t->drain, done - f->start_ns);
	if (done > t->work_ns + lost)
		note_exactly(&t->span, done - t->work_ns - lost);
	else if (!sync)
		note_before(&t->span, now - t->work_ns);
}

/* It looked, and the GPU was not done yet. */
static __always_inline void note_not_yet(struct thread *t, __u64 now)
{
	__u64 took = now - t->work_ns, waited = waits_between(t->busy_acc, t->ended);

	if (t->busy_known && took > waited && took - waited > t->span.after_ns)
		note_after(&t->span, took - waited);
}

/* An event with more work behind it. Waited for, the GPU was busy all the time and still is:
 * nothing was lost. Done already, the GPU ran dry somewhere in between: as much was lost as
 * exceeds the usual wait for it; half of it where that is not known. */
static __always_inline void note_running(struct thread *t, const struct frame *f, __u64 ns, __u64 now)
{
	__u64 inside = t->ended[RUNQUEUE] - f->acc[RUNQUEUE], waited, hidden;

	t->known++;
	if (ns <= WAITED_NS && t->busy_known) {
		waited = waits_between(t->busy_acc, t->ended);
		waited = waited > inside ? waited - inside : 0;
		hidden = t->wait.before_ns ? usual(&t->wait) : waited / 2;
		if (waited > hidden)
			add_to_gap(t, waited - hidden, waited, inside);
	}
	__builtin_memcpy(t->busy_acc, t->ended, sizeof(t->busy_acc));
	__builtin_memcpy(t->given_acc, t->ended, sizeof(t->given_acc));
	t->busy_known = 1;
	t->work_ns = now;	/* it goes on with what is behind the event */
}

/* It has given the GPU something: who only watches others' events does not wait for them. */
static __always_inline bool gave_work(const struct thread *t)
{
	return t->unrecorded || t->last_event;
}

/* Whether what a call waits for, or looks at, is all that this thread gave the GPU. */
static __always_inline bool drains_at(const struct thread *t, const struct frame *f, __u32 flags)
{
	return !(flags & OP_EVENT_SYNC) || (!t->unrecorded && t->last_event == f->args[0]);
}

/* Whether the GPU has done all this thread gave it, now that a call that waits is over, or
 * one that only looks. */
static __always_inline bool drained(const struct thread *t, const struct frame *f, __u32 flags)
{
	if (flags & OP_NOT_READY_OK && (f->ret || !gave_work(t)))
		return false;
	if (flags & OP_MAY_WAIT)	/* without the time it was off its core for other reasons */
		return t->ended[GPU_WAIT] - f->acc[GPU_WAIT] > WAITED_NS;
	return drains_at(t, f, flags);
}

/* A call that may wait for the GPU is over. Not static: verified once, not in every state
 * that leads here. */
__noinline int wait_over(struct thread *t, __u32 index, __u32 flags, __u64 now)
{
	struct settings *set = get_settings();
	struct frame *f;

	if (!t || !set || index >= FRAMES)
		return 0;
	f = &t->frames[index];
	if (drained(t, f, flags)) {
		note_done(t, f, flags & OP_SYNC, now);
		begin_idle(t, f->sp, f->op, set->watch);
	} else if (flags & OP_EVENT_SYNC && flags & OP_SYNC && !t->sync) {
		note_running(t, f, now - f->start_ns, now);
	}
	return 0;
}

/* One that leaves work behind. */
__noinline int wait_late(struct thread *t, __u32 index, __u64 now)
{
	if (t && index < FRAMES)
		note_late(t, &t->frames[index], &t->wait, false, now);
	return 0;
}

#endif
