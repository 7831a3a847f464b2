/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * The runtime's launch functions, for a moment: which host function a thread launches, so
 * that the driver's probe can tell what its handle stands for. Counts nothing and records
 * nothing; only threads that are traced already are looked at.
 */
#include "call.bpf.h"

static __always_inline int note_launch(void *ctx)
{
	const struct uregs *regs = ctx;
	struct thread *t = find_thread(bpf_get_current_task_btf());
	__u32 op = (__u32)bpf_get_attach_cookie(ctx) & (OPS - 1);
	struct op_info *info = bpf_map_lookup_elem(&op_info, &op);
	struct thread_cost *cost;
	__u64 args[8];

	if (!t || !info)
		return 0;
	cost = cost_of(t);
	if (cost)
		cost->passed++;
	arch_args(regs, args);
	t->host_sp = arch_sp(regs);
	t->host_ns = bpf_ktime_get_ns();
	t->host_function = info->kernel_arg == 1 ? args[1] : args[0];
	return 0;
}

/* 6.6+; also where sessions are offered: there is nothing to do at the return. */
SEC("uprobe/multi_enter")
int names_multi_enter(void *ctx)
{
	return note_launch(ctx);
}

SEC("uprobe/perf_enter")
int names_perf_enter(void *ctx)
{
	return note_launch(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
