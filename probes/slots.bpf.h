/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * Which slot of the table of threads is a task's, and which slots are free. Included by maps.bpf.h.
 *
 * The task's own storage says it, and the kernel frees that with the task: nothing is ever deleted
 * here, because a deletion can fail. Before 6.2 (e8b02296a6b8) a look-up fails, too, while another one is
 * going on on the same core, which on a preemptible kernel may be for as long as its task is away. There
 * a table by number is asked instead, which always answers.
 */
#ifndef INGERO_SLOTS_H
#define INGERO_SLOTS_H

struct thread_ref {
	__u64 slot;
	__u64 start_ns;		/* by number: of the task, because numbers are used again */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread_ref);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, THREADS);
	__type(key, __u32);
	__type(value, struct thread_ref);
} threads_by_number SEC(".maps");

struct free_slot {
	__u32 slot;
	__u32 pad;
	__u64 since_ns;
};

struct {			/* slots that were used and are free again, oldest first */
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, THREADS);
	__type(value, struct free_slot);
} free_slots SEC(".maps");

struct {			/* how many slots were ever used */
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} slots_used SEC(".maps");

/* Who found a thread's state uses it for microseconds; so long after its end nobody does. */
#define SLOT_REST_NS 100000000ULL

enum bpf_func_id___v62 { BPF_FUNC_cgrp_storage_get___v62 = 210 };

/* The helper came with 6.2, like look-ups that always answer. */
static __always_inline bool storage_answers(void)
{
#ifdef INGERO_THREADS_BY_NUMBER		/* as on older kernels, for tests */
	return false;
#else
	return bpf_core_enum_value_exists(enum bpf_func_id___v62, BPF_FUNC_cgrp_storage_get___v62);
#endif
}

static __always_inline struct thread_ref *ref_by_number(struct task_struct *task)
{
	__u32 tid = task->pid;
	struct thread_ref *ref = bpf_map_lookup_elem(&threads_by_number, &tid);

	return ref && ref->start_ns == task->start_boottime ? ref : 0;
}

static __always_inline struct thread_ref *find_ref(struct task_struct *task)
{
	if (storage_answers())
		return bpf_task_storage_get(&threads, task, 0, 0);
	return ref_by_number(task);
}

static __always_inline struct thread *find_thread(struct task_struct *task)
{
	struct thread_ref *ref = find_ref(task);

	return ref ? thread_at(ref->slot) : 0;
}

/* 0: no memory, or not just now. */
static __always_inline struct thread_ref *make_ref(struct task_struct *task)
{
	struct thread_ref fresh = {};
	struct thread_ref *ref;
	__u32 tid = task->pid;

	if (storage_answers())
		return bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	ref = ref_by_number(task);
	if (ref)
		return ref;
	fresh.start_ns = task->start_boottime;
	bpf_map_update_elem(&threads_by_number, &tid, &fresh, BPF_ANY);
	return ref_by_number(task);
}

/* An entry by number that stays is another task's to take over. */
static __always_inline void forget_ref(struct task_struct *task)
{
	struct thread_ref *ref = find_ref(task);
	__u32 tid = task->pid;

	if (ref)
		ref->slot = 0;
	if (!storage_answers() && ref)
		bpf_map_delete_elem(&threads_by_number, &tid);
}

/* A thread that executes a program takes its process's first number, and that one's birthday. */
static __always_inline void renumber_ref(struct task_struct *task, __u32 old)
{
	struct thread_ref *ref, moved = {.start_ns = task->start_boottime};
	__u32 tid = task->pid;

	if (storage_answers() || tid == old)
		return;
	ref = bpf_map_lookup_elem(&threads_by_number, &old);
	if (!ref)
		return;
	moved.slot = ref->slot;
	bpf_map_delete_elem(&threads_by_number, &old);
	if (bpf_map_update_elem(&threads_by_number, &tid, &moved, BPF_ANY))
		lose(LOSS_THREAD_STATE, 1);
}

static __always_inline void give_slot(__u32 slot, __u64 now)
{
	struct free_slot free = {.slot = slot, .since_ns = now};

	if (bpf_map_push_elem(&free_slots, &free, 0))
		lose(LOSS_THREAD_SLOT, 1);
}

static __always_inline __u32 take_slot(__u64 now)
{
	struct free_slot free = {};
	__u32 slot, zero = 0;
	__u64 *used;

	if (!bpf_map_pop_elem(&free_slots, &free)) {
		if (now - free.since_ns >= SLOT_REST_NS)
			return free.slot;
		if (bpf_map_push_elem(&free_slots, &free, 0))
			lose(LOSS_THREAD_SLOT, 1);
	}
	used = bpf_map_lookup_elem(&slots_used, &zero);
	if (!used || *used >= THREADS - 1)
		return 0;
	slot = __sync_fetch_and_add(used, 1) + 1;
	return slot < THREADS ? slot : 0;
}

#endif
