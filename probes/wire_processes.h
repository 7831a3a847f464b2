/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * Part of wire.h: processes, what they did and what is known of them.
 */
#ifndef INGERO_WIRE_PROCESSES_H
#define INGERO_WIRE_PROCESSES_H

enum process_event {
	PROCESS_FORK = 1,
	PROCESS_EXEC,
	PROCESS_EXIT,
	PROCESS_SEEN,		/* first traced call of a process nobody announced */
};

struct process {
	struct header h;
	__u32 event;
	__u32 parent_pid;
	__u64 process_start_ns;	/* task->group_leader->start_boottime */
	__s32 exit_code;
	__u32 target;
};

#define STARTED_BYTES 2048
#define STARTED_PARTS 32	/* of the environment: those of large clusters have 20 KiB */

/* What a process was started with, told while it is there to be asked: it may be gone before
 * anybody looks into /proc. The arguments are part 0, the environment parts 1 and on. */
struct started {
	struct header h;
	__u64 process_start_ns;
	__u32 parent_pid;
	__u32 uid;
	__u32 part;
	__u32 length;
	char text[STARTED_BYTES];
};

struct range {
	__u64 start;
	__u64 end;
};

enum proc_flag {
	PROC_TARGET = 1,
	PROC_RANGES = 2,	/* runtime ranges are complete: other callers are direct */
};

enum caller_range {
	RUNTIME_RANGES = 4,
	CALLER_RANGES = 8,	/* runtimes first, then objects with a static runtime in them */
};

enum comm_state {
	COMMS_NOT_TOLD,		/* the agent has not looked at the process's NCCL yet */
	COMMS_READABLE,
	COMMS_UNREADABLE,	/* it has, and cannot say where things lie */
};

/* Where NCCL keeps what in a communicator; discover/communicator_layout.py finds it. */
struct comm_layout {
	__u32 state;
	__u32 pad;
	__u32 hash_at;
	__u32 rank_at;		/* then the size and the device, an int each */
	__u64 magic;		/* its first word, 0: none */
};

struct proc {
	__u32 flags;
	__u32 ranges;
	__u64 cgroup_id;
	__u64 start_ns;
	struct range range[CALLER_RANGES];
	struct comm_layout comm;
};

#endif
