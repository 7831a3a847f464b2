/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints where the fields lie that tell a Python thread's frames, as the headers of one
 * CPython have it: lines "name offset", and "debug name position" for those that the
 * runtime states itself (_Py_DebugOffsets, 3.13 and later). Never run against an
 * interpreter: only the headers' types are used.
 */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "internal/pycore_interp.h"
#include "internal/pycore_runtime.h"
#include "internal/pycore_gil.h"
#if PY_VERSION_HEX < 0x030b0000
#include "frameobject.h"
typedef struct _frame Frame;
#else
#if PY_VERSION_HEX >= 0x030e0000
#include "internal/pycore_interpframe_structs.h"
#endif
#include "internal/pycore_frame.h"
typedef struct _PyInterpreterFrame Frame;
#endif

#define SAY(name, value) printf(#name " %zu\n", (size_t)(value))
#define AT(name, type, field) SAY(name, offsetof(type, field))
#define STATED(name, field) printf("debug " #name " %zu\n", offsetof(_Py_DebugOffsets, field))

static void runtime(void)
{
	AT(runtime_interpreters, _PyRuntimeState, interpreters.head);
	AT(interpreter_next, PyInterpreterState, next);
	AT(interpreter_collecting, PyInterpreterState, gc.collecting);
#if PY_VERSION_HEX >= 0x030b0000
	AT(interpreter_threads, PyInterpreterState, threads.head);
#else
	AT(interpreter_threads, PyInterpreterState, tstate_head);
#endif
#if PY_VERSION_HEX >= 0x030c0000
	AT(runtime_key, _PyRuntimeState, autoTSSkey);
	AT(interpreter_lock, PyInterpreterState, ceval.gil);
#else
	AT(runtime_key, _PyRuntimeState, gilstate.autoTSSkey);
	AT(runtime_lock, _PyRuntimeState, ceval.gil);
#endif
	AT(lock_interval, struct _gil_runtime_state, interval);
	AT(lock_holder, struct _gil_runtime_state, last_holder);
	AT(lock_held, struct _gil_runtime_state, locked);
	SAY(lock_bytes, sizeof(struct _gil_runtime_state));
}

static void thread_state(void)
{
	AT(state_next, PyThreadState, next);
	AT(state_interpreter, PyThreadState, interp);
	AT(state_thread_id, PyThreadState, thread_id);
#if PY_VERSION_HEX >= 0x030b0000
	AT(state_native_id, PyThreadState, native_thread_id);
#endif
#if PY_VERSION_HEX >= 0x030d0000
	AT(state_frame, PyThreadState, current_frame);
#elif PY_VERSION_HEX >= 0x030b0000
	AT(state_frame, PyThreadState, cframe);
	AT(cframe_frame, _PyCFrame, current_frame);
#else
	AT(state_frame, PyThreadState, frame);
#endif
}

static void frame(void)
{
#if PY_VERSION_HEX >= 0x030d0000
	AT(frame_code, Frame, f_executable);
	AT(frame_at, Frame, instr_ptr);
#elif PY_VERSION_HEX >= 0x030b0000
	AT(frame_code, Frame, f_code);
	AT(frame_at, Frame, prev_instr);
#else
	AT(frame_code, Frame, f_code);
	AT(frame_at, Frame, f_lasti);
#endif
#if PY_VERSION_HEX >= 0x030b0000
	AT(frame_back, Frame, previous);
#else
	AT(frame_back, Frame, f_back);
#endif
#if PY_VERSION_HEX >= 0x030c0000
	AT(frame_mark, Frame, owner);
#elif PY_VERSION_HEX >= 0x030b0000
	AT(frame_mark, Frame, is_entry);
#endif
#if PY_VERSION_HEX >= 0x030e0000
	SAY(owner_c, FRAME_OWNED_BY_INTERPRETER);
#elif PY_VERSION_HEX >= 0x030c0000
	SAY(owner_c, FRAME_OWNED_BY_CSTACK);
#endif
#if PY_VERSION_HEX >= 0x030e0000 && defined(Py_GIL_DISABLED)
	AT(frame_tlbc, Frame, tlbc_index);
	AT(code_tlbc, PyCodeObject, co_tlbc);
#endif
}

