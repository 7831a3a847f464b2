/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * The kernel's out-of-memory killer chose a victim. Until 6.8 (72ba14deb40a) the
 * tracepoint gave only its pid; the second program serves those kernels.
 */
#include "maps.bpf.h"

static __always_inline struct oom *new_oom(__u32 pid)
{
	struct oom *r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);

	if (!r) {
		lose(LOSS_RING_OTHER, 1);
		return 0;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->h.type = REC_OOM;
	r->h.pid = pid;
	r->h.tid = pid;
	r->h.start_ns = bpf_ktime_get_ns();
	return r;
}

SEC("tp_btf/mark_victim")
int BPF_PROG(mark_victim, struct task_struct *victim)
{
	struct oom *r = new_oom(victim->tgid);

	if (!r)
		return 0;
	r->h.tid = victim->pid;
	r->h.cgroup_id = task_cgroup(victim);
	__builtin_memcpy(r->h.comm, victim->comm, sizeof(r->h.comm));
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/mark_victim")
int BPF_PROG(mark_victim_v67, int pid)
{
	struct oom *r = new_oom(pid);

	if (r)
		bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
