/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * The part of wire.h about stacks: where calls, waits and time on a core came from, what
 * launches are called, and how to read a Python process. Included by wire.h.
 */
#ifndef INGERO_WIRE_FRAMES_H
#define INGERO_WIRE_FRAMES_H

/* Stacks. A walk ends in one record, with as much as could be read; the same stack is
 * sent again only after a while. What its code objects are called is copied out of the
 * process when each is met first: later it may be gone, or another one. */
enum frames_kept {
	PYTHON_INNER = 96,	/* innermost */
	PYTHON_OUTER = 32,	/* outermost, when there are more */
	PYTHON_FRAMES = PYTHON_INNER + PYTHON_OUTER,
	NATIVE_FRAMES = 64,
};

/* What came of the Python part of a walk (stack.python_state). */
enum python_state {
	PYTHON_NONE,		/* not a Python process, or none we know how to read */
	PYTHON_READ,
	PYTHON_NO_THREAD,	/* the interpreter does not know this thread, or it runs no Python */
	PYTHON_UNREADABLE,	/* memory not there: frames up to that point */
	PYTHON_CORRUPT,		/* not a chain of frames: no frames */
	PYTHON_NOT_YET,		/* the agent has not looked at this process yet */
};

/* What python_frame.at can be beside an instruction. */
enum python_at {
	PYTHON_ENTRY = 0x80000000,	/* added: the interpreter was entered anew from C for this frame */
	PYTHON_BEFORE = 0x7ffffffe,	/* the first instruction is still to come */
	PYTHON_NOWHERE = 0x7ffffffd,	/* not in the code */
};

/* Of each text and table of a code object, how much of its begin and its end goes into its sign. */
enum sign {
	PEEK_BYTES = 32,
};

struct python_frame {
	__u64 code;		/* address of the code object */
	__u32 at;		/* instruction, as the version counts it, and PYTHON_ENTRY */
	__u32 sign;		/* which code object it was: addresses are used again */
};

struct stack {
	struct header h;
	__u64 id;		/* hash of everything below and of the process */
	__u32 python_depth;	/* frames there are; more than PYTHON_FRAMES: the middle is cut out */
	__u16 python_state;
	__u16 native_count;
	__u32 python_count;	/* entries of `python`, innermost first; the outer ones turn round in their place */
	__u16 cut;		/* the walk was given up: what is outermost here is not the end */
	__u16 uncopied;		/* code objects met were not sent */
	struct python_frame python[PYTHON_FRAMES];
	__u64 native[NATIVE_FRAMES];	/* instruction addresses, innermost first */
};

/* A code object as it was when met: header and bytes of its qualified name, its file's
 * name and its line table, one after the other in `data`. */
#define CODE_ROOM 512		/* the three together are shorter than this */
#define CODE_LONG_ROOM 8192

enum missing {
	MISSING_NOTHING = 0,
	MISSING_LINES,		/* the line table: a module's can be longer than any record */
	MISSING_TEXTS,		/* all three */
};

struct code_text {
	__u32 bytes;		/* in data */
	__u32 unit;		/* bytes a character: 1 (Latin-1, ASCII), 2, 4 */
};

struct code_head {
	struct header h;
	__u64 code;
	__u32 sign;
	__s32 first_line;
	struct code_text name;
	struct code_text file;
	__u32 lines_bytes;
	__u16 missing;		/* enum missing: too long for a record, or not in memory */
	__u16 minor;		/* of the version of Python, by which line tables are read */
};

struct code {
	struct code_head head;
	__u8 data[3 * CODE_ROOM];
};

struct code_long {
	struct code_head head;
	__u8 data[3 * CODE_LONG_ROOM];
};

/* Where a long wait was, walked when it was over; h.start_ns is the wait's. */
struct wait_stack {
	struct header h;
	__u64 stack_id;
};

/* A name the process gave to a handle (kernel function, library kernel). */
#define NAME_BYTES 2048

struct name {
	struct header h;
	__u64 handle;		/* what later calls pass */
	__u64 from;		/* the handle it was made from, where it has no name itself */
	__u32 op;
	__u32 length;		/* of text; NAME_BYTES: cut */
	char text[NAME_BYTES];
};

struct walk_cost {
	__u64 count;
	__u64 ns;
	__u64 max_ns;
};

