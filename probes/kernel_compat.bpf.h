/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * The kernel's own structures, as far as we read them, and one helper per
 * difference between kernels. Fields are found by CO-RE: only names matter here.
 */
#ifndef INGERO_KERNEL_COMPAT_H
#define INGERO_KERNEL_COMPAT_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "arch.bpf.h"

#define CORE __attribute__((preserve_access_index))

typedef int pid_t;

struct kernfs_node { __u64 id; } CORE;
struct cgroup { struct kernfs_node *kn; } CORE;
struct cgroup_subsys_state { struct cgroup *cgroup; } CORE;
struct css_set {
	struct cgroup_subsys_state *subsys[16];
	struct cgroup *dfl_cgrp;
} CORE;
enum cgroup_subsys_id { cpu_cgrp_id, memory_cgrp_id, pids_cgrp_id };

struct cfs_rq { int throttle_count; } CORE;
struct sched_entity { struct cfs_rq *cfs_rq; } CORE;
struct thread_info { __u32 cpu; } CORE;
struct qstr { const unsigned char *name; } CORE;
struct dentry { struct qstr d_name; } CORE;
struct path { struct dentry *dentry; } CORE;
struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
	__u32 i_rdev;
} CORE;
struct file {
	struct inode *f_inode;
	void *private_data;
	struct path f_path;
} CORE;
struct fdtable { unsigned int max_fds; struct file **fd; } CORE;
struct files_struct { struct fdtable *fdt; } CORE;
typedef struct { int counter; } atomic_t;
struct signal_struct { atomic_t live; } CORE;

struct in6_addr { union { __u8 u6_addr8[16]; } in6_u; } CORE;
struct sock_common {
	__u32 skc_daddr;
	__u32 skc_rcv_saddr;
	__u16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
} CORE;
struct socket;
typedef struct { __u32 val; } kuid_t;
struct sock {
	struct sock_common __sk_common;
	struct socket *sk_socket;
	kuid_t sk_uid;
} CORE;
struct socket { struct file *file; struct sock *sk; } CORE;

struct seccomp { int mode; } CORE;
struct mm_struct { unsigned long arg_start, arg_end, env_start, env_end; } CORE;

struct task_struct {
	unsigned int __state;
	unsigned int flags;
	int on_cpu;
	pid_t pid;
	pid_t tgid;
	char comm[16];
	struct thread_info thread_info;
	unsigned in_iowait: 1;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct mm_struct *mm;
	struct css_set *cgroups;
	struct files_struct *files;
	struct signal_struct *signal;
	struct sched_entity se;
	unsigned long nvcsw;
	unsigned long nivcsw;
	unsigned long min_flt;
	unsigned long maj_flt;
	__u64 stime;
	__u64 start_boottime;
	int exit_code;
	bool throttled;
	struct seccomp seccomp;
	struct thread_struct thread;
} CORE;

#define PF_KTHREAD 0x00200000

struct vm_area_struct { unsigned long vm_flags; } CORE;
#define VM_EXEC 4
#define EBUSY 16

/* Until 5.14 the field was `state` (2f064a59a11f "sched: Change task_struct::state"). */
struct task_struct___v513 { volatile long state; } CORE;

static __always_inline unsigned int task_state(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return BPF_CORE_READ(task, __state);
	return (unsigned int)BPF_CORE_READ((struct task_struct___v513 *)task, state);
}

/* thread_info.cpu is where generic code keeps it since 5.16 (bcf9033e5449); before,
 * x86 kept it in task_struct.cpu. */
struct task_struct___v515 { unsigned int cpu; } CORE;

static __always_inline __u32 task_cpu(struct task_struct *task)
{
	if (bpf_core_field_exists(task->thread_info.cpu))
		return BPF_CORE_READ(task, thread_info.cpu);
	return BPF_CORE_READ((struct task_struct___v515 *)task, cpu);
}

/* Whether a session program (6.13+) was called for the return: then the thread is no longer where the function
 * begins. The kernel's own word for it, bpf_session_is_return, has no argument in 6.18 and one in 7.2, and libbpf
 * refuses an object that declares the other kind. */
#define session_returns(ctx) (bpf_get_func_ip(ctx) != arch_caller_ip((const struct uregs *)(ctx)))

/* Every system call of the thread is judged by a filter, or only four are allowed. */
static __always_inline bool task_filtered(struct task_struct *task)
{
	return bpf_core_field_exists(task->seccomp) && BPF_CORE_READ(task, seccomp.mode) != 0;
}

/* Out of CPU quota. 6.18 throttles tasks one by one and marks each (e1fad12dcb66);
 * before, the whole run queue of the group carries a count. */
static __always_inline bool task_throttled(struct task_struct *task)
{
	if (bpf_core_field_exists(task->throttled))
		return BPF_CORE_READ(task, throttled);
	struct cfs_rq *cfs_rq = BPF_CORE_READ(task, se.cfs_rq);
	if (!cfs_rq || !bpf_core_field_exists(cfs_rq->throttle_count))
		return false;
	return BPF_CORE_READ(cfs_rq, throttle_count) > 0;
}

/* The id users can look up: the cgroup v2 one, or on a v1 or hybrid host, where
 * every container sits in the v2 root, that of its memory, cpu or pids cgroup. */
static __always_inline __u64 subsystem_cgroup(struct task_struct *task, __u32 index)
{
	struct css_set *set = BPF_CORE_READ(task, cgroups);
	struct cgroup_subsys_state *css = 0;

	if (index >= 16)
		return 0;
	bpf_core_read(&css, sizeof(css), &set->subsys[index]);
	return css ? BPF_CORE_READ(css, cgroup, kn, id) : 0;
}

static __always_inline __u64 task_cgroup(struct task_struct *task)
{
	__u64 id = BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);

	if (id > 1)
		return id;
	if (bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id)) {
		__u64 v1 = subsystem_cgroup(task, bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id));
		if (v1 > 1)
			return v1;
	}
	if (bpf_core_enum_value_exists(enum cgroup_subsys_id, cpu_cgrp_id)) {
		__u64 v1 = subsystem_cgroup(task, bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id));
		if (v1 > 1)
			return v1;
	}
	if (bpf_core_enum_value_exists(enum cgroup_subsys_id, pids_cgrp_id)) {
		__u64 v1 = subsystem_cgroup(task, bpf_core_enum_value(enum cgroup_subsys_id, pids_cgrp_id));
		if (v1 > 1)
			return v1;
	}
	return id;
}

#endif
