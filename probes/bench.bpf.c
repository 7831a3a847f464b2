/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * What benchmarks compare with: programs that do nothing, and a producer that
 * fills the ring as fast as it can. Never loaded by the agent.
 */
#include "maps.bpf.h"

SEC("uprobe/session")
int empty_session(void *ctx)
{
	return 0;
}

SEC("uprobe/enter")
int empty_enter(void *ctx)
{
	return 0;
}

SEC("uretprobe/return")
int empty_return(void *ctx)
{
	return 0;
}

static int produce_one(__u32 index, void *context)
{
	struct call *r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);

	if (!r) {
		lose(LOSS_RING_CALL, 1);
		return 0;
	}
	r->h.type = REC_CALL;
	r->h.pid = index;
	r->seq = bpf_ktime_get_ns();
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

struct produce_args {
	__u32 count;
	__u32 pad;
};

SEC("syscall")
int produce(struct produce_args *args)
{
	return bpf_loop(args->count, produce_one, 0, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