/* On a core, seen by the clock: how often, where, in which state. */
enum sample_flag {
	SAMPLE_COLLECTING = 1,	/* the garbage collector is at work */
	SAMPLE_GIL = 2,		/* the thread holds its interpreter's lock */
	SAMPLE_KERNEL = 4,	/* in the kernel */
};

struct sample_key {
	__u64 stack_id;
	__u32 pid;
	__u32 tid;
	__u16 bucket;		/* as the accounting has it */
	__u16 op;		/* the traced call it is in, 0 if none */
	__u32 flags;
};

/* How to read the Python frames of a process. Filled by the agent once everything in
 * it was checked against the process; addresses and offsets in bytes. */
enum python_flag {
	PYTHON_EACH_ENTERS = 1,	/* up to 3.10: every frame is an evaluation of its own */
	PYTHON_CFRAME = 2,	/* 3.11, 3.12: the thread state points to a cframe, that to the frame */
	PYTHON_IS_ENTRY = 4,	/* 3.11: a byte of the frame says that it was entered from C */
	PYTHON_OWNER = 8,	/* 3.12+: frames owned by the C stack stand for entries, and are no frames */
	PYTHON_LASTI = 16,	/* up to 3.10: the frame has an index; later a pointer into the code */
	PYTHON_TAGGED = 32,	/* 3.14: low bits of the code's pointer are not address */
	PYTHON_VERSIONED = 64,	/* 3.12+: a code object has a number of its own */
	PYTHON_THREAD_CODE = 128,	/* 3.14 free-threaded: bytecode copied per thread */
	PYTHON_KEY_BLOCK = 256,	/* the thread's data lies behind a pointer (musl, or many keys) */
};

struct python_layout {
	__u32 flags;
	__s32 thread_state;	/* from the thread pointer, or the block, to the pointer to the thread state */
	__s32 key_block;	/* with PYTHON_KEY_BLOCK: from the thread pointer to the block's pointer */
	__u16 state_thread_id;	/* in the thread state: pthread_self */
	__u16 state_native_id;	/* in the thread state: tid; 0 where there is none */
	__u16 state_frame;	/* in the thread state: frame or cframe */
	__u16 cframe_frame;	/* in the cframe */
	__u16 frame_back;
	__u16 frame_code;
	__u16 frame_at;		/* instruction pointer or index */
	__u16 frame_mark;	/* owner or is_entry, one byte */
	__u16 frame_tlbc;	/* 3.14 free-threaded: which copy of the bytecode */
	__u16 owner_c;		/* smallest owner that means the C stack */
	__u16 object_type;	/* in every object */
	__u16 code_first_line;
	__u16 code_name;	/* co_qualname, co_name up to 3.10 */
	__u16 code_file;
	__u16 code_lines;	/* co_linetable, co_lnotab in 3.9 */
	__u16 code_bytecode;	/* where the instructions begin, in the code object */
	__u16 code_version;
	__u16 code_tlbc;	/* 3.14 free-threaded: array of copies */
	__u16 text_length;	/* of a str */
	__u16 text_state;
	__u16 text_ascii;	/* where an ASCII string's characters are */
	__u16 text_compact;	/* where the others' are */
	__u16 bytes_length;
	__u16 bytes_data;
	__u16 text_kind_shift;	/* within the state */
	__u16 frame_bytes;	/* of a frame, as far as it is read */
	__u16 code_bytes;	/* of a code object, as far as it is read */
	__u16 minor;		/* of the version: 12 of 3.12 */
	__u16 thread_tid;	/* in the thread's own data: tid; 0 where it is not needed, or not known */
	__u16 pad;
	__u32 program;		/* which program of the process this is: executing another one makes it a new number */
	__u64 code_type;	/* address of PyCode_Type: a frame without one is none */
	__u64 text_type;	/* of PyUnicode_Type: what a code object is called is one */
	__u64 bytes_type;	/* of PyBytes_Type: a line table is one */
	__u64 collecting;	/* address of an int that is not 0 while the collector runs; 0: not known */
	__u64 lock;		/* the interpreter lock's addresses; 0: not known */
	__u64 lock_end;
	__u64 lock_holder;	/* address of the pointer to the thread state that last held it; 0: not known */
	__u64 lock_held;	/* address of the int that is 1 while somebody does; 0: not known */
};

#endif
