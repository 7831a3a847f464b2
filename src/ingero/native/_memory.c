/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory: of another process, read so that a page that never comes can be given up, and our own.
 *
 * A read of /proc/PID/mem waits for a page with the process's memory map locked, and not even
 * SIGKILL ends that wait when the page belongs to a file system that does not answer. This
 * call lets go of the lock while it waits, and dies when it is killed.
 */
#include "_shim.h"

#include <errno.h>
#include <malloc.h>
#include <sys/uio.h>

/* read_memory(pid, address, size) -> as many of the bytes as are mapped */
PyObject *read_memory(PyObject *module, PyObject *args)
{
	unsigned long long address;
	struct iovec here, there;
	PyObject *data, *part;
	Py_ssize_t size;
	ssize_t got;
	int pid;

	(void)module;
	if (!PyArg_ParseTuple(args, "iKn", &pid, &address, &size))
		return NULL;
	data = PyBytes_FromStringAndSize(NULL, size);
	if (!data)
		return NULL;
	here.iov_base = PyBytes_AsString(data);
	there.iov_base = (void *)(uintptr_t)address;
	here.iov_len = there.iov_len = (size_t)size;
	Py_BEGIN_ALLOW_THREADS
	got = process_vm_readv(pid, &here, 1, &there, 1, 0);
	Py_END_ALLOW_THREADS
	if (got == size)
		return data;
	part = got < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyBytes_FromStringAndSize(here.iov_base, got);
	Py_DECREF(data);
	return part;
}

/*
 * What is freed shall go back to the kernel. By itself the C library keeps a pool for every thread,
 * and once an array of some megabytes was freed it takes the next ones from the pool as well,
 * where whatever is allocated behind them keeps them from going back.
 */
#define LARGE_BYTES (256 << 10)

/* one_pool(): before other threads begin; from LARGE_BYTES on, memory is mapped and unmapped */
PyObject *one_pool(PyObject *module, PyObject *unused)
{
	(void)module;
	(void)unused;
#ifdef __GLIBC__
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
	mallopt(M_TRIM_THRESHOLD, LARGE_BYTES);
#endif
	Py_RETURN_NONE;
}

/* give_back(): free pages between those in use, too */
PyObject *give_back(PyObject *module, PyObject *unused)
{
	(void)module;
	(void)unused;
#ifdef __GLIBC__
	Py_BEGIN_ALLOW_THREADS
	malloc_trim(0);
	Py_END_ALLOW_THREADS
#endif
	Py_RETURN_NONE;
}
