/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * The stack of the current thread, Python and native, as one number. What the number
 * stands for is sent when it is met first (docs/adr/0008).
 *
 * Everything read here is another program's memory: pointers may lead anywhere, chains
 * may be circles, sizes may be lies. Reads fail softly, loops are bounded, and what
 * cannot be a chain of frames yields none.
 */
#ifndef INGERO_WALK_H
#define INGERO_WALK_H

#include "python_code.bpf.h"
#include "walk_cost.bpf.h"

/* Frames; Python's own limit is 1000 unless raised. Where interrupts wait for the walk, as many as take 50 us,
 * usually (0.2 us a frame, before 3.12 0.9 us), and in no case after that; few with the run-queue lock
 * held. In both nothing is copied: that took 100 us of some code objects, and the agent can read them out of the process. */
#define MAX_WALK 4096
#define CLOCK_WALK 192
#define OLD_CLOCK_WALK 48
#define CLOCK_WALK_NS 50000
#define CLOCK_STEP 16		/* frames between two looks at the time: the same stack shall end at the same frame */
#define LOCKED_WALK 6
#define OLD_KERNEL_WALK PYTHON_FRAMES	/* without bpf_loop (before 5.17) */

struct {			/* which processes run Python, and how to read it */
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct python_layout);
} pythons SEC(".maps");

struct {			/* when a stack was sent */
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, __u64);
	__type(value, __u64);
} stacks_sent SEC(".maps");

/* Where a stack is put together. A program can be preempted amid its walk, or the clock
 * strike in it, so a core has several, and a walk takes one that is free. */
#define SCRATCHES 4

