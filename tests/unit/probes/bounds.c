/* The kernel side's bounds.bpf.h as a library of its own. */
#include <linux/types.h>

#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#include "bounds.bpf.h"

void after(struct bounds *b, __u64 ns) { note_after(b, ns); }
void before(struct bounds *b, __u64 ns) { note_before(b, ns); }
void exactly(struct bounds *b, __u64 ns) { note_exactly(b, ns); }
__u64 usually(const struct bounds *b) { return usual(b); }
