/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INGERO_SHIM_H
#define INGERO_SHIM_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

int add_ring_type(PyObject *module);		/* _ring.c: BPF ring buffer into arrays */
int add_mapping_watch_type(PyObject *module);	/* _mappings.c: libraries as they are mapped */
PyObject *keep_uprobes(PyObject *module, PyObject *args); /* _keeper.c: probes that end with us */
PyObject *time_switches(PyObject *module, PyObject *args); /* _switches.c: what a context switch takes */
PyObject *call_under_filter(PyObject *module, PyObject *unused); /* _filter.c: a filtered child with probes */
PyObject *read_memory(PyObject *module, PyObject *args); /* _memory.c: of another process */
PyObject *one_pool(PyObject *module, PyObject *unused); /* _memory.c: what we free goes back */
PyObject *give_back(PyObject *module, PyObject *unused); /* _memory.c: now */
PyObject *demangle(PyObject *module, PyObject *args); /* _demangle.c: readable C++ names */

#endif
