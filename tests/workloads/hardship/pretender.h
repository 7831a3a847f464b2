/* A program that looks like a CPython interpreter to whoever reads its memory, and runs none.
 *
 * Where the fields lie is given when it is compiled, one macro each, as in
 * discover/python_offsets.py; a field that a version does not have has no macro.
 */
#ifndef WORKLOAD_PRETENDER_H
#define WORKLOAD_PRETENDER_H

#include "../cuda_calls.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define AT(base, offset) (*(volatile uint64_t *)((char *)(base) + (offset)))
#define AT32(base, offset) (*(volatile uint32_t *)((char *)(base) + (offset)))
#define AT8(base, offset) (*(volatile uint8_t *)((char *)(base) + (offset)))
#define ARENA_BYTES (4UL << 20)
#define INSTRUCTIONS 16			/* bytes of code in each code object */
#define WELL_FORMED (1 | 1 << 3 | 1 << 4)	/* one byte a character, compact, ASCII */

uint64_t _PyRuntime[8192];
#if MINOR >= 11
const unsigned long Py_Version = 3 << 24 | MINOR << 16 | 0x1f0;
#endif

static void *code_type, *text_type, *bytes_type;
static void *state, *cframe;		/* of the main thread */
static char *arena;
static size_t used;

static void *new(size_t bytes)
{
	used = (used + 15) & ~15UL;
	used += bytes;
	if (!arena)
		arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (used > ARENA_BYTES)
		abort();
	return arena + used - bytes;
}

static void *new_object(void *type, size_t bytes)
{
	void *object = new(bytes);

	AT(object, OBJECT_TYPE) = (uint64_t)type;
	return object;
}

static void *new_type(const char *name, size_t size)
{
	void *type = new(512);

	AT(type, TYPE_NAME) = (uint64_t)name;
	AT(type, TYPE_SIZE) = size;
	return type;
}

static void set_text(void *text, const char *characters)
{
	size_t length = strlen(characters);

	AT(text, TEXT_LENGTH) = length;
	AT32(text, TEXT_STATE) = WELL_FORMED << TEXT_KIND_SHIFT;
	memcpy((char *)text + TEXT_ASCII, characters, length + 1);
}

static void *new_text(const char *characters)
{
	void *text = new_object(text_type, 512);

	set_text(text, characters);
	return text;
}

static void *new_bytes(const void *data, size_t size)
{
	void *bytes = new_object(bytes_type, BYTES_DATA + size + 16);

	AT(bytes, BYTES_LENGTH) = size;
	memcpy((char *)bytes + BYTES_DATA, data, size);
	return bytes;
}

/* Every instruction is on the fifth line after the first. */
static void *new_lines(void)
{
#if MINOR == 9
	static const unsigned char table[] = {0, 5};
#elif MINOR == 10
	static const unsigned char table[] = {100, 5};
#else
	static const unsigned char table[] = {0x80 | 13 << 3 | 7, 5 << 1};
#endif
	return new_bytes(table, sizeof(table));
}

static void *new_code(const char *name, uint32_t first_line)
{
	static const char nothing[INSTRUCTIONS];
	void *code = new_object(code_type, 512);

	AT32(code, CODE_FIRST_LINE) = first_line;
	AT(code, CODE_NAME) = (uint64_t)new_text(name);
	AT(code, CODE_FILE) = (uint64_t)new_text("/job/train.py");
	AT(code, CODE_LINES) = (uint64_t)new_lines();
#ifdef CODE_BYTECODE
	AT(code, CODE_UNITS) = INSTRUCTIONS / 2;
	(void)nothing;
#else
	AT(code, CODE_BYTES) = (uint64_t)new_bytes(nothing, INSTRUCTIONS);
#endif
#ifdef CODE_VERSION
	static uint32_t versions;

	AT32(code, CODE_VERSION) = ++versions;
#endif
#ifdef CODE_TLBC
	void *copies = new(32);

	AT(copies, 0) = 1;
	AT(copies, 8) = (uint64_t)code + CODE_BYTECODE;
	AT(code, CODE_TLBC) = (uint64_t)copies;
#endif
	return code;
}

static void go_to(void *frame, void *code)
{
	AT(frame, FRAME_CODE) = (uint64_t)code;
#ifdef CODE_BYTECODE
	AT(frame, FRAME_AT) = (uint64_t)code + CODE_BYTECODE + 4;
#else
	AT32(frame, FRAME_AT) = 4;
#endif
}

static void *frame_at(void *frame, void *code, void *back)
{
	go_to(frame, code);
	AT(frame, FRAME_BACK) = (uint64_t)back;
#ifdef FRAME_SIZE
	static void *type;

	type = type ? type : new_type("frame", FRAME_SIZE);
	AT(frame, OBJECT_TYPE) = (uint64_t)type;
#endif
	return frame;
}

static void *new_frame(void *code, void *back)
{
	return frame_at(new(128), code, back);
}

static void run(void *frame)
{
#ifdef CFRAME_FRAME
	AT(cframe, CFRAME_FRAME) = (uint64_t)frame;
#else
	AT(state, STATE_FRAME) = (uint64_t)frame;
#endif
}

static pthread_key_t key;

static void new_interpreter(void)
{
	void *interpreter = new(32768);

#ifdef CODE_BYTECODE
	code_type = new_type("code", CODE_BYTECODE);
#else
	code_type = new_type("code", CODE_SIZE);
#endif
	text_type = new_type("str", TEXT_COMPACT + 8);
	bytes_type = new_type("bytes", BYTES_DATA + 1);
	state = new(4096);
	cframe = new(256);
	AT(_PyRuntime, RUNTIME_INTERPRETERS) = (uint64_t)interpreter;
	AT(interpreter, INTERPRETER_THREADS) = (uint64_t)state;
	AT(state, STATE_INTERPRETER) = (uint64_t)interpreter;
	AT(state, STATE_THREAD_ID) = (uint64_t)pthread_self();
#ifdef STATE_NATIVE_ID
	AT(state, STATE_NATIVE_ID) = syscall(SYS_gettid);
#endif
#ifdef CFRAME_FRAME
	AT(state, STATE_FRAME) = (uint64_t)cframe;
#endif
	pthread_key_create(&key, NULL);
	pthread_setspecific(key, state);
	AT32(_PyRuntime, RUNTIME_KEY) = 1;
	AT32(_PyRuntime, RUNTIME_KEY + 4) = key;
}

#endif