static void code(void)
{
	AT(code_first_line, PyCodeObject, co_firstlineno);
	AT(code_file, PyCodeObject, co_filename);
#if PY_VERSION_HEX >= 0x030b0000
	AT(code_name, PyCodeObject, co_qualname);
	AT(code_bytecode, PyCodeObject, co_code_adaptive);
	AT(code_units, PyVarObject, ob_size);
#else
	AT(code_name, PyCodeObject, co_name);
	AT(code_bytes, PyCodeObject, co_code);
	SAY(code_size, sizeof(PyCodeObject));
	SAY(frame_size, sizeof(Frame));
#endif
#if PY_VERSION_HEX >= 0x030a0000
	AT(code_lines, PyCodeObject, co_linetable);
#else
	AT(code_lines, PyCodeObject, co_lnotab);
#endif
#if PY_VERSION_HEX >= 0x030c0000
	AT(code_version, PyCodeObject, co_version);
#endif
}

/* The lowest bit that a bitfield of the state occupies. */
#define SHIFT(text, field, bits) \
	(memset(&(text).state, 0, sizeof (text).state), (text).state.field = (bits), lowest_bit(&(text).state))

static size_t lowest_bit(const void *state)
{
	unsigned int word;
	memcpy(&word, state, sizeof word);
	return (size_t)__builtin_ctz(word);
}

static int objects(void)
{
	PyASCIIObject text;
	size_t kind = SHIFT(text, kind, 7);

	AT(object_type, PyObject, ob_type);
	AT(type_name, PyTypeObject, tp_name);
	AT(type_size, PyTypeObject, tp_basicsize);
	AT(text_length, PyASCIIObject, length);
	AT(text_state, PyASCIIObject, state);
	SAY(text_ascii, sizeof(PyASCIIObject));
	SAY(text_compact, sizeof(PyCompactUnicodeObject));
	SAY(text_kind_shift, kind);
	AT(bytes_length, PyVarObject, ob_size);
	AT(bytes_data, PyBytesObject, ob_sval);
	/* readers take it that the two follow the kind's three bits */
	return SHIFT(text, compact, 1) == kind + 3 && SHIFT(text, ascii, 1) == kind + 4;
}

static void stated(void)
{
#if PY_VERSION_HEX >= 0x030d0000
	STATED(free_threaded, free_threaded);
	STATED(runtime_interpreters, runtime_state.interpreters_head);
	STATED(interpreter_next, interpreter_state.next);
	STATED(interpreter_threads, interpreter_state.threads_head);
	STATED(interpreter_gc, interpreter_state.gc);
	STATED(gc_collecting, gc.collecting);
	STATED(interpreter_lock, interpreter_state.ceval_gil);
	STATED(state_next, thread_state.next);
	STATED(state_interpreter, thread_state.interp);
	STATED(state_thread_id, thread_state.thread_id);
	STATED(state_native_id, thread_state.native_thread_id);
	STATED(state_frame, thread_state.current_frame);
	STATED(frame_back, interpreter_frame.previous);
	STATED(frame_code, interpreter_frame.executable);
	STATED(frame_at, interpreter_frame.instr_ptr);
	STATED(frame_mark, interpreter_frame.owner);
	STATED(code_first_line, code_object.firstlineno);
	STATED(code_file, code_object.filename);
	STATED(code_name, code_object.qualname);
	STATED(code_lines, code_object.linetable);
	STATED(code_bytecode, code_object.co_code_adaptive);
	STATED(object_type, pyobject.ob_type);
	STATED(type_name, type_object.tp_name);
	STATED(text_length, unicode_object.length);
	STATED(text_state, unicode_object.state);
	STATED(text_ascii, unicode_object.asciiobject_size);
	STATED(bytes_length, bytes_object.ob_size);
	STATED(bytes_data, bytes_object.ob_sval);
#endif
#if PY_VERSION_HEX >= 0x030e0000
	STATED(frame_tlbc, interpreter_frame.tlbc_index);
	STATED(code_tlbc, code_object.co_tlbc);
#endif
}

int main(void)
{
	SAY(version, PY_MINOR_VERSION);
#ifdef Py_GIL_DISABLED
	SAY(free_threaded, 1);
#else
	SAY(free_threaded, 0);
#endif
	runtime();
	thread_state();
	frame();
	code();
	stated();
	return objects() ? 0 : 1;
}