struct scratch {
	__u32 busy;
	__u32 pad;
	struct stack s;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

/* What a walk has read and how far it is. It lies where the native frames will be: what
 * the verifier knows about memory of a map is nothing, so every step looks alike to it. */
struct progress {
	__u64 frame[16];	/* of one frame and its code object, as far as they are needed */
	__u64 code[32];
	__u64 next;		/* address of the next frame */
	__u64 checkpoint;	/* an address met before: met again, the chain is a circle */
	__u64 hash;
	__u32 steps;		/* until the checkpoint moves */
	__u32 stride;
	__u32 depth;
	__u32 state;
};
_Static_assert(sizeof(struct progress) <= sizeof(((struct stack *)0)->native), "no room to read");

struct walk {
	struct stack *s;
	const struct python_layout *l;
	__u64 now;
	__u64 process_start_ns;
	__u64 until_ns;		/* 0: for as long as it takes */
	__u32 pid;
	__u32 most;		/* frames to walk */
};

static __always_inline struct progress *progress(struct stack *s)
{
	return (struct progress *)s->native;
}

static __always_inline __u64 stir(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 29;
}

/* The masks keep reads inside the area whatever the layout says. */
#define IN_FRAME(p, type, offset) (*(type *)((void *)(p)->frame + ((offset) & (sizeof((p)->frame) - sizeof(type)))))
#define IN_CODE(p, type, offset) (*(type *)((void *)(p)->code + ((offset) & (sizeof((p)->code) - sizeof(type)))))

/* Stir in how many bytes there are, and the bytes: the first and the last of many. Reads into
 * the place of the frame, which is done with by then. */
static __noinline __u64 stir_bytes(__u64 hash, struct progress *p, __u64 from, __u64 bytes)
{
	__u64 some = bytes < PEEK_BYTES ? bytes : PEEK_BYTES;

	barrier_var(some);	/* the verifier must see the bounds, though the compiler knows them */
	__builtin_memset(p->frame, 0, 2 * PEEK_BYTES);
	bpf_probe_read_user(p->frame, some & (2 * PEEK_BYTES - 1), (const void *)from);
	if (bytes > PEEK_BYTES)
		bpf_probe_read_user(p->frame + PEEK_BYTES / 8, PEEK_BYTES, (const void *)(from + bytes - PEEK_BYTES));
	hash = stir(hash, bytes);
	for (__u32 i = 0; i < 2 * PEEK_BYTES / 8; i++) {
		if (i * 8 >= bytes)
			break;
		hash = stir(hash, p->frame[i]);
	}
	return hash;
}

static __always_inline __u64 stir_text(__u64 hash, struct progress *p, const struct python_layout *l, __u64 object)
{
	__u32 bytes = l->text_state + 4, state;
	__u64 length;

	if (bytes > sizeof(p->frame) || bpf_probe_read_user(p->frame, bytes, (const void *)object))
		return hash;
	length = IN_FRAME(p, __u64, l->text_length);
	state = IN_FRAME(p, __u32, l->text_state) >> (l->text_kind_shift & 31);
	return stir_bytes(hash, p, object + (state & 16 ? l->text_ascii : l->text_compact), length * (state & 7));
}

/* Which code object it is. From 3.12 on each has a number; before, its content tells:
 * an address, even all of them, may be used again by the next one. */
static __always_inline __u32 sign_of(struct progress *p, const struct python_layout *l)
{
	__u64 name = IN_CODE(p, __u64, l->code_name), lines = IN_CODE(p, __u64, l->code_lines);
	__u64 file = IN_CODE(p, __u64, l->code_file);
	__u64 h = stir(l->program, IN_CODE(p, __u32, l->code_first_line)), length = 0;

	h = stir(stir(stir(h, name), file), lines);
	if (l->flags & PYTHON_VERSIONED)
		return stir(h, IN_CODE(p, __u32, l->code_version));
	h = stir_text(h, p, l, name);
	h = stir_text(h, p, l, file);
	read_word(&length, lines + l->bytes_length);
	return stir_bytes(h, p, lines + l->bytes_data, length);
}

/* Where the instructions of this frame begin. */
static __always_inline __u64 bytecode_of(struct progress *p, const struct python_layout *l, __u64 code)
{
	__u64 copies = 0, start = 0;
	__s32 index;

	if (!(l->flags & PYTHON_THREAD_CODE))
		return code + l->code_bytecode;
	index = IN_FRAME(p, __s32, l->frame_tlbc);
	if (!index)
		return code + l->code_bytecode;
	copies = IN_CODE(p, __u64, l->code_tlbc);
	if (index < 0 || index > 65536 || !read_word(&start, copies + 8 + 8 * (__u64)index))
		return 0;
	return start;
}

static __always_inline struct python_frame *place(struct stack *s, __u32 i)
{
	if (i >= PYTHON_INNER)
		i = PYTHON_INNER + (i - PYTHON_INNER) % PYTHON_OUTER;
	return i < PYTHON_FRAMES ? &s->python[i] : &s->python[0];
}

static __always_inline void keep(struct stack *s, __u64 code, __u32 at, __u32 sign)
{
	struct progress *p = progress(s);
	struct python_frame *f = place(s, p->depth);

	f->code = code;
	f->at = at;
	f->sign = sign;
	p->hash = stir(stir(p->hash, code), (__u64)sign << 32 | at);
	p->depth++;
}

static __always_inline void meet_code(const struct walk *w, struct progress *p, __u64 code, __u32 sign)
{
	struct code_key key = {.code = code, .pid = w->pid, .sign = sign};
	__u64 *sent = bpf_map_lookup_elem(&codes_sent, &key);
	struct texts t = {};
	__u64 now = w->now;

	if (sent && now - *sent < RESEND_NS)
		return;
	t.name = IN_CODE(p, __u64, w->l->code_name);
	t.file = IN_CODE(p, __u64, w->l->code_file);
	t.lines = IN_CODE(p, __u64, w->l->code_lines);
	t.process_start_ns = w->process_start_ns;
	t.first_line = IN_CODE(p, __s32, w->l->code_first_line);
	if (!send_code(w->l, &key, &t))
		bpf_map_update_elem(&codes_sent, &key, &now, BPF_ANY);
}

static __always_inline bool in_circle(struct progress *p)
{
	if (p->next && p->next == p->checkpoint)
		return true;
	if (++p->steps >= p->stride) {
		p->checkpoint = p->next;
		p->stride *= 2;
		p->steps = 0;
	}
	return false;
}

/* Which instruction, as the version counts it. */
static __always_inline __u32 instruction(struct progress *p, const struct python_layout *l, __u64 code)
{
	__u64 start, at;

	if (l->flags & PYTHON_LASTI) {
		at = IN_FRAME(p, __u32, l->frame_at);
		if (at == 0xffffffff)
			return PYTHON_BEFORE;
		return at < 1 << 30 ? at : PYTHON_NOWHERE;
	}
	start = bytecode_of(p, l, code);
	at = IN_FRAME(p, __u64, l->frame_at) - start;
	if (at == -2ULL)	/* its call has not begun */
		return PYTHON_BEFORE;
	return start && at < 1 << 30 ? at : PYTHON_NOWHERE;
}

/* One frame; 1 ends the walk. */
static int walk_frame(__u32 i, void *context)
{
	const struct walk *w = context;
	const struct python_layout *l = w->l;
	struct progress *p = progress(w->s);
	__u32 at, sign, bytes = l->frame_bytes;
	__u64 code;

	p->state = PYTHON_READ;
	if (!p->next)
		return 1;
	if (w->until_ns && i % CLOCK_STEP == CLOCK_STEP - 1 && bpf_ktime_get_ns() > w->until_ns)
		return 1;
	p->state = PYTHON_UNREADABLE;
	if (bytes > sizeof(p->frame) || bpf_probe_read_user(p->frame, bytes, (const void *)p->next))
		return 1;
	p->next = IN_FRAME(p, __u64, l->frame_back);
	p->state = PYTHON_CORRUPT;
	if (in_circle(p))
		return 1;
	if (l->flags & PYTHON_OWNER && IN_FRAME(p, __u8, l->frame_mark) >= l->owner_c) {
		if (p->depth)
			place(w->s, p->depth - 1)->at |= PYTHON_ENTRY;
		p->state = PYTHON_READ;
		return 0;
	}
	code = IN_FRAME(p, __u64, l->frame_code);
	if (l->flags & PYTHON_TAGGED)
		code &= ~7ULL;
	bytes = l->code_bytes;
	p->state = PYTHON_UNREADABLE;
	if (bytes > sizeof(p->code) || bpf_probe_read_user(p->code, bytes, (const void *)code))
		return 1;
	p->state = PYTHON_CORRUPT;
	if (IN_CODE(p, __u64, l->object_type) != l->code_type)
		return 1;
	at = instruction(p, l, code);
	if (at == PYTHON_NOWHERE)
		return 1;
	if (l->flags & PYTHON_EACH_ENTERS || (l->flags & PYTHON_IS_ENTRY && IN_FRAME(p, __u8, l->frame_mark)))
		at |= PYTHON_ENTRY;
	sign = sign_of(p, l);
	if (w->most > CLOCK_WALK)
		meet_code(w, p, code, sign);
	keep(w->s, code, at, sign);
	p->state = PYTHON_READ;
	return 0;
}

static __always_inline __u64 thread_state_of(const struct python_layout *l, __u64 thread_pointer)
{
	__u64 block = thread_pointer, state = 0, id = 0;

	if (l->flags & PYTHON_KEY_BLOCK && !read_word(&block, thread_pointer + (__s64)l->key_block))
		return 0;
	if (!read_word(&state, block + (__s64)l->thread_state) || !state)
		return 0;
	if (l->state_thread_id && (!read_word(&id, state + l->state_thread_id) || id != thread_pointer))
		return 0;
	return state;
}

/* The innermost frame, or 0 with the reason. */
static __always_inline __u64 innermost(__u32 *why, const struct python_layout *l, __u64 thread_pointer)
{
	__u64 frame = 0, state = thread_state_of(l, thread_pointer);

	*why = PYTHON_NO_THREAD;
	if (!state || !read_word(&frame, state + l->state_frame) || !frame)
		return 0;
	if (l->flags & PYTHON_CFRAME && !read_word(&frame, frame + l->cframe_frame)) {
		*why = PYTHON_UNREADABLE;
		return 0;
	}
	return frame;
}

static __noinline int walk_python(struct walk *w, __u64 thread_pointer)
{
	struct progress *p = progress(w->s);

	p->next = innermost(&p->state, w->l, thread_pointer);
	if (!p->next)
		return 0;
	p->checkpoint = 0;
	p->steps = 0;
	p->stride = 2;
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_loop)) {
		bpf_loop(w->most, walk_frame, w, 0);
	} else {
		for (__u32 i = 0; i < OLD_KERNEL_WALK; i++)
			if (i >= w->most || walk_frame(i, w))
				break;
	}
	return 0;
}

