/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * How the open interval of a thread is closed, and how time and accumulators are read as one. Included by
 * account.bpf.h; tests/unit/probes runs it with an interruption at every instruction.
 *
 * The surprising part is concurrency. A uprobe program can be preempted between any two instructions, and the
 * scheduler's program then runs on the same thread's state. So an interval belongs to whoever moves `since`
 * by compare-and-swap, and the accumulators are added to atomically: nothing is counted twice or lost. Whenever
 * nobody is between the two, the accumulators sum to what passed from `first_ns` to `since`.
 */
#ifndef INGERO_INTERVAL_H
#define INGERO_INTERVAL_H

/* Close the interval from `since` at `now` into `bucket`, unless somebody else did. */
static __always_inline void close_interval(struct thread *t, __u64 since, __u64 now, __u32 bucket)
{
	if (__sync_val_compare_and_swap(&t->since, since, now) == since)
		add_interval(t, bucket, now - since);
}

static __always_inline void settle(struct thread *t, __u64 now, __u32 bucket)
{
	__u64 since = *(volatile __u64 *)&t->since;

	if (now > since)
		close_interval(t, since, now, bucket);
}

#define STAMP_TRIES 4

/* The time, with the accumulators of exactly that time in `acc`: what two stamps differ by in `acc` sums to
 * what they differ by in time. For programs of the thread itself: if the scheduler's came between, `since` has
 * moved, and the time is read again. Who is interrupted every time takes the time that the accumulators tell. */
static __always_inline __u64 stamp(struct thread *t, __u32 bucket, __u64 *acc)
{
	__u64 now;

#pragma clang loop unroll(disable)
	for (int try = 0; try < STAMP_TRIES; try++) {
		__u64 since = *(volatile __u64 *)&t->since;

		now = bpf_ktime_get_ns();
		if (now > since)
			close_interval(t, since, now, bucket);
		else
			now = since;
		barrier();
		__builtin_memcpy(acc, t->acc, sizeof(t->acc));
		barrier();
		if (*(volatile __u64 *)&t->since == now)
			return now;
	}
	now = t->first_ns;
	for (int i = 0; i < BUCKETS; i++)
		now += acc[i];
	return now;
}

/* How long a thread is accounted, read by somebody else: `lasted`, with `acc` and `undecided` made to sum to
 * it. What the thread is in the middle of closing itself is in no accumulator yet, and may be for as long
 * as it is preempted there: it is still what a running thread's time is (`running`). If all of it moved while
 * it was read, it is right for the time that it sums to. */
static __always_inline __u64 make_whole(__u64 *acc, __u32 running, __u64 lasted, __u64 undecided)
{
	__u64 sum = undecided;

	for (int i = 0; i < BUCKETS; i++)
		sum += acc[i];
	barrier_var(running);	/* the verifier must see its bounds checked */
	if (running >= BUCKETS || sum >= lasted)
		return sum;
	acc[running] += lasted - sum;
	return lasted;
}

#endif
