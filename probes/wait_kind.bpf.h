/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * What a blocked thread waits for: the bucket, first match wins, in the order of
 * docs/accounting.md. Reads the task's registers and descriptors; no system-call
 * tracepoints. System-call numbers are data (syscall_class, filled by Python).
 */
#ifndef INGERO_WAIT_KIND_H
#define INGERO_WAIT_KIND_H

#include "account.bpf.h"

#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define S_IFREG 0100000
#define S_IFBLK 0060000
#define S_IFDIR 0040000
#define S_IFCHR 0020000
#define S_IFIFO 0010000
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define NVIDIA_MAJOR 195

static __always_inline bool loopback4(__u32 address)
{
	return (address & 0xff) == 127;	/* network order on a little-endian machine */
}

static __always_inline __u32 socket_bucket(struct file *file)
{
	struct socket *socket = BPF_CORE_READ(file, private_data);
	struct sock *sk = BPF_CORE_READ(socket, sk);
	unsigned short family = BPF_CORE_READ(sk, __sk_common.skc_family);

	if (family == AF_UNIX)
		return PEER_WAIT;
	if (family == AF_INET) {
		__u32 to = BPF_CORE_READ(sk, __sk_common.skc_daddr);
		__u32 from = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr);
		return loopback4(to) || loopback4(from) || (to && to == from) ? PEER_WAIT : NET_WAIT;
	}
	if (family == AF_INET6) {
		__u64 to[2], from[2];
		BPF_CORE_READ_INTO(&to, sk, __sk_common.skc_v6_daddr);
		BPF_CORE_READ_INTO(&from, sk, __sk_common.skc_v6_rcv_saddr);
		if (to[0] == from[0] && to[1] == from[1] && (to[0] || to[1]))
			return PEER_WAIT;
		/* ::1, and 127/8 mapped into v6 */
		if (!to[0] && (to[1] == 1ULL << 56 || ((to[1] & 0xff00000000ULL) == 0x7f00000000ULL &&
						       (to[1] & 0xffffffff) == 0xffff0000)))
			return PEER_WAIT;
		return NET_WAIT;
	}
	return UNEXPLAINED;
}

/* eventfd, timerfd and friends have no inode kind of their own, only a name. */
static __always_inline __u32 anonymous_bucket(struct file *file)
{
	char name[8] = {};

	bpf_probe_read_kernel(name, sizeof(name), BPF_CORE_READ(file, f_path.dentry, d_name.name));
	if (name[0] == '[' && name[1] == 'e' && name[2] == 'v' && name[6] == 'f')
		return PEER_WAIT;	/* [eventfd] */
	if (name[0] == '[' && name[1] == 't')
		return SLEEP;		/* [timerfd] */
	if (name[0] == '[' && name[1] == 'p' && name[2] == 'i')
		return PEER_WAIT;	/* [pidfd] */
	return UNEXPLAINED;
}

static __always_inline __u32 fd_bucket(struct task_struct *task, __u64 fd)
{
	struct fdtable *fdt = BPF_CORE_READ(task, files, fdt);
	struct file **slots, *file = 0;
	unsigned short mode;

	if (fd >= BPF_CORE_READ(fdt, max_fds))
		return UNEXPLAINED;
	slots = BPF_CORE_READ(fdt, fd);
	bpf_probe_read_kernel(&file, sizeof(file), &slots[fd]);
	if (!file)
		return UNEXPLAINED;
	mode = BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT;
	if (mode == S_IFIFO)
		return PEER_WAIT;
	if (mode == S_IFSOCK)
		return socket_bucket(file);
	if (mode == S_IFREG || mode == S_IFDIR || mode == S_IFBLK)
		return DISK_WAIT;
	if (mode == S_IFCHR)	/* the driver's own device: the call waits for the GPU */
		return BPF_CORE_READ(file, f_inode, i_rdev) >> 20 == NVIDIA_MAJOR ? GPU_WAIT : UNEXPLAINED;
	return anonymous_bucket(file);
}

/* `current` says whether the task is the one running this program, so that its
 * memory can be read. */
static __always_inline void classify_wait(struct thread *t, struct task_struct *task, bool current)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	long nr = regs_syscall(regs);
	__u32 index = (__u32)nr, class = WAIT_UNKNOWN;
	bool iowait = BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait);
	__u64 fd = regs_arg0(regs);
	__u8 *entry;

	t->poll = 0;
	t->syscall = nr >= 0 && nr < SYSCALLS ? (__s32)nr : -1;
	t->address = 0;
	if (t->reclaim) {
		t->bucket = MEMORY_WAIT;
		return;
	}
	if (nr < 0) {			/* a fault: no system call is being served */
		t->bucket = iowait ? DISK_WAIT : MEMORY_WAIT;
		return;
	}
	t->address = fd;
	if (t->sync) {
		t->bucket = GPU_WAIT;
		return;
	}
	if (iowait) {
		t->bucket = DISK_WAIT;
		return;
	}
	entry = bpf_map_lookup_elem(&syscall_class, &index);
	if (entry)
		class = *entry;
	switch (class) {
	case WAIT_WRITEBACK:
	case WAIT_FILE:
		t->bucket = DISK_WAIT;
		return;
	case WAIT_FUTEX:
		t->bucket = LOCK_WAIT;
		return;
	case WAIT_CHILD:
	case WAIT_PEER:
		t->bucket = PEER_WAIT;
		return;
	case WAIT_SLEEP:
		t->bucket = SLEEP;
		return;
	case WAIT_FD:
		t->bucket = fd_bucket(task, fd & 0xffffffff);
		return;
	case WAIT_POLL:
		t->poll = 1;
		t->bucket = UNEXPLAINED;
		/* poll on one descriptor (a socket with a timeout, say) tells what for */
		if (current && regs_arg1(regs) == 1) {
			__s32 only = -1;
			if (!bpf_probe_read_user(&only, sizeof(only), (const void *)fd) && only >= 0)
				t->bucket = fd_bucket(task, only);
		}
		return;
	}
	t->bucket = UNEXPLAINED;
}

/* A poll is what woke it: only its timeout, the network, or somebody. */
static __always_inline void decide_poll(struct thread *t)
{
	if (t->waker_kind == WAKER_IRQ_TIMER)
		t->bucket = SLEEP;
	else if (t->bucket == UNEXPLAINED && t->waker_kind == WAKER_TASK)
		t->bucket = PEER_WAIT;
	else if (t->bucket == UNEXPLAINED && t->waker_kind == WAKER_IRQ_NET)
		t->bucket = NET_WAIT;
	if (t->poll == 2)
		t->spanned_bucket = t->bucket;
	t->poll = 0;
}

#endif
