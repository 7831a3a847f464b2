/* SPDX-License-Identifier: Apache-2.0
 *
 * Probes on library functions, made and held by a process of their own: the keeper.
 *
 * The kernel puts probes on and takes them off by writing into the code of running
 * programs, and a task that is being killed cannot: it gives up half-way ("failed to
 * unregister, leaking uprobe") and the breakpoints stay. So the agent does neither.
 * A child makes the links and then becomes a small program that reads its input to the
 * end, and the agent holds the other end of that pipe. However the agent ends, the
 * keeper then exits and the probes go with it; a task that exits cannot be killed.
 *
 * Until it executes that program the child shares our memory (vfork): it makes system
 * calls, tells what failed, and touches nothing else.
 *
 * Where somebody runs the file's code, the kernel reads the page of each probe while no
 * process of the machine can fork (uprobes: dup_mmap_sem). Were the page on a file system
 * that does not answer, the whole machine would stand still with us. So the child has the
 * pages read before, when only it waits for them, and files that another program serves
 * (FUSE) are left alone: who serves them could take the pages away again in between.
 */
#include "_shim.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS 6
#define CLOEXEC_RANGE (1U << 2) /* CLOSE_RANGE_CLOEXEC, Linux 5.11 */
#define POPULATE_READ 22	/* MADV_POPULATE_READ, Linux 5.14 */
#define FUSE 0x65735546
#define INSTRUCTION 16 /* bytes the kernel copies from where a probe is */

/* The kernel's struct as of 6.6; older headers do not have it. */
struct uprobe_multi_attr {
	uint32_t prog_fd, target_fd, attach_type, flags;
	uint64_t path, offsets, ref_ctr_offsets, cookies;
	uint32_t cnt, multi_flags, pid;
};

/* Which program at the entry, which at the return. */
struct end {
	int32_t program;
	uint32_t flags; /* of the link, or the config of the perf event */
};

struct order {
	const char *words[WORDS + 1]; /* what the keeper becomes */
	const char *path;
	char path_of_file[32]; /* the same file, once it is open */
	const struct end *ends;
	size_t end_count;
	const uint64_t *offsets, *cookies;
	size_t count;
	uint32_t type; /* attach type, or the perf device's */
	int perf, served; /* served: by a program, and wanted all the same */
	int input, nowhere;
	const char *failed; /* what did, and why */
	int error;
};

static int stay_open(int fd)
{
	return fcntl(fd, F_SETFD, 0);
}

static int make_multi(const struct order *order, const struct end *end)
{
	struct uprobe_multi_attr attr;
	int fd;

	memset(&attr, 0, sizeof(attr));
	attr.prog_fd = (uint32_t)end->program;
	attr.attach_type = order->type;
	attr.path = (uintptr_t)order->path_of_file;
	attr.offsets = (uintptr_t)order->offsets;
	attr.cookies = (uintptr_t)order->cookies;
	attr.cnt = (uint32_t)order->count;
	attr.multi_flags = end->flags;
	fd = (int)syscall(__NR_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));
	return fd < 0 ? -1 : stay_open(fd);
}

/* The link holds the event, so its own descriptor is not needed once they are joined. */
static int make_perf(const struct order *order, const struct end *end, size_t index)
{
	struct perf_event_attr event;
	union bpf_attr attr;
	int perf, link;

	memset(&event, 0, sizeof(event));
	event.size = sizeof(event);
	event.type = order->type;
	event.config = end->flags;
	event.config1 = (uintptr_t)order->path_of_file;
	event.config2 = order->offsets[index];
	perf = (int)syscall(__NR_perf_event_open, &event, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
	if (perf < 0)
		return -1;
	memset(&attr, 0, sizeof(attr));
	attr.link_create.prog_fd = (uint32_t)end->program;
	attr.link_create.target_fd = (uint32_t)perf;
	attr.link_create.attach_type = BPF_PERF_EVENT;
	attr.link_create.perf_event.bpf_cookie = order->cookies[index];
	link = (int)syscall(__NR_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));
	if (link < 0 || ioctl(perf, PERF_EVENT_IOC_ENABLE, 0))
		return -1;
	close(perf);
	return stay_open(link);
}

static int make_links(const struct order *order)
{
	for (size_t end = 0; end < order->end_count; end++) {
		if (!order->perf) {
			if (make_multi(order, &order->ends[end]))
				return -1;
			continue;
		}
		for (size_t index = 0; index < order->count; index++)
			if (make_perf(order, &order->ends[end], index))
				return -1;
	}
	return 0;
}

/* No terminal, no stream of ours, and when it executes nothing open but what is made from now on. */
static int leave_all_behind(const struct order *order)
{
	if (setsid() < 0 || dup2(order->input, 0) < 0 || dup2(order->nowhere, 1) < 0 || dup2(order->nowhere, 2) < 0)
		return -1;
	for (int fd = 0; fd < 3; fd++) /* where ours were closed, the pipe may have had that number already */
		if (stay_open(fd))
			return -1;
	return (int)syscall(__NR_close_range, 3, ~0U, CLOEXEC_RANGE);
}

static int is_program(const struct order *order, unsigned int fd)
{
	for (size_t end = 0; end < order->end_count; end++)
		if (order->ends[end].program == (int32_t)fd)
			return 1;
	return 0;
}