static __always_inline __u64 python_part(struct stack *s, struct thread *t, __u64 now, __u32 most)
{
	struct progress *p = progress(s);
	struct walk w = {.s = s, .now = now, .process_start_ns = t->process_start_ns, .pid = t->pid, .most = most};
	__u32 pid = t->pid;

	p->hash = stir(t->process_start_ns, pid);
	p->depth = 0;
	p->next = 0;
	p->state = PYTHON_NOT_YET;
	w.l = bpf_map_lookup_elem(&pythons, &pid);
	if (w.l) {
		if (most == CLOCK_WALK) {
			w.until_ns = now + CLOCK_WALK_NS;
			if (!(w.l->flags & PYTHON_VERSIONED))
				w.most = OLD_CLOCK_WALK;
		}
		p->state = PYTHON_NONE;
		if (w.l->code_type)
			walk_python(&w, arch_thread_pointer(bpf_get_current_task_btf()));
	}
	if (p->state == PYTHON_CORRUPT) {
		lose(LOSS_STACK_CORRUPT, 1);
		p->depth = 0;
	} else if (p->state == PYTHON_UNREADABLE) {
		lose(LOSS_STACK_UNREADABLE, 1);
	}
	s->python_depth = p->depth;
	s->python_count = p->depth < PYTHON_FRAMES ? p->depth : PYTHON_FRAMES;
	s->python_state = p->state;
	s->uncopied = most <= CLOCK_WALK;
	/* Given up after so many or so long, or where memory was not there. */
	s->cut = p->state == PYTHON_UNREADABLE || (p->state == PYTHON_READ && p->next);
	return stir(p->hash, (__u64)p->state << 32 | p->depth);
}

