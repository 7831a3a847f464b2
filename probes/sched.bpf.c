/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * The scheduler: when a traced thread loses its core and to whom, what it blocks
 * in, who wakes it, and how long it then waits for a core.
 *
 * These programs run with the run-queue lock held: no user stacks, no long loops,
 * and ring records without wake-up.
 */
#include "wait_kind.bpf.h"
#include "wait_line.bpf.h"
#include "culprits.bpf.h"
#include "unwatched.bpf.h"

/* Made in full beforehand, like the culprits. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct waker_key);
	__type(value, struct who_value);
} wakers SEC(".maps");

static __always_inline bool is_long(const struct thread *t, const struct settings *set, __u64 now)
{
	return set && t->flags & H_FEEDER && now - t->off_ns >= set->wait_record_ns;
}

static __always_inline void record_wait(struct thread *t, struct task_struct *task, __u64 now)
{
	struct wait *r;

	r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		lose(LOSS_RING_WAIT, 1);
		return;
	}
	fill_header(&r->h, REC_WAIT, t);
	__builtin_memcpy(r->h.comm, task->comm, sizeof(r->h.comm));
	r->h.start_ns = t->off_ns;
	r->duration_ns = now - t->off_ns;
	r->runqueue_ns = r->duration_ns - t->blocked_ns;
	r->bucket = t->blocked_ns ? t->bucket : RUNQUEUE;
	r->waker_kind = t->blocked_ns ? t->waker_kind : WAKER_NONE;
	r->waker_pid = t->blocked_ns ? t->waker_pid : 0;
	r->waker_tid = t->blocked_ns ? t->waker_tid : 0;
	r->syscall = t->blocked_ns ? t->syscall : -1;
	r->op = t->depth && t->depth <= FRAMES ? t->frames[0].op : 0;
	r->throttled = t->throttled;
	r->dev = t->blocked_ns ? t->dev : 0;
	r->sector = t->blocked_ns ? t->sector : 0;
	r->address = t->blocked_ns ? t->address : 0;
	r->stack_id = t->wait_stack;
	r->gil = GIL_UNKNOWN;
	r->holder_tid = t->blocked_ns ? t->holder_tid : 0;
	r->pad = 0;
	__builtin_memcpy(r->waker, t->waker, sizeof(r->waker));
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

static __always_inline void leave_core(struct task_struct *task, bool preempt, __u32 state, __u64 now, bool later)
{
	struct thread *t = find_thread(task);

	if (!t)
		return;
	settle(t, now, running_bucket(t));
	t->off_ns = now;
	t->charged_ns = now;
	t->blocked_ns = 0;
	t->throttled = 0;
	t->dev = 0;
	t->before_attach = 0;
	t->wait_stack = 0;
	/* Preempted means runnable whatever it was about to do. */
	if (preempt || !blocked(state)) {
		t->throttled = task_throttled(task);
		t->state = RUNNABLE;
		return;
	}
	classify_wait(t, task, state, true);
	if (t->polls && t->bucket == SLEEP && !t->poll)
		t->bucket = GPU_WAIT;
	t->holder_tid = t->bucket == LOCK_WAIT ? holder_of(t) : 0;
	t->state = BLOCKED;
	if (!later)
		walk_early(t, now);
}

static __always_inline void take_core(struct task_struct *task, __u64 now, bool later)
{
	struct thread *t = find_thread(task);
	struct settings *set = get_settings();
	__u64 wait;

	if (!t || t->state == RUNNING)
		return;
	if (t->state == BLOCKED) {	/* its wake-up came before we were attached */
		t->waker_kind = WAKER_NONE;
		if (t->poll)
			decide_poll(t);
		t->blocked_ns = now - t->off_ns;
		settle(t, now, t->bucket);
	} else {
		wait = now - t->since;
		settle(t, now, RUNQUEUE);
		if (t->throttled)
			charge_quota(t, wait);
		else
			charge_core(t, bpf_get_smp_processor_id(), t->charged_ns, now);
	}
	t->state = RUNNING;
	t->on_ns = now;
	note_long_wait(t, now - t->off_ns);
	if (t->blocked_ns > WAITED_NS && t->bucket == GPU_WAIT)
		t->woken = 1;
	if (!later && set && set->stacks && t->blocked_ns)
		note_length(t, is_long(t, set, now));
	if (!is_long(t, set, now))
		return;
	record_wait(t, task, now);
	if (later && set->stacks && t->blocked_ns && may_walk_wait(t, set, now))
		ask_for_line(t, task);
}

