/* SPDX-License-Identifier: Apache-2.0
 *
 * The thin layer over libbpf and bpf(2): load objects, make links, read maps,
 * drain the ring. Policy lives in Python; nothing here retries or decides.
 *
 * Limited API, so one build serves every Python from 3.11 on. Link and map
 * descriptors are plain integers owned by the caller: closing them, or dying,
 * takes the probes away.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "_shim.h"

/* --- libbpf's own words, kept for error messages ------------------------- */

static char said[1 << 16];
static size_t said_length;

/* Of a text without room its end: a verifier says last why it refused. */
static int keep_end(size_t length, const char *format, va_list args)
{
	size_t room = (sizeof(said) - said_length) / 2;
	char *text = malloc(length + 1);

	if (!text)
		return 0;
	vsnprintf(text, length + 1, format, args);
	memcpy(said + said_length, text + length - room, room);
	said_length += room;
	said[said_length] = 0;
	free(text);
	return (int)room;
}

static int keep_words(enum libbpf_print_level level, const char *format, va_list args)
{
	size_t left = sizeof(said) - said_length;
	va_list again;
	int n;

	if (level == LIBBPF_DEBUG || left < 2)
		return 0;
	va_copy(again, args);
	n = vsnprintf(said + said_length, left, format, args);
	if (n > 0 && (size_t)n < left)
		said_length += (size_t)n;
	else if (n > 0)
		n = keep_end((size_t)n, format, again);
	va_end(again);
	return n;
}

/* OSError(errno, "what" or "what\nwhat libbpf said") */
static PyObject *fail(const char *what, int error)
{
	PyObject *words = PyUnicode_DecodeUTF8(said, (Py_ssize_t)said_length, "replace");
	PyObject *message = words ? PyUnicode_FromFormat("%s\n%U", what, words) : NULL;
	PyObject *value = message ? Py_BuildValue("(iN)", error, message) : NULL;

	Py_XDECREF(words);
	said_length = 0;
	said[0] = 0;
	if (value) {
		PyErr_SetObject(PyExc_OSError, value);
		Py_DECREF(value);
	}
	return NULL;
}

/* --- BPF object ------------------------------------------------------------ */

typedef struct {
	PyObject_HEAD
	struct bpf_object *object;
} Object;

static int object_init(Object *self, PyObject *args, PyObject *kwargs)
{
	const char *path;

	(void)kwargs;
	if (!PyArg_ParseTuple(args, "s", &path))
		return -1;
	self->object = bpf_object__open_file(path, NULL);
	if (!self->object) {
		fail("open", errno);
		return -1;
	}
	return 0;
}

static void object_dealloc(Object *self)
{
	PyTypeObject *type = Py_TYPE(self);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	bpf_object__close(self->object);
	release(self);
	Py_DECREF(type);
}

static struct bpf_program *find_program(Object *self, const char *name)
{
	struct bpf_program *program = bpf_object__find_program_by_name(self->object, name);

	if (!program)
		PyErr_Format(PyExc_KeyError, "no program %s", name);
	return program;
}

static struct bpf_map *find_map(Object *self, const char *name)
{
	struct bpf_map *map = bpf_object__find_map_by_name(self->object, name);

	if (!map)
		PyErr_Format(PyExc_KeyError, "no map %s", name);
	return map;
}

static PyObject *object_programs(Object *self, PyObject *unused)
{
	PyObject *list = PyList_New(0);
	struct bpf_program *program;

	(void)unused;
	bpf_object__for_each_program(program, self->object) {
		PyObject *name = PyUnicode_FromString(bpf_program__name(program));
		if (!name || PyList_Append(list, name))
			return NULL;
		Py_DECREF(name);
	}
	return list;
}

static PyObject *object_maps(Object *self, PyObject *unused)
{
	PyObject *list = PyList_New(0);
	struct bpf_map *map;

	(void)unused;
	bpf_object__for_each_map(map, self->object) {
		PyObject *row = Py_BuildValue("(sIII)", bpf_map__name(map), bpf_map__key_size(map),
					      bpf_map__value_size(map), bpf_map__max_entries(map));
		if (!row || PyList_Append(list, row))
			return NULL;
		Py_DECREF(row);
	}
	return list;
}

static PyObject *object_autoload(Object *self, PyObject *args)
{
	const char *name;
	int on;
	struct bpf_program *program;

	if (!PyArg_ParseTuple(args, "sp", &name, &on) || !(program = find_program(self, name)))
		return NULL;
	bpf_program__set_autoload(program, on);
	Py_RETURN_NONE;
}

