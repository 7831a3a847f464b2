/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * Block requests, joined from issue to completion. Those of targets get a record
 * each; everybody else's are summed per process and disk. The completion also marks this
 * core's interrupt, so that the wake-up it causes knows its request.
 */
#include "maps.bpf.h"

struct gendisk { int major; int first_minor; } CORE;
struct request_queue { struct gendisk *disk; } CORE;
struct request {
	struct request_queue *q;
	unsigned int cmd_flags;
	unsigned int __data_len;
	__u64 __sector;
} CORE;

struct flight {
	__u64 insert_ns;
	__u64 issue_ns;
	__u64 sector;
	__u64 cgroup_id;
	__u32 bytes;
	__u32 dev;
	__u32 pid;
	__u32 tid;
	__u32 kind;
	__u32 pad;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct flight);
} flights SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct io_key);
	__type(value, struct io_value);
} io_stats SEC(".maps");

static __always_inline void note_issuer(struct flight *f)
{
	struct task_struct *task = bpf_get_current_task_btf();

	f->pid = task->tgid;
	f->tid = task->pid;
	f->cgroup_id = task_cgroup(task);
	__builtin_memcpy(f->comm, task->comm, sizeof(f->comm));
}

static __always_inline __u32 kind_of(__u32 op)
{
	switch (op) {
	case 0: return 0;	/* read */
	case 1: return 1;	/* write */
	case 3: return 2;	/* discard */
	case 2: return 3;	/* flush */
	}
	return 4;
}

static __always_inline void describe(struct flight *f, struct request *rq)
{
	struct gendisk *disk = BPF_CORE_READ(rq, q, disk);

	f->sector = rq->__sector;
	f->bytes = rq->__data_len;
	f->kind = kind_of(rq->cmd_flags & 0xff);
	f->dev = BPF_CORE_READ(disk, major) << 20 | BPF_CORE_READ(disk, first_minor);
}

/* Inserted by the task that wants it; issued later, perhaps by a kernel worker. */
SEC("tp_btf/block_rq_insert")
int BPF_PROG(block_rq_insert, struct request *rq)
{
	__u64 key = (__u64)rq;
	struct flight f = {.insert_ns = bpf_ktime_get_ns()};

	describe(&f, rq);
	note_issuer(&f);
	if (bpf_map_update_elem(&flights, &key, &f, BPF_ANY))
		lose(LOSS_BLOCK_FULL, 1);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(block_rq_issue, struct request *rq)
{
	__u64 key = (__u64)rq;
	struct flight *known = bpf_map_lookup_elem(&flights, &key);
	struct flight f = {.issue_ns = bpf_ktime_get_ns()};

	describe(&f, rq);
	/* Also when issued again: a full device sends a request back, and a worker brings
	 * it a second time. Neighbours may have been merged into it before and behind. */
	if (known && known->sector >= f.sector && known->sector <= f.sector + (f.bytes >> 9)) {
		known->issue_ns = f.issue_ns;
		known->sector = f.sector;
		known->bytes = f.bytes;
		return 0;
	}
	note_issuer(&f);
	f.insert_ns = f.issue_ns;
	if (bpf_map_update_elem(&flights, &key, &f, BPF_ANY))
		lose(LOSS_BLOCK_FULL, 1);
	return 0;
}

static __always_inline void sum_up(const struct flight *f, __u64 ns)
{
	struct io_key key = {.pid = f->pid, .write = f->kind, .dev = f->dev};
	struct io_value *v = bpf_map_lookup_elem(&io_stats, &key);
	struct io_value fresh = {.count = 1, .bytes = f->bytes, .ns = ns, .max_ns = ns};

	if (!v) {
		__builtin_memcpy(fresh.comm, f->comm, sizeof(fresh.comm));
		bpf_map_update_elem(&io_stats, &key, &fresh, BPF_NOEXIST);
		return;
	}
	__sync_fetch_and_add(&v->count, 1);
	__sync_fetch_and_add(&v->bytes, f->bytes);
	__sync_fetch_and_add(&v->ns, ns);
	if (ns > v->max_ns)
		v->max_ns = ns;
	__builtin_memcpy(v->comm, f->comm, sizeof(v->comm));	/* the number may have a new owner */
}

static __always_inline void record(const struct flight *f, __u64 ns, int error)
{
	struct block *r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);

	if (!r) {
		lose(LOSS_RING_OTHER, 1);
		return;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->h.type = REC_BLOCK;
	r->h.cpu = bpf_get_smp_processor_id();
	r->h.pid = f->pid;
	r->h.tid = f->tid;
	r->h.start_ns = f->issue_ns;
	r->h.cgroup_id = f->cgroup_id;
	__builtin_memcpy(r->h.comm, f->comm, sizeof(r->h.comm));
	r->duration_ns = ns;
	r->queued_ns = f->issue_ns - f->insert_ns;
	r->sector = f->sector;
	r->bytes = f->bytes;
	r->dev = f->dev;
	r->error = error;
	r->write = f->kind;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(block_rq_complete, struct request *rq, int error, unsigned int bytes)
{
	__u64 key = (__u64)rq, ns;
	struct flight *known = bpf_map_lookup_elem(&flights, &key);
	struct flight f;
	struct irq_state *i;
	__u32 zero = 0;

	if (!known)
		return 0;
	f = *known;
	bpf_map_delete_elem(&flights, &key);
	if (!f.issue_ns)
		return 0;
	i = bpf_map_lookup_elem(&irq, &zero);
	if (i && in_interrupt(i)) {
		i->block = 1;
		i->dev = f.dev;
		i->sector = f.sector;
	}
	ns = bpf_ktime_get_ns() - f.issue_ns;
	if (bpf_map_lookup_elem(&procs, &f.pid))
		record(&f, ns, error);
	else
		sum_up(&f, ns);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
