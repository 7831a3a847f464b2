/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * Birth and death of processes and threads. Descendants of a target are targets;
 * the last accounting of a thread leaves with it.
 */
#include "account.bpf.h"
#include "started.bpf.h"
#include "walk.bpf.h"

static __always_inline void tell(struct task_struct *p, __u32 event, __u32 target, __u32 parent)
{
	struct process *r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);

	if (!r) {
		lose(LOSS_RING_PROCESS, 1);
		return;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->h.type = REC_PROCESS;
	r->h.cpu = bpf_get_smp_processor_id();
	r->h.pid = p->tgid;
	r->h.tid = p->pid;
	r->h.start_ns = bpf_ktime_get_ns();
	r->h.cgroup_id = task_cgroup(p);
	__builtin_memcpy(r->h.comm, p->comm, sizeof(r->h.comm));
	r->event = event;
	r->parent_pid = parent;
	r->process_start_ns = BPF_CORE_READ(p, group_leader, start_boottime);
	r->exit_code = p->exit_code;
	r->target = target;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

/* A fork has the same interpreter at the same addresses. */
static __always_inline void copy_python(__u32 parent, __u32 child)
{
	struct python_layout *l = bpf_map_lookup_elem(&pythons, &parent);

	if (l)
		bpf_map_update_elem(&pythons, &child, l, BPF_ANY);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 pid = parent->tgid, child_pid = child->tgid;
	struct proc *proc = bpf_map_lookup_elem(&procs, &pid);
	struct thread *t, *from;
	struct proc copy;

	if (!proc)
		return 0;
	if (child_pid != pid) {		/* a process: same mappings, so same runtime ranges */
		copy = *proc;
		copy.start_ns = BPF_CORE_READ(child, start_boottime);
		if (bpf_map_update_elem(&procs, &child_pid, &copy, BPF_ANY))
			lose(LOSS_PROCESS_FULL, 1);
		copy_python(pid, child_pid);
		tell(child, PROCESS_FORK, 1, pid);
	}
	t = new_thread(child, bpf_ktime_get_ns(), RUNNABLE);
	from = find_thread(parent);
	if (t && from && child_pid != pid)
		t->gpu_id = -1;
	return 0;
}

static __always_inline void drop_calls(struct thread *t)
{
	if (t->depth)
		lose(LOSS_CALL_UNWOUND, t->depth);
	t->depth = 0;
	t->idle = 0;
	t->round.from_ns = 0;
	t->sync = 0;
	t->overflow = 0;
}

static __always_inline void tell_totals(struct task_struct *p, struct thread *t, __u64 now)
{
	struct thread_totals *r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);

	if (!r) {
		lose(LOSS_RING_THREAD, 1);
		return;
	}
	__builtin_memset(r, 0, sizeof(*r));
	fill_header(&r->h, REC_THREAD, t);
	__builtin_memcpy(r->h.comm, p->comm, sizeof(r->h.comm));
	r->h.start_ns = t->first_ns;
	r->now_ns = now;
	for (int i = 0; i < BUCKETS; i++) {
		r->acc[i] = t->acc[i];
		r->gap[i] = t->gap[i];
	}
	r->spun_ns = t->spun_ns;
	r->reclaiming_ns = t->reclaiming_ns;
	copy_counts(r, t, p);
	r->process_start_ns = t->process_start_ns;
	if (t->depth && t->depth <= FRAMES) {	/* killed inside it */
		r->call_start_ns = t->frames[0].start_ns;
		r->call_op = t->frames[0].op;
	}
	r->spanned_bucket = t->spanned_bucket;
	r->open_bucket = t->sync ? GPU_WAIT : HOST_CPU;
	r->syscall = -1;
	r->dead = 1;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

/* Another thread than the first executes: it takes the first one's tid, and what was
 * accounted under its own tid ends there. */
static __always_inline void rename_account(struct task_struct *p, struct thread *t, __u64 now)
{
	tell_totals(p, t, now);
	for (int i = 0; i < BUCKETS; i++) {
		t->acc[i] = 0;
		t->gap[i] = 0;
	}
	start_account(t, p, now);
	t->tid = p->pid;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_exec, struct task_struct *p, pid_t old_pid, void *bprm)
{
	__u32 pid = p->tgid;
	struct proc *proc = bpf_map_lookup_elem(&procs, &pid);
	struct thread *t;

	renumber_ref(p, old_pid);
	t = find_thread(p);
	bpf_map_delete_elem(&pythons, &pid);
	if (proc) {
		proc->flags &= ~PROC_RANGES;
		for (int i = 0; i < CALLER_RANGES; i++) {
			proc->range[i].start = 0;
			proc->range[i].end = 0;
		}
		proc->comm.state = COMMS_NOT_TOLD;
	}
	if (t) {
		__u64 now = bpf_ktime_get_ns();

		settle(t, now, running_bucket(t));
		drop_calls(t);
		if (t->tid != (__u32)p->pid)
			rename_account(p, t, now);
		t->gpu_id = -1;
		t->flags &= ~H_FEEDER;
	}
	if (proc)
		tell_started(p);
	tell(p, PROCESS_EXEC, proc != 0, BPF_CORE_READ(p, real_parent, tgid));
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *p)
{
	struct thread *t = find_thread(p);
	__u64 now = bpf_ktime_get_ns();
	__u32 pid = p->tgid;

	if (t) {
		settle(t, now, running_bucket(t));
		tell_totals(p, t, now);
		drop_calls(t);
		/* Nobody accounts for a dying thread's last instructions. */
		free_thread(p, t, now);
	}
	if (BPF_CORE_READ(p, signal, live.counter) == 0 && bpf_map_lookup_elem(&procs, &pid)) {
		tell(p, PROCESS_EXIT, 1, BPF_CORE_READ(p, real_parent, tgid));
		bpf_map_delete_elem(&procs, &pid);
		bpf_map_delete_elem(&pythons, &pid);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