static PyObject *object_attach_type(Object *self, PyObject *args)
{
	const char *name;
	int type;
	struct bpf_program *program;

	if (!PyArg_ParseTuple(args, "si", &name, &type) || !(program = find_program(self, name)))
		return NULL;
	bpf_program__set_expected_attach_type(program, type);
	Py_RETURN_NONE;
}

static PyObject *object_resize(Object *self, PyObject *args)
{
	const char *name;
	unsigned int entries;
	struct bpf_map *map;

	if (!PyArg_ParseTuple(args, "sI", &name, &entries) || !(map = find_map(self, name)))
		return NULL;
	if (bpf_map__set_max_entries(map, entries))
		return fail("resize", EINVAL);
	Py_RETURN_NONE;
}

static PyObject *object_reuse(Object *self, PyObject *args)
{
	const char *name;
	int fd, error;
	struct bpf_map *map;

	if (!PyArg_ParseTuple(args, "si", &name, &fd) || !(map = find_map(self, name)))
		return NULL;
	error = bpf_map__reuse_fd(map, fd);
	if (error)
		return fail("reuse", -error);
	Py_RETURN_NONE;
}

static PyObject *object_load(Object *self, PyObject *unused)
{
	int error;

	(void)unused;
	said_length = 0;
	Py_BEGIN_ALLOW_THREADS
	error = bpf_object__load(self->object);
	Py_END_ALLOW_THREADS
	if (error)
		return fail("load", -error);
	Py_RETURN_NONE;
}

static PyObject *object_program_fd(Object *self, PyObject *args)
{
	const char *name;
	struct bpf_program *program;

	if (!PyArg_ParseTuple(args, "s", &name) || !(program = find_program(self, name)))
		return NULL;
	return PyLong_FromLong(bpf_program__fd(program));
}

static PyObject *object_map_fd(Object *self, PyObject *args)
{
	const char *name;
	struct bpf_map *map;

	if (!PyArg_ParseTuple(args, "s", &name) || !(map = find_map(self, name)))
		return NULL;
	return PyLong_FromLong(bpf_map__fd(map));
}

/* Attach by section name; returns the link's descriptor, owned by the caller. */
static PyObject *object_attach(Object *self, PyObject *args)
{
	const char *name;
	struct bpf_program *program;
	struct bpf_link *link;
	int fd, error;

	if (!PyArg_ParseTuple(args, "s", &name) || !(program = find_program(self, name)))
		return NULL;
	said_length = 0;
	Py_BEGIN_ALLOW_THREADS
	link = bpf_program__attach(program);
	Py_END_ALLOW_THREADS
	if (!link)
		return fail("attach", errno);
	/* A command we start must not inherit it: the probe would outlive us. */
	fd = fcntl(bpf_link__fd(link), F_DUPFD_CLOEXEC, 3);
	error = errno;
	bpf_link__destroy(link);
	return fd < 0 ? fail("attach", error) : PyLong_FromLong(fd);
}

