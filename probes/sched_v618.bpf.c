/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * sched.bpf.c for kernels with the task work of 6.18 and 6.19: the stack of a long wait is walked when it is over.
 */
#define TASK_WORK 618
#include "sched.bpf.c"
