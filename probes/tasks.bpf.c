/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * All tasks, once a second: takes in threads of targets we have no state for yet
 * (those that ran before we came) and reports every traced thread's accounting,
 * its open interval included. Reading never changes the accounting.
 */
#include "wait_kind.bpf.h"

struct seq_file;
struct bpf_iter_meta { struct seq_file *seq; } CORE;
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} CORE;

struct {			/* the record being made: too large for the stack */
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct thread_totals);
} being_made SEC(".maps");

#define TASK_NEW 0x800		/* made, not yet woken for the first time */
#define PF_EXITING 0x4

/* A task about to block is on its core until it has switched. */
static __always_inline __u32 thread_state(struct task_struct *task)
{
	if (BPF_CORE_READ(task, on_cpu))
		return RUNNING;
	return blocked(task_state(task)) ? BLOCKED : RUNNABLE;
}

/* From the moment its state exists the scheduler's programs keep it; a switch between
 * our look and that moment is seen by looking again. */
static __always_inline void take_in(struct task_struct *task, __u64 now)
{
	__u32 state = thread_state(task);
	struct thread *t = new_thread(task, now, state);

	if (!t)
		return;
	t->before_attach = 1;
	if (thread_state(task) != state)
		__sync_val_compare_and_swap(&t->state, state, thread_state(task));
	if (t->state == BLOCKED)
		classify_wait(t, task, task_state(task), false);
}

/* The open interval must belong to the accumulators it is added to: read again
 * until nothing moved between. */
static __always_inline void copy_accounting(struct thread_totals *r, struct thread *t)
{
	__u32 bucket, state;

	for (int try = 0; try < 4; try++) {
		__u64 since = *(volatile __u64 *)&t->since;
		__u64 now = bpf_ktime_get_ns();

		for (int i = 0; i < BUCKETS; i++) {
			r->acc[i] = *(volatile __u64 *)&t->acc[i];
			r->gap[i] = *(volatile __u64 *)&t->gap[i];
		}
		r->spun_ns = *(volatile __u64 *)&t->spun_ns;
		r->reclaiming_ns = *(volatile __u64 *)&t->reclaiming_ns;
		state = *(volatile __u32 *)&t->state;
		bucket = state == RUNNING ? running_bucket(t) : state == RUNNABLE ? RUNQUEUE : t->bucket;
		r->now_ns = now;
		r->open_ns = now > since ? now - since : 0;
		r->open_bucket = bucket;
		r->undecided = state == BLOCKED && t->poll;
		if (since == *(volatile __u64 *)&t->since)
			break;
	}
	bucket = r->open_bucket;
	barrier_var(bucket);	/* the verifier must see its bounds checked */
	if (r->undecided || bucket >= BUCKETS)
		return;
	r->acc[bucket] += r->open_ns;
	if (state == RUNNING)
		add_on_core(&r->spun_ns, &r->reclaiming_ns, bucket, r->open_ns);
	if (t->idle)
		r->gap[bucket] += part_in_gap(t, bucket, r->open_ns, on_core(t) + r->open_ns - t->idle_on_core);
}

SEC("iter/task")
int each_task(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct thread_totals *r;
	struct pt_regs *regs;
	struct thread *t;
	__u32 pid, zero = 0;
	__u64 whole;

	if (!task || task->flags & PF_KTHREAD || task_state(task) & TASK_NEW)
		return 0;
	t = find_thread(task);
	if (!t) {
		if (task->flags & PF_EXITING)	/* its last accounting has left; a zombie waits for nothing */
			return 0;
		pid = task->tgid;
		if (!bpf_map_lookup_elem(&procs, &pid))
			return 0;
		take_in(task, bpf_ktime_get_ns());
		t = find_thread(task);
		if (!t)
			return 0;
	}
	r = bpf_map_lookup_elem(&being_made, &zero);
	if (!r)
		return 0;
	__builtin_memset(r, 0, sizeof(*r));
	t->cgroup_id = task_cgroup(task);
	fill_header(&r->h, REC_THREAD, t);
	__builtin_memcpy(r->h.comm, task->comm, sizeof(r->h.comm));
	r->h.start_ns = t->first_ns;
	copy_accounting(r, t);
	/* It may wake just now: then it was decided, and is in the accumulators. */
	if (r->undecided && !__sync_val_compare_and_swap(&t->poll, 1, 2))
		copy_accounting(r, t);
	whole = make_whole(r->acc, running_bucket(t), r->now_ns - r->h.start_ns, r->undecided ? r->open_ns : 0);
	r->now_ns = r->h.start_ns + whole;
	copy_counts(r, t, task);
	r->process_start_ns = t->process_start_ns;
	if (t->depth && t->depth <= FRAMES) {
		r->call_start_ns = t->frames[0].start_ns;
		r->call_op = t->frames[0].op;
	}
	r->spanned_bucket = t->spanned_bucket;
	r->syscall = t->state == BLOCKED ? t->syscall : -1;
	r->before_attach = t->before_attach;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	r->user_ip = regs_ip(regs);
	r->user_sp = regs_sp(regs);
	r->user_bp = regs_bp(regs);
	bpf_seq_write(ctx->meta->seq, r, sizeof(*r));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
