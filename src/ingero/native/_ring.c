/* SPDX-License-Identifier: Apache-2.0
 *
 * Drains the BPF ring buffer into arrays, one per record type, in one call. No
 * Python object is made per record. Layout of the ring: see the kernel's
 * Documentation/bpf/ringbuf.rst (consumer page, producer page, data twice).
 */
#include "_shim.h"

#include <errno.h>
#include <linux/bpf.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BUSY (1u << 31)
#define DISCARD (1u << 30)
#define TYPES 16

typedef struct {
	PyObject_HEAD
	size_t size;
	size_t page;
	uint64_t *consumer;
	char *producer;
} Ring;

static void ring_unmap(Ring *self)
{
	if (self->consumer)
		munmap(self->consumer, self->page);
	if (self->producer)
		munmap(self->producer, self->page + 2 * self->size);
	self->consumer = NULL;
	self->producer = NULL;
}

static int ring_init(Ring *self, PyObject *args, PyObject *kwargs)
{
	void *consumer, *producer;
	unsigned long long size;
	int fd;

	(void)kwargs;
	if (!PyArg_ParseTuple(args, "iK", &fd, &size))
		return -1;
	self->page = (size_t)sysconf(_SC_PAGESIZE);
	self->size = size;
	consumer = mmap(NULL, self->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	producer = mmap(NULL, self->page + 2 * size, PROT_READ, MAP_SHARED, fd, (off_t)self->page);
	if (consumer == MAP_FAILED || producer == MAP_FAILED) {
		PyErr_SetFromErrno(PyExc_OSError);
		return -1;
	}
	self->consumer = consumer;
	self->producer = producer;
	return 0;
}

static void ring_dealloc(Ring *self)
{
	PyTypeObject *type = Py_TYPE(self);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	ring_unmap(self);
	release(self);
	Py_DECREF(type);
}

struct target {
	char *data;
	size_t item;
	size_t room;
	size_t used;
};

/* Copies until the ring is empty or a target is full. A type without a target, or
 * of another size than expected, is counted in `unknown`. */
static size_t copy_records(Ring *self, struct target *targets, size_t *unknown)
{
	uint64_t consumer = __atomic_load_n(self->consumer, __ATOMIC_RELAXED);
	uint64_t producer = __atomic_load_n((uint64_t *)self->producer, __ATOMIC_ACQUIRE);
	const char *data = self->producer + self->page;
	size_t copied = 0;

	while (consumer < producer) {
		const char *at = data + (consumer & (self->size - 1));
		uint32_t header = __atomic_load_n((uint32_t *)at, __ATOMIC_ACQUIRE);
		uint32_t length = header & ~(BUSY | DISCARD);
		uint16_t type;
		struct target *target;

		if (header & BUSY)
			break;
		if (!(header & DISCARD)) {
			memcpy(&type, at + 8, sizeof(type));
			target = type < TYPES ? &targets[type] : NULL;
			if (!target || target->item != length) {
				++*unknown;
			} else {
				if (target->used == target->room)
					break;
				memcpy(target->data + target->used++ * target->item, at + 8, length);
				copied++;
			}
		}
		consumer += (length + 8 + 7) & ~7ull;
		__atomic_store_n(self->consumer, consumer, __ATOMIC_RELEASE);
	}
	return copied;
}

/* drain({type: (array, item size)}) -> ({type: records}, unknown) */
static PyObject *ring_drain(Ring *self, PyObject *args)
{
	struct target targets[TYPES];
	Py_buffer buffers[TYPES];
	PyObject *wanted, *key, *value, *counts;
	Py_ssize_t position = 0;
	size_t unknown = 0;
	int held[TYPES] = {0}, type;

	if (!PyArg_ParseTuple(args, "O!", &PyDict_Type, &wanted))
		return NULL;
	memset(targets, 0, sizeof(targets));
	while (PyDict_Next(wanted, &position, &key, &value)) {
		Py_ssize_t item;
		long number = PyLong_AsLong(key);

		if (number < 0 || number >= TYPES || held[number] ||
		    !PyArg_ParseTuple(value, "w*n", &buffers[number], &item))
			goto wrong;
		held[number] = 1;
		targets[number] = (struct target){buffers[number].buf, (size_t)item,
						  (size_t)(buffers[number].len / item), 0};
	}
	Py_BEGIN_ALLOW_THREADS
	copy_records(self, targets, &unknown);
	Py_END_ALLOW_THREADS
	counts = PyDict_New();
	for (type = 0; type < TYPES; type++) {
		if (!held[type])
			continue;
		PyBuffer_Release(&buffers[type]);
		key = PyLong_FromLong(type);
		value = PyLong_FromSize_t(targets[type].used);
		PyDict_SetItem(counts, key, value);
		Py_DECREF(key);
		Py_DECREF(value);
	}
	return Py_BuildValue("(Nn)", counts, (Py_ssize_t)unknown);
wrong:
	for (type = 0; type < TYPES; type++)
		if (held[type])
			PyBuffer_Release(&buffers[type]);
	if (!PyErr_Occurred())
		PyErr_SetString(PyExc_ValueError, "bad record type");
	return NULL;
}

/* fill() -> bytes waiting */
static PyObject *ring_fill(Ring *self, PyObject *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLongLong(__atomic_load_n((uint64_t *)self->producer, __ATOMIC_ACQUIRE) -
					   __atomic_load_n(self->consumer, __ATOMIC_RELAXED));
}

static PyMethodDef ring_methods[] = {
	{"drain", (PyCFunction)ring_drain, METH_VARARGS,
	 "drain({type: (array, item size)}) -> ({type: records}, unknown)"},
	{"fill", (PyCFunction)ring_fill, METH_NOARGS, "bytes waiting"},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot ring_slots[] = {
	{Py_tp_doc, "A mapped BPF ring buffer: Ring(map fd, size in bytes)."},
	{Py_tp_init, ring_init},
	{Py_tp_dealloc, ring_dealloc},
	{Py_tp_methods, ring_methods},
	{0, NULL},
};

static PyType_Spec ring_spec = {
	"ingero.native._shim.Ring", sizeof(Ring), 0, Py_TPFLAGS_DEFAULT, ring_slots,
};

int add_ring_type(PyObject *module)
{
	PyObject *type = PyType_FromSpec(&ring_spec);
	int error = !type || PyModule_AddObjectRef(module, "Ring", type);

	Py_XDECREF(type);
	return error ? -1 : 0;
}
