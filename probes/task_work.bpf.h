/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * Work that a thread does itself, before it returns to user mode: asked for where a lock is held or interrupts
 * wait. Kernels from 6.18 on offer it.
 */
#ifndef INGERO_TASK_WORK_H
#define INGERO_TASK_WORK_H

#include "kernel_compat.bpf.h"

struct bpf_map { __u32 id; } CORE;	/* declared only, libbpf would not match it */
struct bpf_task_work { __u64 __opaque; } __attribute__((aligned(8)));
typedef int (*bpf_task_work_callback_t)(struct bpf_map *map, void *key, void *value);
extern int bpf_task_work_schedule_resume_impl(struct task_struct *task, struct bpf_task_work *work, void *map__map,
					      bpf_task_work_callback_t callback, void *aux__prog) __ksym __weak;

#endif