static __always_inline struct scratch *take_scratch(void)
{
	for (__u32 i = 0; i < SCRATCHES; i++) {
		__u32 key = i;
		struct scratch *c = bpf_map_lookup_elem(&scratches, &key);

		if (c && !__sync_val_compare_and_swap(&c->busy, 0, 1))
			return c;
	}
	lose(LOSS_STACK_BUSY, 1);
	return 0;
}

/* A walk: begin_stack, then the native frames by whatever helper the kind of program has,
 * then finish_stack. Begins with the current thread's Python frames. */
static __always_inline struct scratch *begin_stack(struct thread *t, __u64 now, __u32 most, __u64 *hash)
{
	struct scratch *c = take_scratch();

	if (!c)
		return 0;
	fill_header(&c->s.h, REC_STACK, t);
	c->s.h.start_ns = t->process_start_ns;
	*hash = python_part(&c->s, t, now, most);
	return c;
}

#define MAX_STRAY 8		/* frames behind the end of a chain that is none */

static long is_code(struct task_struct *task, struct vm_area_struct *area, void *yes)
{
	*(bool *)yes = area->vm_flags & VM_EXEC;
	return 0;
}

/* Without frame pointers the chain ends in whatever the register held: what lies in no code
 * is no frame, and would make every walk of the same place another stack. */
static __always_inline __u32 without_strays(const __u64 *native, __u32 count)
{
	bool yes;

	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_find_vma))
		return count;
	for (int i = 0; i < MAX_STRAY && count && count <= NATIVE_FRAMES; i++) {
		yes = false;
		if (bpf_find_vma(bpf_get_current_task_btf(), native[count - 1], is_code, &yes, 0) == -EBUSY || yes)
			break;
		count--;
	}
	return count;
}

static __always_inline __u64 add_native(struct stack *s, __u64 hash, long bytes)
{
	__u32 count = bytes > 0 ? (__u64)bytes / 8 : 0;

	if (count > NATIVE_FRAMES)
		count = NATIVE_FRAMES;
	count = without_strays(s->native, count);
	s->native_count = count;
	for (__u32 i = 0; i < NATIVE_FRAMES; i++) {
		if (i >= count)
			break;
		hash = stir(hash, s->native[i]);
	}
	return hash ? hash : 1;
}

static __always_inline bool was_sent(__u64 id, __u64 now)
{
	__u64 *sent = bpf_map_lookup_elem(&stacks_sent, &id);

	return sent && now - *sent < RESEND_NS;
}

static __always_inline void release(const struct thread *t, struct scratch *c, __u64 since)
{
	__sync_lock_test_and_set(&c->busy, 0);
	count_walk(t, since);
}

/* Its id; sent if it is news. */
static __always_inline __u64 finish_stack(const struct thread *t, struct scratch *c, __u64 hash, long bytes,
					  __u64 now)
{
	struct stack *s = &c->s;

	hash = add_native(s, hash, bytes);
	s->id = hash;
	if (!was_sent(hash, now)) {
		if (bpf_ringbuf_output(&frames, s, sizeof(*s), BPF_RB_NO_WAKEUP))
			lose(LOSS_RING_STACK, 1);
		else
			bpf_map_update_elem(&stacks_sent, &hash, &now, BPF_ANY);
	}
	release(t, c, now);
	return hash;
}

/* A call within a call (the runtime's calls the driver's) has the same Python frames, as long
 * as the innermost is the same one at the same instruction: they need not be walked again. */
struct place {
	__u64 frame;
	__u64 at;
};

static __always_inline struct place current_place(struct thread *t)
{
	__u32 pid = t->pid;
	const struct python_layout *l = bpf_map_lookup_elem(&pythons, &pid);
	struct place here = {};
	__u32 why;

	if (!l || !l->code_type)
		return here;
	here.frame = innermost(&why, l, arch_thread_pointer(bpf_get_current_task_btf()));
	if (!here.frame || !read_word(&here.at, here.frame + l->frame_at))
		here.frame = 0;
	return here;
}

#endif
