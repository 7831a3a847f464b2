/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * Where the time on a core goes: a software clock, 49 times a second, sees which traced
 * thread runs, on which line, and whether Python's garbage collector is at work. Summed
 * here per stack. Threads of targets only; everybody else costs a look-up.
 */
#include "account.bpf.h"
#include "walk.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct sample_key);
	__type(value, __u64);
} samples SEC(".maps");

/* What the interpreter says of itself: collecting, and whether this thread has the lock. */
static __always_inline __u32 python_flags(__u32 pid, __u64 thread_pointer)
{
	const struct python_layout *l = bpf_map_lookup_elem(&pythons, &pid);
	__u64 holder = 0, state;
	__u32 collecting = 0, held = 0, flags = 0;

	if (!l || !l->code_type)
		return 0;
	if (l->collecting && !bpf_probe_read_user(&collecting, 4, (const void *)l->collecting) && collecting == 1)
		flags |= SAMPLE_COLLECTING;
	state = thread_state_of(l, thread_pointer);
	if (state && l->lock_holder && l->lock_held && read_word(&holder, l->lock_holder) && holder == state &&
	    !bpf_probe_read_user(&held, 4, (const void *)l->lock_held) && held == 1)
		flags |= SAMPLE_GIL;
	return flags;
}

static __always_inline void count_sample(const struct sample_key *key)
{
	__u64 *count = bpf_map_lookup_elem(&samples, key);
	__u64 one = 1;

	if (count)
		__sync_fetch_and_add(count, 1);
	else if (bpf_map_update_elem(&samples, key, &one, BPF_NOEXIST))
		lose(LOSS_SAMPLE_FULL, 1);
}

SEC("perf_event")
int sample(void *ctx)
{
	const struct uregs *regs = ctx;	/* a perf event's context begins with them */
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *t = find_thread(task);
	struct settings *set = get_settings();
	struct sample_key key = {};
	struct scratch *c;
	__u64 now, hash;

	if (!t || !set || !set->stacks)
		return 0;
	now = bpf_ktime_get_ns();
	c = begin_stack(t, now, CLOCK_WALK, &hash);
	if (!c)
		return 0;
	key.stack_id = finish_stack(t, c, hash,
				    bpf_get_stack(ctx, c->s.native, sizeof(c->s.native), BPF_F_USER_STACK), now);
	key.pid = t->pid;
	key.tid = t->tid;
	key.bucket = running_bucket(t);
	key.op = t->depth && t->depth <= FRAMES ? t->frames[0].op : 0;
	key.flags = python_flags(t->pid, arch_thread_pointer(task)) | (arch_user_mode(regs) ? 0 : SAMPLE_KERNEL);
	count_sample(&key);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
