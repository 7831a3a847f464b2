/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * What a code object is called, copied out of the process when it is met first: later it
 * may be gone, or another one at the same address.
 */
#ifndef INGERO_PYTHON_CODE_H
#define INGERO_PYTHON_CODE_H

#include "frames.bpf.h"

struct code_key {
	__u64 code;
	__u32 pid;
	__u32 sign;
};

struct {			/* when a code object was sent */
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct code_key);
	__type(value, __u64);
} codes_sent SEC(".maps");

static __always_inline bool read_word(__u64 *word, __u64 address)
{
	return !bpf_probe_read_user(word, 8, (const void *)address);
}

static __always_inline bool is_a(const struct python_layout *l, __u64 object, __u64 type)
{
	__u64 found = 0;

	return read_word(&found, object + l->object_type) && found == type;
}

/* How many bytes a str has, where they are, and their width; 0: it is none. */
static __always_inline __u64 text_at(const struct python_layout *l, __u64 object, struct code_text *text)
{
	__u64 length = 0;
	__u32 state = 0, unit;

	text->bytes = 0;
	text->unit = 1;
	if (!is_a(l, object, l->text_type) || !read_word(&length, object + l->text_length) ||
	    bpf_probe_read_user(&state, 4, (const void *)(object + l->text_state)))
		return 0;
	state >>= l->text_kind_shift & 31;
	unit = state & 7;
	if (length > CODE_LONG_ROOM || (unit != 1 && unit != 2 && unit != 4) || !(state & 8) ||
	    (state & 16 && unit != 1))
		return 0;
	text->unit = unit;
	text->bytes = (__u32)length * unit;
	return object + (state & 16 ? l->text_ascii : l->text_compact);
}

struct texts {
	__u64 name;
	__u64 file;
	__u64 lines;
	struct code_text name_text;
	struct code_text file_text;
	__u32 lines_bytes;
	__s32 first_line;
	__u64 process_start_ns;
	__u16 missing;
};

/* Three reads, one after the other. Together they are shorter than `room`; each alone is
 * held below it too, because the verifier does not add. What is not in memory (the tables of
 * modules frozen into the interpreter often are not) is left to the agent, which may wait for it. */
#define COPY_TEXTS(record, room, t) ({							\
	__u32 name_ = (t)->name_text.bytes & ((room) - 1);				\
	__u32 file_ = (t)->file_text.bytes & ((room) - 1);				\
	__u32 lines_ = (t)->lines_bytes & ((room) - 1);					\
	struct code_head *head_ = &(record)->head;					\
	if (bpf_probe_read_user((record)->data, name_, (const void *)(t)->name) ||	\
	    bpf_probe_read_user((record)->data + name_, file_, (const void *)(t)->file)) {	\
		head_->missing = MISSING_TEXTS;						\
		head_->name.bytes = head_->file.bytes = head_->lines_bytes = 0;		\
	} else if (bpf_probe_read_user((record)->data + name_ + file_, lines_, (const void *)(t)->lines)) {	\
		head_->missing = MISSING_LINES;						\
		head_->lines_bytes = 0;							\
	} })

static __always_inline void fill_code(struct code_head *head, const struct python_layout *l,
				      const struct code_key *key, const struct texts *t, __u16 type)
{
	__builtin_memset(head, 0, sizeof(*head));
	head->h.type = type;
	head->h.pid = key->pid;
	head->h.start_ns = t->process_start_ns;
	head->code = key->code;
	head->sign = key->sign;
	head->first_line = t->first_line;
	head->name = t->name_text;
	head->file = t->file_text;
	head->lines_bytes = t->lines_bytes;
	head->missing = t->missing;
	head->minor = l->minor;
}

/* Send what a code object is called, and its line table. Returns 0 when it was sent.
 * Not static: verified once, not in every state that leads here. */
__noinline int send_code(const struct python_layout *l, const struct code_key *key, struct texts *t)
{
	struct code_long *large;
	struct code *small;
	__u64 length = 0;
	__u32 total;

	if (!l || !key || !t)
		return -1;
	t->name = text_at(l, t->name, &t->name_text);
	t->file = text_at(l, t->file, &t->file_text);
	t->missing = MISSING_NOTHING;
	if (is_a(l, t->lines, l->bytes_type) && read_word(&length, t->lines + l->bytes_length))
		t->lines_bytes = length > 1 << 24 ? 1 << 24 : length;
	else
		t->missing = MISSING_LINES;
	t->lines += l->bytes_data;
	total = t->name_text.bytes + t->file_text.bytes + t->lines_bytes;
	if (total >= CODE_LONG_ROOM) {
		t->missing = MISSING_LINES;
		t->lines_bytes = 0;
		total = t->name_text.bytes + t->file_text.bytes;
	}
	if (total >= CODE_LONG_ROOM || !t->name || !t->file) {
		t->missing = MISSING_TEXTS;
		t->name_text.bytes = t->file_text.bytes = t->lines_bytes = total = 0;
	}
	if (total < CODE_ROOM) {
		small = bpf_ringbuf_reserve(&frames, sizeof(*small), 0);
		if (!small)
			goto full;
		fill_code(&small->head, l, key, t, REC_CODE);
		COPY_TEXTS(small, CODE_ROOM, t);
		bpf_ringbuf_submit(small, BPF_RB_NO_WAKEUP);
		return 0;
	}
	large = bpf_ringbuf_reserve(&frames, sizeof(*large), 0);
	if (!large)
		goto full;
	fill_code(&large->head, l, key, t, REC_CODE_LONG);
	COPY_TEXTS(large, CODE_LONG_ROOM, t);
	bpf_ringbuf_submit(large, BPF_RB_NO_WAKEUP);
	return 0;
full:
	lose(LOSS_RING_STACK, 1);
	return -1;
}

#endif