/* The pipes of other keepers among them: should we never get further, theirs must end all the same. */
static void close_others(const struct order *order)
{
	unsigned int first = 3, highest = 2;

	for (size_t end = 0; end < order->end_count; end++)
		if (order->ends[end].program > (int32_t)highest)
			highest = (unsigned int)order->ends[end].program;
	for (unsigned int fd = first; fd <= highest; fd++)
		if (!is_program(order, fd))
			close((int)fd);
	syscall(__NR_close_range, highest + 1, ~0U, 0);
}

/* By its descriptor from now on, so that it stays the file that was looked at. */
static int find_file(struct order *order)
{
	struct statfs system;
	int fd = open(order->path, O_PATH | O_CLOEXEC);

	if (fd < 0)
		return -1;
	if (!order->served) {
		order->failed = "its file system does not say what it is";
		if (fstatfs(fd, &system))
			return -1;
		order->failed = "another program serves this file (FUSE; with --fuse it is probed)";
		errno = EPERM;
		if (system.f_type == FUSE)
			return -1;
	}
	snprintf(order->path_of_file, sizeof(order->path_of_file), "/proc/self/fd/%d", fd);
	return 0;
}

/* Pages that are not there (the file was cut), or not for us, are the kernel's to refuse. */
static void read_pages(const struct order *order)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t done = UINT64_MAX;
	int fd = open(order->path_of_file, O_RDONLY | O_CLOEXEC);

	for (size_t index = 0; fd >= 0 && index < order->count; index++) {
		uint64_t first = order->offsets[index] / page, last = (order->offsets[index] + INSTRUCTION - 1) / page;
		size_t bytes = (size_t)((last - first + 1) * page);
		void *at;

		if (first == done && last == done)
			continue;
		at = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, (off_t)(first * page));
		if (at == MAP_FAILED)
			continue;
		madvise(at, bytes, POPULATE_READ);
		munmap(at, bytes);
		done = last;
	}
	close(fd);
}

static int prepare(struct order *order)
{
	if (leave_all_behind(order))
		return -1;
	close_others(order);
	order->failed = "file";
	if (find_file(order))
		return -1;
	read_pages(order);
	return 0;
}

/* The child. */
static void __attribute__((noreturn, noinline)) become_keeper(struct order *order)
{
	static char *const no_environment[] = {NULL};

	order->failed = "keeper";
	if (!prepare(order)) {
		order->failed = order->perf ? "perf uprobe" : "uprobe_multi";
		if (!make_links(order)) {
			order->failed = "keeper";
			if (!chdir("/"))
				execve(order->words[0], (char *const *)order->words, no_environment);
		}
	}
	order->error = errno;
	_exit(1);
}

/* With every signal held back, which the keeper inherits: only kill -9 can end it before us. */
static pid_t start(struct order *order)
{
	sigset_t all, before;
	pid_t pid;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pid = vfork();
	if (pid == 0)
		become_keeper(order);
	if (pid < 0) {
		order->failed = "keeper";
		order->error = errno;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (pid > 0 && order->error)
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	return pid;
}

/* The keeper's number and the pipe it reads, or -1 with order->error. */
static pid_t start_with_pipe(struct order *order, int *hold)
{
	int ends[2];
	pid_t pid = -1;

	order->failed = "keeper";
	if (pipe2(ends, O_CLOEXEC)) {
		order->error = errno;
		return -1;
	}
	order->input = ends[0];
	order->nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (order->nowhere < 0)
		order->error = errno;
	else
		pid = start(order);
	close(ends[0]);
	if (order->nowhere >= 0)
		close(order->nowhere);
	if (order->error)
		close(ends[1]);
	*hold = ends[1];
	return pid;
}

static int take_words(struct order *order, PyObject *words)
{
	Py_ssize_t count = PyTuple_Size(words);

	if (count < 1 || count > WORDS) {
		PyErr_SetString(PyExc_ValueError, "the keeper's command must be a few words");
		return -1;
	}
	for (Py_ssize_t i = 0; i < count; i++) {
		order->words[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(words, i), NULL);
		if (!order->words[i])
			return -1;
	}
	return 0;
}

static PyObject *run(struct order *order)
{
	PyObject *value;
	pid_t pid;
	int hold;

	Py_BEGIN_ALLOW_THREADS
	pid = start_with_pipe(order, &hold);
	Py_END_ALLOW_THREADS
	if (!order->error)
		return Py_BuildValue("(ii)", (int)pid, hold);
	value = Py_BuildValue("(is)", order->error, order->failed);
	if (value)
		PyErr_SetObject(PyExc_OSError, value);
	Py_XDECREF(value);
	return NULL;
}

PyObject *keep_uprobes(PyObject *module, PyObject *args)
{
	struct order order;
	PyObject *words, *result = NULL;
	Py_buffer ends, offsets, cookies;

	(void)module;
	memset(&order, 0, sizeof(order));
	if (!PyArg_ParseTuple(args, "O!y*Isy*y*pp", &PyTuple_Type, &words, &ends, &order.type, &order.path, &offsets,
			      &cookies, &order.perf, &order.served))
		return NULL;
	order.ends = ends.buf;
	order.end_count = (size_t)ends.len / sizeof(struct end);
	order.offsets = offsets.buf;
	order.cookies = cookies.buf;
	order.count = (size_t)offsets.len / 8;
	if (ends.len % sizeof(struct end) || offsets.len % 8 || offsets.len != cookies.len)
		PyErr_SetString(PyExc_ValueError, "offsets and cookies must be as many 64-bit numbers, ends pairs of 32");
	else if (!take_words(&order, words))
		result = run(&order);
	PyBuffer_Release(&ends);
	PyBuffer_Release(&offsets);
	PyBuffer_Release(&cookies);
	return result;
}
