/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * When something is usually done, learnt from moments at which it was not yet, was already, or
 * was seen to be. Needs nothing of the kernel: tests drive it by itself.
 */
#ifndef INGERO_BOUNDS_H
#define INGERO_BOUNDS_H

struct bounds {
	__u64 after_ns;
	__u64 before_ns;	/* 0: nothing known */
	__u64 seen;		/* how often the very moment was */
};

/* What contradicts both bounds moves both by a quarter: if the work has changed, they follow within
 * a few waits; if it was one that noise made longer, they still tell of the others. What they are
 * wider than moves them a little: offs and returns are anywhere before and after, and tell most
 * where they are near. */
#define FORGET_SHIFT 6

static __always_inline void note_after(struct bounds *b, __u64 ns)
{
	if (b->before_ns && ns > b->before_ns) {
		b->before_ns += (ns - b->before_ns) / 4;
		b->after_ns += (ns - b->after_ns) / 4;
	} else if (ns > b->after_ns) {
		b->after_ns = ns;
	} else {
		b->after_ns -= (b->after_ns - ns) >> FORGET_SHIFT;
	}
}

static __always_inline void note_before(struct bounds *b, __u64 ns)
{
	if (b->before_ns && ns < b->after_ns) {
		b->after_ns -= (b->after_ns - ns) / 4;
		b->before_ns -= (b->before_ns - ns) / 4;
	} else if (!b->before_ns || ns < b->before_ns) {
		b->before_ns = ns;
		if (b->after_ns > ns)	/* never the other way round: the differences have no sign */
			b->after_ns = ns;
	} else {
		b->before_ns += (ns - b->before_ns) >> FORGET_SHIFT;
	}
}

static __always_inline void note_exactly(struct bounds *b, __u64 ns)
{
	note_after(b, ns);
	note_before(b, ns);
	b->seen++;
}

/* Of a length that is only known to lie between two, nothing says on which scale: as many times
 * longer than the one as it is shorter than the other. Not static: verified once. */
#define WIDEST_SHIFT 4		/* where hardly anything is known of the lower one */

__noinline __u64 between(__u64 after, __u64 before)
{
	__u64 product, root;

	if (after < before >> WIDEST_SHIFT)
		after = before >> WIDEST_SHIFT;
	after >>= 10;		/* in microseconds, so that the product stays within 64 bits */
	before >>= 10;
	if (after > 0xffffffff || before > 0xffffffff || after >= before)
		return before << 10;
	product = after * before;
	root = (after + before) / 2;
	for (int i = 0; i < 5 && root; i++)	/* from so near four steps are enough */
		root = (root + product / root) / 2;
	return root << 10;
}

static __always_inline __u64 usual(const struct bounds *b)
{
	return b->before_ns <= b->after_ns ? b->before_ns : between(b->after_ns, b->before_ns);
}

#endif
