/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * Never loaded: mentions every type of wire.h once, so that this object's BTF has
 * them all for `make layout`.
 */
#include <linux/types.h>
#include "wire.h"

struct wire {
	enum bucket bucket;
	enum record_type record_type;
	enum loss loss;
	enum header_flag header_flag;
	enum why why;
	enum call_flag call_flag;
	enum waker_kind waker_kind;
	enum gil_mark gil_mark;
	enum process_event process_event;
	enum op_flag op_flag;
	enum wait_class wait_class;
	enum proc_flag proc_flag;
	enum comm_state comm_state;
	enum python_state python_state;
	enum sample_flag sample_flag;
	enum python_flag python_flag;
	enum missing missing;
	enum meters meters;
	enum cookie cookie;
	enum spare spare;
	enum hist hist;
	enum share share;
	enum extremes extremes;
	enum argument argument;
	enum capacity capacity;
	enum caller_range caller_range;
	enum frames_kept frames_kept;
	enum python_at python_at;
	enum sign sign;
	struct call call;
	struct wait wait;
	struct process process;
	struct started started;
	struct thread_totals thread_totals;
	struct block block;
	struct tcp tcp;
	struct oom oom;
	struct xid xid;
	struct op_key op_key;
	struct op_stats op_stats;
	struct culprit_key culprit_key;
	struct waker_key waker_key;
	struct who_value who_value;
	struct io_key io_key;
	struct io_value io_value;
	struct op_info op_info;
	struct proc proc;
	struct settings settings;
	struct stack stack;
	struct code code;
	struct code_long code_long;
	struct wait_stack wait_stack;
	struct name name;
	struct sample_key sample_key;
	struct walk_cost walk_cost;
	struct thread_cost thread_cost;
	struct python_layout python_layout;
};

struct wire wire;