static __always_inline struct irq_state *irq_now(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&irq, &zero);
}

/* No interrupt outlasts a switch. An entry whose exit was not seen, because we were
 * being attached between the two, must not make every later waker an interrupt. */
static __always_inline void forget_interrupts(void)
{
	struct irq_state *i = irq_now();

	if (i && in_interrupt(i)) {
		i->softirq = 0;
		i->hardirq = 0;
		i->timer = 0;
		i->block = 0;
	}
}

/* later: the line of a long wait is walked when it is over. */
static __always_inline int on_switch(bool preempt, struct task_struct *prev, struct task_struct *next, __u32 state,
				     bool later)
{
	__u64 now = bpf_ktime_get_ns();

	forget_interrupts();
	log_slice(prev, next, now);
	leave_core(prev, preempt, state, now, later);
	take_core(next, now, later);
	return 0;
}

/* Since 5.18 (fa2c3254d7cf) the state comes as an argument, read before a wake-up on another core
 * could change it; the second form serves older ones. */
SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int state)
{
	return on_switch(preempt, prev, next, state, TASK_WORK);
}

#if !TASK_WORK
SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch_v517, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return on_switch(preempt, prev, next, task_state(prev), false);
}
#endif

/* Who wakes: the current task, or the interrupt that happens to sit on top of it. */
static __always_inline __u32 waker_kind(const struct irq_state *i)
{
	if (!in_interrupt(i))
		return WAKER_TASK;
	if (i->timer)
		return WAKER_IRQ_TIMER;
	if (i->block)
		return WAKER_IRQ_BLOCK;
	if (i->hardirq)			/* on top of whatever softirq it came in */
		return WAKER_IRQ_OTHER;
	switch (i->softirq) {
	case 1 + 1: case 8 + 1: return WAKER_IRQ_TIMER;
	case 2 + 1: case 3 + 1: return WAKER_IRQ_NET;
	case 4 + 1: case 5 + 1: return WAKER_IRQ_BLOCK;
	}
	return WAKER_IRQ_OTHER;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *p)
{
	struct thread *t = find_thread(p);
	struct task_struct *current;
	struct irq_state *i;

	if (!t)
		return 0;
	i = irq_now();
	if (!i)
		return 0;
	current = bpf_get_current_task_btf();
	t->waker_kind = waker_kind(i);
	if (t->waker_kind == WAKER_IRQ_NET && sends_to(current, t))
		t->waker_kind = WAKER_TASK;
	t->waker_pid = 0;
	t->waker_tid = 0;
	__builtin_memset(t->waker, 0, sizeof(t->waker));
	if (t->waker_kind == WAKER_IRQ_BLOCK) {
		t->dev = i->dev;
		t->sector = i->sector;
	}
	if (t->waker_kind != WAKER_TASK)
		return 0;
	if (!current->pid) {		/* the idle task wakes nobody by itself */
		t->waker_kind = WAKER_IRQ_OTHER;
		return 0;
	}
	t->waker_pid = current->tgid;
	t->waker_tid = current->pid;
	__builtin_memcpy(t->waker, current->comm, sizeof(t->waker));
	return 0;
}

