/* SPDX-License-Identifier: Apache-2.0
 *
 * C++ names made readable by the C++ runtime's own demangler, where there is one.
 *
 * The names are those of the traced processes' files. 250 bytes of such a name can stand
 * for half a gigabyte of text, and demanglers have crashed on others, so it works in a
 * child: little memory, little time for a name, no descriptors, and nobody misses it.
 * The child is a copy of us, not a program: it calls nothing of Python's.
 */
#include "_shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TEXT_BYTES 4096			/* of a readable name: the rest is cut */
#define CHILD_BYTES (64UL << 20)	/* more than we have now */
#define NAME_US 50000			/* on a core; usual names take 5 */

typedef char *(*demangler_function)(const char *, char *, size_t *, int *);

static demangler_function find_demangler(void)
{
	static demangler_function found;
	static int looked;
	void *library;

	if (!looked) {
		looked = 1;
		library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_LOCAL);
		if (!library)
			library = dlopen("libc++abi.so.1", RTLD_LAZY | RTLD_LOCAL);
		if (library)
			found = (demangler_function)dlsym(library, "__cxa_demangle");
	}
	return found;
}

static unsigned long address_space_bytes(void)
{
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "re");

	if (file) {
		if (fscanf(file, "%lu", &pages) != 1)
			pages = 0;
		fclose(file);
	}
	return pages * (unsigned long)sysconf(_SC_PAGESIZE);
}

/* After this, what goes wrong ends the child and leaves no trace. */
static void confine(unsigned long bytes)
{
	static const int deadly[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGPROF, SIGTERM, SIGINT, SIGHUP};
	struct rlimit limit = {0, 0};
	sigset_t all;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (size_t i = 0; i < sizeof(deadly) / sizeof(*deadly); i++)
		signal(deadly[i], SIG_DFL);
	sigfillset(&all);
	sigprocmask(SIG_UNBLOCK, &all, NULL);
	setrlimit(RLIMIT_CORE, &limit);
	limit.rlim_cur = limit.rlim_max = bytes + CHILD_BYTES;
	setrlimit(RLIMIT_AS, &limit);
}

static int send_text(int fd, const char *text, size_t length)
{
	while (length) {
		ssize_t n = write(fd, text, length);
		if (n < 0)
			return -1;
		text += n;
		length -= (size_t)n;
	}
	return 0;
}

static void demangle_in_child(demangler_function demangler, const char *names, size_t length, int fd)
{
	static const struct itimerval allowance = {{0, 0}, {0, NAME_US}};
	const char *end = names + length;

	for (; names < end; names += strlen(names) + 1) {
		int status = 0;
		char *text;

		setitimer(ITIMER_PROF, &allowance, NULL);
		text = demangler(names, NULL, NULL, &status);
		if (text && send_text(fd, text, strnlen(text, TEXT_BYTES)))
			break;
		if (send_text(fd, "", 1))
			break;
		free(text);
	}
}

static int milliseconds_until(const struct timespec *deadline)
{
	struct timespec now;
	long left;

	clock_gettime(CLOCK_MONOTONIC, &now);
	left = (deadline->tv_sec - now.tv_sec) * 1000 + (deadline->tv_nsec - now.tv_nsec) / 1000000;
	return left > 0 ? (int)left : 0;
}

/* What the child says, until it ends or takes too long. */
static size_t listen_to(int fd, char *text, size_t room, int within_ms)
{
	struct timespec deadline;
	struct pollfd wanted = {fd, POLLIN, 0};
	size_t used = 0;

	clock_gettime(CLOCK_MONOTONIC, &deadline);
	deadline.tv_sec += within_ms / 1000;
	deadline.tv_nsec += within_ms % 1000 * 1000000L;
	while (used < room) {
		int left = milliseconds_until(&deadline), ready = left ? poll(&wanted, 1, left) : 0;
		ssize_t n;

		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0)
			break;
		n = read(fd, text + used, room - used);
		if (n <= 0)
			break;
		used += (size_t)n;
	}
	return used;
}

static ssize_t run_child(demangler_function demangler, const char *names, size_t length, char *text, size_t room,
			 int within_ms)
{
	unsigned long bytes = address_space_bytes();
	size_t used;
	int ends[2];
	pid_t child;

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	child = fork();
	if (child == 0) {
		dup2(ends[1], 0);
		syscall(SYS_close_range, 1U, ~0U, 0U);	/* before Linux 5.9 they stay, for as long as we take */
		confine(bytes);
		demangle_in_child(demangler, names, length, 0);
		_exit(0);
	}
	close(ends[1]);
	used = child < 0 ? 0 : listen_to(ends[0], text, room, within_ms);
	close(ends[0]);
	if (child > 0) {
		/* Not killed, which the filter of readers lets nobody do: it ends with its next word, for
		 * nobody listens, or when the name it is at has taken its time. */
		while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
			;
	}
	return child < 0 ? -1 : (ssize_t)used;
}

/* demangle(names, each ending in a zero byte, milliseconds it may take) -> their texts likewise, an empty one where a
 * name is no C++ name. Fewer texts than names: the child ended at the next one. */
PyObject *demangle(PyObject *module, PyObject *args)
{
	demangler_function demangler = find_demangler();
	const char *names;
	Py_ssize_t length;
	int within_ms;
	size_t count = 0;
	ssize_t used;
	char *text;
	PyObject *result;

	(void)module;
	if (!PyArg_ParseTuple(args, "y#i", &names, &length, &within_ms))
		return NULL;
	if (length && names[length - 1]) {
		PyErr_SetString(PyExc_ValueError, "the last name does not end");
		return NULL;
	}
	for (Py_ssize_t i = 0; i < length; i++)
		count += !names[i];
	text = PyMem_Malloc(count * (TEXT_BYTES + 1) + 1);
	if (!text)
		return PyErr_NoMemory();
	if (demangler && count) {
		Py_BEGIN_ALLOW_THREADS
		used = run_child(demangler, names, (size_t)length, text, count * (TEXT_BYTES + 1), within_ms);
		Py_END_ALLOW_THREADS
	} else {
		memset(text, 0, count);
		used = (ssize_t)count;
	}
	if (used < 0)
		PyErr_SetFromErrno(PyExc_OSError);
	result = used < 0 ? NULL : PyBytes_FromStringAndSize(text, used);
	PyMem_Free(text);
	return result;
}
