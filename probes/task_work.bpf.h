/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * Work that a thread does itself, before it returns to user mode: asked for where a lock is held or interrupts
 * wait. Kernels from 6.18 on offer it, in two forms, and libbpf refuses an object that declares a form the kernel
 * does not have: one object for each (TASK_WORK; 0: for kernels without).
 */
#ifndef INGERO_TASK_WORK_H
#define INGERO_TASK_WORK_H

#include "kernel_compat.bpf.h"

#ifndef TASK_WORK
#define TASK_WORK 0
#endif

#if TASK_WORK
struct bpf_map { __u32 id; } CORE;	/* declared only, libbpf would not match it */
struct bpf_task_work { __u64 __opaque; } __attribute__((aligned(8)));
typedef int (*bpf_task_work_callback_t)(struct bpf_map *map, void *key, void *value);
#if TASK_WORK == 618
extern int bpf_task_work_schedule_resume_impl(struct task_struct *task, struct bpf_task_work *work, void *map__map,
					      bpf_task_work_callback_t callback, void *aux__prog) __ksym __weak;
#define run_before_user_mode(...) bpf_task_work_schedule_resume_impl(__VA_ARGS__, 0)
#else	/* the kernel adds the last argument itself */
extern int bpf_task_work_schedule_resume(struct task_struct *task, struct bpf_task_work *work, void *map__map,
					 bpf_task_work_callback_t callback) __ksym __weak;
#define run_before_user_mode bpf_task_work_schedule_resume
#endif
#endif

#endif
