/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * Registers and calling conventions: the only file that knows the processor.
 *
 * `struct uregs` is what a uprobe program's context points to (fixed by the
 * kernel's ABI); `struct pt_regs` is the kernel's own, read through CO-RE.
 */
#ifndef INGERO_ARCH_H
#define INGERO_ARCH_H

#if defined(__TARGET_ARCH_x86)

struct uregs {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	__u64 orig_ax, ip, cs, flags, sp, ss;
};

struct pt_regs {
	unsigned long r8, r9, r10, bp, dx, si, di, orig_ax, ip, sp;
} __attribute__((preserve_access_index));

/* What the kernel calls the context of a uprobe: a function of its own that gets it must say so. */
#define uprobe_context pt_regs

#define ARG_REGISTERS 6

static __always_inline void arch_args(const struct uregs *r, __u64 *args)
{
	args[0] = r->di;
	args[1] = r->si;
	args[2] = r->dx;
	args[3] = r->cx;
	args[4] = r->r8;
	args[5] = r->r9;
}

/* Address of argument `index` (>= ARG_REGISTERS) while [sp] is the return address. */
#define arch_stack_arg(r, index) ((r)->sp + 8 + 8 * ((index) - ARG_REGISTERS))
/* A structure of more than 16 bytes passed by value lies on the stack itself. */
#define arch_by_value(r, args, index) ((r)->sp + 8)
#define arch_return_value(r) ((r)->ax)
#define arch_sp(r) ((r)->sp)
/* What the stack pointer was at entry, seen from the return. */
#define arch_entry_sp(r) ((r)->sp - 8)
/* Where it will return to, seen from the entry; not 0 where that cannot be read. */
#define arch_return_to(r, ip) bpf_probe_read_user(ip, 8, (const void *)(r)->sp)

/* At the return the kernel has already set the instruction pointer to the caller. */
#define arch_caller_ip(r) ((r)->ip)
/* An argument on the stack, seen from the return: nobody has reused its place yet. */
#define arch_stack_arg_after(r, index) ((r)->sp + 8 * ((index) - ARG_REGISTERS))
#define regs_syscall(r) ((long)(r)->orig_ax)
#define regs_arg0(r) ((r)->di)
#define regs_arg1(r) ((r)->si)
#define regs_ip(r) ((r)->ip)
#define regs_sp(r) ((r)->sp)
#define regs_bp(r) ((r)->bp)

struct thread_struct { unsigned long fsbase; } __attribute__((preserve_access_index));
#define arch_thread_pointer(task) BPF_CORE_READ(task, thread.fsbase)
#define arch_user_mode(r) ((r)->cs & 3)

#elif defined(__TARGET_ARCH_arm64)

struct uregs {
	__u64 regs[31];
	__u64 sp, pc, pstate;
};

struct pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 orig_x0;
	__s32 syscallno;
} __attribute__((preserve_access_index));

struct user_pt_regs { __u64 regs[31]; };
#define uprobe_context user_pt_regs

#define ARG_REGISTERS 8

static __always_inline void arch_args(const struct uregs *r, __u64 *args)
{
	args[0] = r->regs[0];
	args[1] = r->regs[1];
	args[2] = r->regs[2];
	args[3] = r->regs[3];
	args[4] = r->regs[4];
	args[5] = r->regs[5];
	args[6] = r->regs[6];
	args[7] = r->regs[7];
}

#define arch_stack_arg(r, index) ((r)->sp + 8 * ((index) - ARG_REGISTERS))
/* Passed by reference to a copy the caller made. */
#define arch_by_value(r, args, index) ((args)[(index) & 7])
#define arch_return_value(r) ((r)->regs[0])
#define arch_sp(r) ((r)->sp)
#define arch_entry_sp(r) ((r)->sp)
#define arch_return_to(r, ip) (*(ip) = (r)->regs[30], 0)
#define arch_caller_ip(r) ((r)->pc)
#define arch_stack_arg_after(r, index) arch_stack_arg(r, index)
#define regs_syscall(r) ((long)(r)->syscallno)
#define regs_arg0(r) ((r)->orig_x0)
#define regs_arg1(r) ((r)->regs[1])
#define regs_ip(r) ((r)->pc)
#define regs_sp(r) ((r)->sp)
#define regs_bp(r) ((r)->regs[29])

struct user_words { unsigned long tp_value; } __attribute__((preserve_access_index));
struct thread_struct { struct user_words uw; } __attribute__((preserve_access_index));
/* As it was when the thread last left its core: it is set once, before any Python. */
#define arch_thread_pointer(task) BPF_CORE_READ(task, thread.uw.tp_value)
#define arch_user_mode(r) (!((r)->pstate & 15))

#else
#error "add this processor's registers to arch.bpf.h"
#endif
#endif
