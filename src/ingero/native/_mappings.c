/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells of executable mappings as they are made anywhere on the host (a library
 * loaded later, a new program), through the kernel's perf mmap records: one quiet
 * software event per core, no sampling, nothing placed in any process.
 */
#include "_shim.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGES 16		/* of records per core; a mapping takes about 120 bytes */
#define CORES 1024

typedef struct {
	PyObject_HEAD
	size_t page;
	int cores;
	int fds[CORES];
	void *rings[CORES];
	unsigned long long lost;
} Watch;

static void watch_close_all(Watch *self)
{
	for (int i = 0; i < self->cores; i++) {
		if (self->rings[i])
			munmap(self->rings[i], (1 + PAGES) * self->page);
		close(self->fds[i]);
	}
	self->cores = 0;
}

static int watch_init(Watch *self, PyObject *args, PyObject *kwargs)
{
	struct perf_event_attr attr;
	PyObject *cpus;
	Py_ssize_t n;

	(void)kwargs;
	if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &cpus))
		return -1;
	memset(&attr, 0, sizeof(attr));
	attr.size = sizeof(attr);
	attr.type = PERF_TYPE_SOFTWARE;
	attr.config = PERF_COUNT_SW_DUMMY;
	attr.mmap = 1;
	attr.mmap2 = 1;
	attr.sample_id_all = 1; /* every record ends with its time, on the clock that all our times are of */
	attr.sample_type = PERF_SAMPLE_TIME;
	attr.use_clockid = 1;
	attr.clockid = CLOCK_MONOTONIC;
	attr.watermark = 1;
	attr.wakeup_watermark = 1;
	self->page = (size_t)sysconf(_SC_PAGESIZE);
	n = PyList_Size(cpus);
	for (Py_ssize_t i = 0; i < n && i < CORES; i++) {
		int cpu = (int)PyLong_AsLong(PyList_GetItem(cpus, i));
		int fd = (int)syscall(__NR_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
		void *ring;

		if (fd < 0)
			goto failed;
		ring = mmap(NULL, (1 + PAGES) * self->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		self->fds[self->cores] = fd;
		self->rings[self->cores++] = ring == MAP_FAILED ? NULL : ring;
		if (ring == MAP_FAILED)
			goto failed;
	}
	return 0;
failed:
	PyErr_SetFromErrno(PyExc_OSError);
	watch_close_all(self);
	return -1;
}

static void watch_dealloc(Watch *self)
{
	PyTypeObject *type = Py_TYPE(self);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	watch_close_all(self);
	release(self);
	Py_DECREF(type);
}

static void copy_out(const char *data, size_t size, uint64_t at, char *to, size_t length)
{
	size_t offset = at & (size - 1), first = size - offset < length ? size - offset : length;

	memcpy(to, data + offset, first);
	memcpy(to + first, data, length - first);
}

struct mmap2 {
	struct perf_event_header header;
	uint32_t pid, tid;
	uint64_t address, length, offset;
	uint32_t major, minor;
	uint64_t inode, generation;
	uint32_t protection, flags;
	char path[4096 + 8]; /* padded; the time follows */
};

static int read_core(Watch *self, int core, PyObject *list)
{
	struct perf_event_mmap_page *meta = self->rings[core];
	const char *data = (char *)meta + self->page;
	uint64_t head = __atomic_load_n(&meta->data_head, __ATOMIC_ACQUIRE), tail = meta->data_tail;
	size_t size = PAGES * self->page;
	struct mmap2 record;

	while (tail < head) {
		size_t length;

		copy_out(data, size, tail, (char *)&record.header, sizeof(record.header));
		length = record.header.size;
		if (length < sizeof(record.header))
			break;
		if (record.header.type == PERF_RECORD_LOST) {
			uint64_t lost[3];
			copy_out(data, size, tail, (char *)lost, sizeof(lost));
			self->lost += lost[2];
		} else if (record.header.type == PERF_RECORD_MMAP2 && length <= sizeof(record)) {
			PyObject *row;
			uint64_t at_ns;
			copy_out(data, size, tail, (char *)&record, length);
			memcpy(&at_ns, (char *)&record + length - sizeof(at_ns), sizeof(at_ns));
			record.path[sizeof(record.path) - 1] = 0;
			row = Py_BuildValue("(IKKIIKKN)", record.pid, (unsigned long long)record.address,
					    (unsigned long long)record.length, record.major, record.minor,
					    (unsigned long long)record.inode, (unsigned long long)at_ns,
					    PyUnicode_DecodeFSDefault(record.path));
			if (!row || PyList_Append(list, row)) {
				Py_XDECREF(row);
				return -1;
			}
			Py_DECREF(row);
		}
		tail += length;
	}
	__atomic_store_n(&meta->data_tail, tail, __ATOMIC_RELEASE);
	return 0;
}

/* read() -> [(pid, address, length, major, minor, inode, at_ns, path)] */
static PyObject *watch_read(Watch *self, PyObject *unused)
{
	PyObject *list = PyList_New(0);

	(void)unused;
	for (int i = 0; list && i < self->cores; i++)
		if (read_core(self, i, list)) {
			Py_DECREF(list);
			return NULL;
		}
	return list;
}

static PyObject *watch_fds(Watch *self, PyObject *unused)
{
	PyObject *list = PyList_New(0);

	(void)unused;
	for (int i = 0; list && i < self->cores; i++) {
		PyObject *fd = PyLong_FromLong(self->fds[i]);
		PyList_Append(list, fd);
		Py_DECREF(fd);
	}
	return list;
}

static PyObject *watch_lost(Watch *self, PyObject *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLongLong(self->lost);
}

static PyObject *watch_close(Watch *self, PyObject *unused)
{
	(void)unused;
	watch_close_all(self);
	Py_RETURN_NONE;
}

static PyMethodDef watch_methods[] = {
	{"read", (PyCFunction)watch_read, METH_NOARGS, "mappings since the last call"},
	{"fds", (PyCFunction)watch_fds, METH_NOARGS, "descriptors to poll for news"},
	{"lost", (PyCFunction)watch_lost, METH_NOARGS, "records the kernel dropped"},
	{"close", (PyCFunction)watch_close, METH_NOARGS, "stop watching"},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot watch_slots[] = {
	{Py_tp_doc, "Executable mappings as they are made: MappingWatch([cpu, ...])."},
	{Py_tp_init, watch_init},
	{Py_tp_dealloc, watch_dealloc},
	{Py_tp_methods, watch_methods},
	{0, NULL},
};

static PyType_Spec watch_spec = {
	"ingero.native._shim.MappingWatch", sizeof(Watch), 0, Py_TPFLAGS_DEFAULT, watch_slots,
};

int add_mapping_watch_type(PyObject *module)
{
	PyObject *type = PyType_FromSpec(&watch_spec);
	int error = !type || PyModule_AddObjectRef(module, "MappingWatch", type);

	Py_XDECREF(type);
	return error ? -1 : 0;
}
