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

#if defined(__TARGET_ARCH_x86)
#define RESTART_SYSCALL 219
#else
#define RESTART_SYSCALL 128
#endif

/* Task states: what it sleeps as. Above and between them lie modifiers (wake-kill,
 * no-load, new, freezable), which say nothing about whether it sleeps. */
#define STOPPED_OR_TRACED (0x4 | 0x8)
#define FROZEN 0x8000		/* since 6.1 (f5d39b020809); a flag of the task before */
#define SLEEPING (0x7f | 0x1000 | FROZEN)
#define PF_FROZEN 0x10000

#define TRAP_FREEZE (1UL << 23)

/* The cgroup v2 freezer. A vfork's parent counts as frozen too, so the order counts. */
struct task_struct___frozen { unsigned frozen: 1; unsigned long jobctl; } CORE;

static __always_inline bool blocked(unsigned int state)
{
	return state & SLEEPING;
}

/* Halted by a signal, a debugger or a freezer, whatever it was doing. */
static __always_inline bool halted(struct task_struct *task, unsigned int state)
{
	struct task_struct___frozen *t = (void *)task;

	if (state & (STOPPED_OR_TRACED | FROZEN) || BPF_CORE_READ(task, flags) & PF_FROZEN)
		return true;
	return bpf_core_field_exists(t->frozen) && BPF_CORE_READ_BITFIELD_PROBED(t, frozen) &&
	       BPF_CORE_READ(t, jobctl) & TRAP_FREEZE;
}

static __always_inline bool loopback4(__u32 address)
{
	return (address & 0xff) == 127;	/* network order on a little-endian machine */
}

/* ::1, and 127/8 mapped into v6 */
static __always_inline bool loopback6(const __u64 *address)
{
	if (address[0])
		return false;
	return address[1] == 1ULL << 56 ||
	       ((address[1] & 0xff00000000ULL) == 0x7f00000000ULL && (address[1] & 0xffffffff) == 0xffff0000);
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
		return loopback6(to) || loopback6(from) ? PEER_WAIT : NET_WAIT;
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

static __always_inline struct file *file_of(struct task_struct *task, __u64 fd)
{
	struct fdtable *fdt = BPF_CORE_READ(task, files, fdt);
	struct file **slots, *file = 0;

	if (fd >= BPF_CORE_READ(fdt, max_fds))
		return 0;
	slots = BPF_CORE_READ(fdt, fd);
	bpf_probe_read_kernel(&file, sizeof(file), &slots[fd]);
	return file;
}

static __always_inline __u32 fd_bucket(struct task_struct *task, __u64 fd)
{
	struct file *file = file_of(task, fd);
	unsigned short mode;

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

/* A poll never waits for a disk: files are always ready. What looks like one has a
 * wait of its own (a pidfd, a file in /proc), and its waker tells. */
static __always_inline __u32 polled_bucket(struct task_struct *task, __u64 fd)
{
	__u32 bucket = fd_bucket(task, fd);

	return bucket == DISK_WAIT ? UNEXPLAINED : bucket;
}

static __always_inline __u32 class_of(long nr)
{
	__u32 index = (__u32)nr;
	__u8 *entry = nr >= 0 ? bpf_map_lookup_elem(&syscall_class, &index) : 0;

	return entry ? *entry : WAIT_UNKNOWN;
}

/* `current` says whether the task is the one running this program, so that its
 * memory can be read. */
static __always_inline void classify_wait(struct thread *t, struct task_struct *task, unsigned int state, bool current)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	long nr = regs_syscall(regs);
	bool iowait = BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait);
	__u64 fd = regs_arg0(regs);

	t->poll = 0;
	if (halted(task, state)) {	/* t->syscall stays: it may be restarted */
		t->bucket = UNEXPLAINED;
		t->address = 0;
		return;
	}
	/* A sleep or a timed lock that a stop interrupted goes on under this number. */
	if (nr == RESTART_SYSCALL && t->syscall >= 0)
		nr = t->syscall;
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
	switch (class_of(nr)) {
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
				t->bucket = polled_bucket(task, only);
		}
		return;
	}
	t->bucket = UNEXPLAINED;
}

/* A poll is what woke it: only its timeout, the network, or somebody. */
static __always_inline void decide_poll(struct thread *t)
{
	/* In one step, so that the iterator, marking it seen, does it before or not at all. */
	__u32 poll = __sync_lock_test_and_set(&t->poll, 0);

	if (t->waker_kind == WAKER_IRQ_TIMER)
		t->bucket = SLEEP;
	else if (t->bucket == UNEXPLAINED && t->waker_kind == WAKER_TASK)
		t->bucket = PEER_WAIT;
	else if (t->bucket == UNEXPLAINED && t->waker_kind == WAKER_IRQ_NET)
		t->bucket = NET_WAIT;
	if (poll == 2)
		t->spanned_bucket = t->bucket;
}

/* Packets to an address of this host are delivered in a softirq on top of whoever sends
 * them. So where a thread waits for a local peer, or polls, and the task below is sending
 * on such a socket right now, that task is the waker and not the interrupt. */
static __always_inline bool sends_to(struct task_struct *sender, const struct thread *t)
{
	struct pt_regs *regs;
	struct file *file;
	__u32 bucket;

	if (sender->flags & PF_KTHREAD || !sender->pid || !(t->poll || t->bucket == PEER_WAIT))
		return false;
	regs = (struct pt_regs *)bpf_task_pt_regs(sender);
	if (class_of(regs_syscall(regs)) != WAIT_FD)
		return false;
	file = file_of(sender, regs_arg0(regs) & 0xffffffff);
	if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return false;
	bucket = socket_bucket(file);
	/* An unconnected datagram socket does not say where it sends to; the waiting one does. */
	return bucket == PEER_WAIT || (bucket == NET_WAIT && t->bucket == PEER_WAIT);
}

#endif
