/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * What a process was started with: its command line and environment, told by the process
 * itself at its exec or first traced call. One that lives for milliseconds, or while the
 * agent is busy, has left nothing in /proc by the time it is looked for there.
 */
#ifndef INGERO_STARTED_H
#define INGERO_STARTED_H

#include "frames.bpf.h"

/* Returns non-zero when there was nothing to tell. */
static __noinline int tell_part(struct task_struct *task, __u32 part, __u64 from, __u64 end)
{
	struct started *r;
	__u64 length = end - from;

	if (!task || from >= end)
		return 1;
	if (length > STARTED_BYTES)
		length = STARTED_BYTES;
	r = bpf_ringbuf_reserve(&frames, sizeof(*r), 0);
	if (!r) {
		lose(LOSS_RING_PROCESS, 1);
		return 1;
	}
	__builtin_memset(&r->h, 0, sizeof(r->h));
	r->h.type = REC_STARTED;
	r->h.pid = task->tgid;
	r->h.tid = task->pid;
	r->h.start_ns = bpf_ktime_get_ns();
	r->process_start_ns = BPF_CORE_READ(task, group_leader, start_boottime);
	r->parent_pid = BPF_CORE_READ(task, real_parent, tgid);
	r->uid = (__u32)bpf_get_current_uid_gid();
	r->part = part;
	r->length = length;
	/* What cannot be read is sent as nothing: the agent then knows that it is not known. */
	if (bpf_probe_read_user(r->text, length & (2 * STARTED_BYTES - 1), (const void *)from))
		r->length = 0;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Of the current process. */
static __noinline int tell_started(struct task_struct *task)
{
	struct mm_struct *mm;
	__u64 at, end;

	if (!task)
		return 0;
	mm = task->mm;
	if (!mm)
		return 0;
	tell_part(task, 0, BPF_CORE_READ(mm, arg_start), BPF_CORE_READ(mm, arg_end));
	at = BPF_CORE_READ(mm, env_start);
	end = BPF_CORE_READ(mm, env_end);
	for (int part = 1; part <= STARTED_PARTS; part++) {
		if (tell_part(task, part, at, end))
			break;
		at += STARTED_BYTES;
	}
	return 0;
}

#endif