static PyMethodDef object_methods[] = {
	{"programs", (PyCFunction)object_programs, METH_NOARGS, "names of the programs"},
	{"maps", (PyCFunction)object_maps, METH_NOARGS, "(name, key size, value size, entries) of the maps"},
	{"autoload", (PyCFunction)object_autoload, METH_VARARGS, "autoload(program, on)"},
	{"attach_type", (PyCFunction)object_attach_type, METH_VARARGS, "attach_type(program, number)"},
	{"resize", (PyCFunction)object_resize, METH_VARARGS, "resize(map, entries)"},
	{"reuse", (PyCFunction)object_reuse, METH_VARARGS, "reuse(map, fd)"},
	{"load", (PyCFunction)object_load, METH_NOARGS, "load into the kernel"},
	{"program_fd", (PyCFunction)object_program_fd, METH_VARARGS, "program_fd(name)"},
	{"map_fd", (PyCFunction)object_map_fd, METH_VARARGS, "map_fd(name)"},
	{"attach", (PyCFunction)object_attach, METH_VARARGS, "attach(program) -> link fd"},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot object_slots[] = {
	{Py_tp_doc, "An opened BPF object file."},
	{Py_tp_init, object_init},
	{Py_tp_dealloc, object_dealloc},
	{Py_tp_methods, object_methods},
	{0, NULL},
};

static PyType_Spec object_spec = {
	"ingero.native._shim.Object", sizeof(Object), 0, Py_TPFLAGS_DEFAULT, object_slots,
};

/* --- links ------------------------------------------------------------------ */

static PyObject *iterate(PyObject *module, PyObject *args)
{
	int link, fd;

	(void)module;
	if (!PyArg_ParseTuple(args, "i", &link))
		return NULL;
	fd = bpf_iter_create(link);
	if (fd < 0)
		return fail("iterator", -fd);
	return PyLong_FromLong(fd);
}

/* --- maps ------------------------------------------------------------------- */

static PyObject *map_update(PyObject *module, PyObject *args)
{
	Py_buffer key, value;
	unsigned long long flags = 0;
	int fd, error;

	(void)module;
	if (!PyArg_ParseTuple(args, "iy*y*|K", &fd, &key, &value, &flags))
		return NULL;
	error = bpf_map_update_elem(fd, key.buf, value.buf, flags);
	PyBuffer_Release(&key);
	PyBuffer_Release(&value);
	if (error)
		return fail("map update", -error);
	Py_RETURN_NONE;
}

static PyObject *map_delete(PyObject *module, PyObject *args)
{
	Py_buffer key;
	int fd, error;

	(void)module;
	if (!PyArg_ParseTuple(args, "iy*", &fd, &key))
		return NULL;
	error = bpf_map_delete_elem(fd, key.buf);
	PyBuffer_Release(&key);
	if (error && error != -ENOENT)
		return fail("map delete", -error);
	return PyBool_FromLong(!error);
}

/* lookup(fd, key, value buffer) -> found */
static PyObject *map_lookup(PyObject *module, PyObject *args)
{
	Py_buffer key, value;
	int fd, error;

	(void)module;
	if (!PyArg_ParseTuple(args, "iy*w*", &fd, &key, &value))
		return NULL;
	error = bpf_map_lookup_elem(fd, key.buf, value.buf);
	PyBuffer_Release(&key);
	PyBuffer_Release(&value);
	if (error && error != -ENOENT)
		return fail("map lookup", -error);
	return PyBool_FromLong(!error);
}

/* One by one, for maps without batches. */
static Py_ssize_t read_singly(int fd, char *keys, char *values, Py_ssize_t key_size, Py_ssize_t value_size,
			      Py_ssize_t room)
{
	char *previous = NULL;
	Py_ssize_t n = 0;
	int error;

	while (n < room) {
		char *key = keys + n * key_size;
		error = bpf_map_get_next_key(fd, previous, key);
		if (error)
			return error == -ENOENT ? n : error;
		previous = key;
		if (!bpf_map_lookup_elem(fd, key, values + n * value_size))
			n++;
		else if (n > 0)	/* deleted meanwhile: go on from the last one that was there */
			previous = keys + (n - 1) * key_size;
		else
			return 0;
	}
	return -ENOSPC;
}

static Py_ssize_t read_batches(int fd, char *keys, char *values, Py_ssize_t key_size, Py_ssize_t value_size,
			       Py_ssize_t room)
{
	LIBBPF_OPTS(bpf_map_batch_opts, options);
	Py_ssize_t n = 0;
	uint32_t batch = 0, count;
	int error = 0;

	while (!error) {
		count = (uint32_t)(room - n);
		if (!count)
			return -ENOSPC;
		error = bpf_map_lookup_batch(fd, n ? &batch : NULL, &batch, keys + n * key_size,
					     values + n * value_size, &count, &options);
		if (error && error != -ENOENT)
			return error;
		n += count;
		if (!count)
			break;
	}
	return n;
}

/* map_read_all(fd, keys, values, key size, value size) -> entries, or -1: too little room */
static PyObject *map_read_all(PyObject *module, PyObject *args)
{
	Py_buffer keys, values;
	Py_ssize_t key_size, value_size, n, room;
	int fd;

	(void)module;
	if (!PyArg_ParseTuple(args, "iw*w*nn", &fd, &keys, &values, &key_size, &value_size))
		return NULL;
	room = keys.len / key_size < values.len / value_size ? keys.len / key_size : values.len / value_size;
	Py_BEGIN_ALLOW_THREADS
	n = read_batches(fd, keys.buf, values.buf, key_size, value_size, room);
	if (n < 0 && n != -ENOSPC)
		n = read_singly(fd, keys.buf, values.buf, key_size, value_size, room);
	Py_END_ALLOW_THREADS
	PyBuffer_Release(&keys);
	PyBuffer_Release(&values);
	if (n < 0 && n != -ENOSPC)
		return fail("map read", (int)-n);
	return PyLong_FromSsize_t(n < 0 ? -1 : n);
}

/* --- BTF ---------------------------------------------------------------------- */

/* btf_types(path) -> [(kind, name, size, [(member name, type id, bit offset or value)])],
 * by type id; the generator of model/layout.py reads it. */
static PyObject *btf_types(PyObject *module, PyObject *args)
{
	const char *path;
	struct btf *btf;
	PyObject *list;
	uint32_t id;

	(void)module;
	if (!PyArg_ParseTuple(args, "s", &path))
		return NULL;
	btf = btf__parse(path, NULL);
	if (!btf)
		return fail("btf", errno);
	list = PyList_New(0);
	for (id = 1; id < btf__type_cnt(btf); id++) {
		const struct btf_type *t = btf__type_by_id(btf, id);
		PyObject *members = PyList_New(0), *row, *item;
		uint16_t i;

		if (btf_is_composite(t)) {
			for (i = 0; i < btf_vlen(t); i++) {
				const struct btf_member *m = btf_members(t) + i;
				item = Py_BuildValue("(sII)", btf__name_by_offset(btf, m->name_off), m->type,
						     btf_member_bit_offset(t, i));
				PyList_Append(members, item);
				Py_DECREF(item);
			}
		} else if (btf_is_enum(t)) {
			for (i = 0; i < btf_vlen(t); i++) {
				const struct btf_enum *e = btf_enum(t) + i;
				item = Py_BuildValue("(sIL)", btf__name_by_offset(btf, e->name_off), 0,
						     btf_kflag(t) ? (long long)e->val : (long long)(__u32)e->val);
				PyList_Append(members, item);
				Py_DECREF(item);
			}
		} else if (btf_is_array(t)) {
			item = Py_BuildValue("(sII)", "", btf_array(t)->type, btf_array(t)->nelems);
			PyList_Append(members, item);
			Py_DECREF(item);
		} else if (btf_is_int(t)) {
			item = Py_BuildValue("(sII)", "", 0, btf_int_encoding(t));
			PyList_Append(members, item);
			Py_DECREF(item);
		}
		row = Py_BuildValue("(IsIN)", btf_kind(t), btf__name_by_offset(btf, t->name_off), t->size, members);
		PyList_Append(list, row);
		Py_DECREF(row);
	}
	btf__free(btf);
	return list;
}

/* --- cost ---------------------------------------------------------------------- */

/* A function of our own to put a probe on. In assembly, because it must begin like
 * most of CUDA's, with an instruction the kernel emulates. */
long ingero_calibration_target(long x);
#if defined(__x86_64__)
__asm__(".pushsection .text\n.globl ingero_calibration_target\n"
	".type ingero_calibration_target, @function\n"
	"ingero_calibration_target:\n"
	"push %rbp\nmov %rsp, %rbp\nmov %rdi, %rax\npop %rbp\nret\n"
	".size ingero_calibration_target, . - ingero_calibration_target\n.popsection\n");
#else
__attribute__((noinline, visibility("default"))) long ingero_calibration_target(long x)
{
	__asm__ volatile("" : "+r"(x));
	return x;
}
#endif

static long long elapsed_ns(const struct timespec *a, const struct timespec *b)
{
	return (b->tv_sec - a->tv_sec) * 1000000000LL + (b->tv_nsec - a->tv_nsec);
}

/* time_calls(n, memory) -> nanoseconds for n calls of the function above, with all of the
 * memory written between one call and the next: what was in the caches then is not any more. */
static PyObject *time_calls(PyObject *module, PyObject *args)
{
	struct timespec a, b;
	long long total = 0;
	Py_buffer memory;
	Py_ssize_t at;
	long n, i, x = 0;

	(void)module;
	if (!PyArg_ParseTuple(args, "lw*", &n, &memory))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	for (i = 0; i < n; i++) {
		for (at = 0; at < memory.len; at += 64)
			((volatile char *)memory.buf)[at]++;
		clock_gettime(CLOCK_MONOTONIC, &a);
		x += ingero_calibration_target(i);
		clock_gettime(CLOCK_MONOTONIC, &b);
		total += elapsed_ns(&a, &b);
	}
	Py_END_ALLOW_THREADS
	(void)x;
	PyBuffer_Release(&memory);
	return PyLong_FromLongLong(total);
}

/* test_run(program fd, context) -> its result: runs a SEC("syscall") program */
static PyObject *test_run(PyObject *module, PyObject *args)
{
	LIBBPF_OPTS(bpf_test_run_opts, options);
	Py_buffer context;
	int program, error;

	(void)module;
	if (!PyArg_ParseTuple(args, "iw*", &program, &context))
		return NULL;
	options.ctx_in = context.buf;
	options.ctx_size_in = (uint32_t)context.len;
	Py_BEGIN_ALLOW_THREADS
	error = bpf_prog_test_run_opts(program, &options);
	Py_END_ALLOW_THREADS
	PyBuffer_Release(&context);
	if (error)
		return fail("test run", -error);
	return PyLong_FromLong((long)options.retval);
}

/* clock_event(program fd, cpu, hertz) -> fd: runs the program on what that core does */
static PyObject *clock_event(PyObject *module, PyObject *args)
{
	struct perf_event_attr event;
	int program, cpu, hertz, fd, error;

	(void)module;
	if (!PyArg_ParseTuple(args, "iii", &program, &cpu, &hertz))
		return NULL;
	memset(&event, 0, sizeof(event));
	event.size = sizeof(event);
	event.type = PERF_TYPE_SOFTWARE;
	event.config = PERF_COUNT_SW_CPU_CLOCK;
	event.sample_freq = (uint64_t)hertz;
	event.freq = 1;
	fd = (int)syscall(__NR_perf_event_open, &event, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		return fail("clock event", errno);
	if (ioctl(fd, PERF_EVENT_IOC_SET_BPF, program) || ioctl(fd, PERF_EVENT_IOC_ENABLE, 0)) {
		error = errno;
		close(fd);
		return fail("clock event", error);
	}
	return PyLong_FromLong(fd);
}

static PyObject *libbpf_version(PyObject *module, PyObject *unused)
{
	(void)module;
	(void)unused;
	return PyUnicode_FromString(libbpf_version_string());
}

static PyMethodDef methods[] = {
	{"keep_uprobes", keep_uprobes, METH_VARARGS,
	 "keep_uprobes(command, ends, type, path, offsets, cookies, perf) -> (keeper's pid, fd to close)"},
	{"iterate", iterate, METH_VARARGS, "iterate(link fd) -> fd to read from"},
	{"map_update", map_update, METH_VARARGS, "map_update(fd, key, value, flags=0)"},
	{"map_delete", map_delete, METH_VARARGS, "map_delete(fd, key) -> was there"},
	{"map_lookup", map_lookup, METH_VARARGS, "map_lookup(fd, key, value buffer) -> found"},
	{"map_read_all", map_read_all, METH_VARARGS,
	 "map_read_all(fd, keys, values, key size, value size) -> entries, -1: too little room"},
	{"demangle", demangle, METH_VARARGS, "demangle(names that end in zero bytes, within_ms) -> texts that do"},
	{"btf_types", btf_types, METH_VARARGS, "btf_types(path) -> types by id"},
	{"time_calls", time_calls, METH_VARARGS, "time_calls(n, memory) -> nanoseconds"},
	{"test_run", test_run, METH_VARARGS, "test_run(program fd, context) -> result"},
	{"clock_event", clock_event, METH_VARARGS, "clock_event(program fd, cpu, hertz) -> fd"},
	{"time_switches", time_switches, METH_VARARGS, "time_switches(trips) -> nanoseconds, two switches a trip"},
	{"call_under_filter", call_under_filter, METH_NOARGS, "call_under_filter() -> signal that ended the child, or 0"},
	{"read_memory", read_memory, METH_VARARGS, "read_memory(pid, address, size) -> bytes that are mapped"},
	{"one_pool", one_pool, METH_NOARGS, "one_pool(): memory that is freed goes back to the kernel"},
	{"give_back", give_back, METH_NOARGS, "give_back(): all of it that can, now"},
	{"libbpf_version", libbpf_version, METH_NOARGS, "version of libbpf"},
	{NULL, NULL, 0, NULL},
};

static int execute(PyObject *module)
{
	PyObject *type = PyType_FromSpec(&object_spec);

	libbpf_set_print(keep_words);
	if (!type || PyModule_AddObjectRef(module, "Object", type))
		return -1;
	Py_DECREF(type);
	if (add_ring_type(module) || add_mapping_watch_type(module))
		return -1;
	return 0;
}

static PyModuleDef_Slot slots[] = {
	{Py_mod_exec, execute},
	{0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, "_shim", "libbpf and bpf(2) for Python.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__shim(void);
PyMODINIT_FUNC PyInit__shim(void)
{
	return PyModuleDef_Init(&definition);
}
