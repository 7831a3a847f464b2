/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * Memory pressure on a traced thread: time inside direct reclaim and compaction is
 * memory_wait, on a core or off it. Fault counts come from the task itself.
 */
#include "account.bpf.h"

static __always_inline int enter_reclaim(void)
{
	struct thread *t = find_thread(bpf_get_current_task_btf());

	if (!t)
		return 0;
	settle(t, bpf_ktime_get_ns(), running_bucket(t));
	t->reclaim++;
	return 0;
}

static __always_inline int leave_reclaim(void)
{
	struct thread *t = find_thread(bpf_get_current_task_btf());

	if (!t || !t->reclaim)		/* it began before we came */
		return 0;
	settle(t, bpf_ktime_get_ns(), running_bucket(t));
	t->reclaim--;
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(direct_reclaim_begin)
{
	return enter_reclaim();
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(direct_reclaim_end)
{
	return leave_reclaim();
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int BPF_PROG(memcg_reclaim_begin)
{
	return enter_reclaim();
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(memcg_reclaim_end)
{
	return leave_reclaim();
}

SEC("tp_btf/mm_compaction_begin")
int BPF_PROG(compaction_begin)
{
	return enter_reclaim();
}

SEC("tp_btf/mm_compaction_end")
int BPF_PROG(compaction_end)
{
	return leave_reclaim();
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