static __always_inline void count_waker(struct thread *t, __u64 ns)
{
	struct waker_key key = {.pid = t->pid, .tid = t->tid, .waker_pid = t->waker_pid,
				.waker_tid = t->waker_tid, .kind = t->waker_kind, .bucket = t->bucket};
	struct who_value *v = bpf_map_lookup_elem(&wakers, &key);
	struct who_value fresh = {.ns = ns, .count = 1};

	if (v) {
		__sync_fetch_and_add(&v->ns, ns);
		__sync_fetch_and_add(&v->count, 1);
		__builtin_memcpy(v->comm, t->waker, sizeof(v->comm));
		return;
	}
	__builtin_memcpy(fresh.comm, t->waker, sizeof(fresh.comm));
	if (bpf_map_update_elem(&wakers, &key, &fresh, BPF_NOEXIST))
		lose(LOSS_WAKER_FULL, 1);
}

static __always_inline int on_wakeup(struct task_struct *p)
{
	struct thread *t = find_thread(p);
	__u64 now;

	if (!t || t->state != BLOCKED)
		return 0;
	now = bpf_ktime_get_ns();
	if (t->poll)
		decide_poll(t);
	t->blocked_ns = now - t->off_ns;
	settle(t, now, t->bucket);
	t->charged_ns = now;
	t->throttled = task_throttled(p);
	t->state = RUNNABLE;
	count_waker(t, t->blocked_ns);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(sched_wakeup, struct task_struct *p)
{
	return on_wakeup(p);
}

/* A new thread waits for its first core from here; process.bpf.c made its state. */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(sched_wakeup_new, struct task_struct *p)
{
	struct thread *t = find_thread(p);

	if (!t || t->state != RUNNABLE)
		return 0;
	start_account(t, p, bpf_ktime_get_ns());
	return 0;
}

/* A waiter moves to another core: what it waited for so far ran on the old one. */
SEC("tp_btf/sched_migrate_task")
int BPF_PROG(sched_migrate_task, struct task_struct *p, int dest_cpu)
{
	struct thread *t = find_thread(p);
	__u64 now;

	if (!t || t->state != RUNNABLE || t->throttled)
		return 0;
	now = bpf_ktime_get_ns();
	charge_core(t, task_cpu(p), t->charged_ns, now);
	t->charged_ns = now;
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_entry, unsigned int vector)
{
	struct irq_state *i = irq_now();

	if (i) {
		i->softirq = vector + 1;
		i->block = 0;
	}
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exit, unsigned int vector)
{
	struct irq_state *i = irq_now();

	if (i) {
		i->softirq = 0;
		i->block = 0;
	}
	return 0;
}

static __always_inline int hardirq_begin(void)
{
	struct irq_state *i = irq_now();

	if (i) {
		i->hardirq++;
		i->block = 0;
	}
	return 0;
}

static __always_inline int hardirq_end(void)
{
	struct irq_state *i = irq_now();

	if (i) {
		if (i->hardirq)
			i->hardirq--;
		i->block = 0;
	}
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_handler_entry)
{
	return hardirq_begin();
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_handler_exit)
{
	return hardirq_end();
}

#if defined(__TARGET_ARCH_x86)	/* interrupts between cores have tracepoints of their own */
SEC("tp_btf/call_function_single_entry")
int BPF_PROG(call_single_entry)
{
	return hardirq_begin();
}

SEC("tp_btf/call_function_single_exit")
int BPF_PROG(call_single_exit)
{
	return hardirq_end();
}

SEC("tp_btf/irq_work_entry")
int BPF_PROG(irq_work_entry)
{
	return hardirq_begin();
}

SEC("tp_btf/irq_work_exit")
int BPF_PROG(irq_work_exit)
{
	return hardirq_end();
}
#endif

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(hrtimer_expire_entry, void *timer, void *now)
{
	struct irq_state *i = irq_now();

	if (i)
		i->timer = 1;
	return 0;
}

SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(hrtimer_expire_exit, void *timer)
{
	struct irq_state *i = irq_now();

	if (i)
		i->timer = 0;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
