/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * sample.bpf.c for kernels with the task work of 6.18 and 6.19: the thread walks its own stack, not the clock's interrupt.
 */
#define TASK_WORK 618
#include "sample.bpf.c"
