/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine's memory, its lock, who uses it, and how a caller waits for it.
 */
#define _GNU_SOURCE
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MAGIC (0x696e6765726f0100ull + sizeof(struct machine))
#define REAP_EVERY_NS 1000000000ull
#define LONGEST_WAIT_NS 100000000ull

static void initialise(struct machine *machine)
{
	pthread_mutexattr_t shared;

	pthread_mutexattr_init(&shared);
	pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&machine->lock, &shared);
	machine->memory_bytes = stub_settings.memory_bytes;
	machine->devices = stub_settings.devices < DEVICES ? stub_settings.devices : DEVICES;
	machine->clock_ns = stub_now_ns();
	machine->next_ns = NEVER;
	if (getrandom(&machine->nonce, sizeof(machine->nonce), 0) < 0)
		machine->nonce = machine->clock_ns;
	machine->magic = MAGIC;
}

/* A name without a slash is one in /dev/shm. */
static int open_device(void)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s%s", strchr(stub_settings.device, '/') ? "" : "/dev/shm/",
		 stub_settings.device);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		fprintf(stderr, "stub device: cannot open %s: %s\n", path, strerror(errno));
	return fd;
}

static struct machine *map(int fd)
{
	int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
	void *memory = mmap(NULL, sizeof(struct machine), PROT_READ | PROT_WRITE, flags, fd, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static struct machine *map_shared(int fd)
{
	struct machine *machine = NULL;
	struct stat file;

	if (!flock(fd, LOCK_EX) && !fstat(fd, &file) &&
	    (file.st_size || !ftruncate(fd, sizeof(struct machine))))
		machine = !file.st_size || file.st_size == sizeof(struct machine) ? map(fd) : NULL;
	if (machine && !machine->magic)
		initialise(machine);
	if (machine && machine->clock_ns > stub_now_ns())	/* left over from before a reboot */
		machine->clock_ns = stub_now_ns();
	if (!machine || machine->magic != MAGIC) {
		fprintf(stderr, "stub device: %s is not a device of this version\n", stub_settings.device);
		machine = NULL;
	}
	flock(fd, LOCK_UN);
	return machine;
}

struct machine *machine_open(void)
{
	struct machine *machine;
	int fd;

	if (!stub_settings.device) {
		machine = map(-1);
		if (machine)
			initialise(machine);
		return machine;
	}
	fd = open_device();
	if (fd < 0)
		return NULL;
	machine = map_shared(fd);
	close(fd);
	return machine;
}

void machine_lock(struct machine *machine)
{
	int tries, rc = EBUSY;

	/* the lock is held for well below a microsecond: do not go to sleep for it */
	for (tries = 0; tries < 1000 && rc == EBUSY; tries++)
		rc = pthread_mutex_trylock(&machine->lock);
	if (rc == EBUSY)
		rc = pthread_mutex_lock(&machine->lock);
	if (rc == EOWNERDEAD)
		pthread_mutex_consistent(&machine->lock);
}

void machine_unlock(struct machine *machine)
{
	pthread_mutex_unlock(&machine->lock);
}

void machine_changed(struct machine *machine)
{
	atomic_fetch_add(&machine->version, 1);
	if (machine->sleepers)
		syscall(SYS_futex, &machine->version, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void forget(struct process *process)
{
	unsigned int d;

	for (d = 0; d < DEVICES; d++)
		memset(&process->queue[d], 0, offsetof(struct queue, item));
	memset(process->used_bytes, 0, sizeof(process->used_bytes));
	process->pid = 0;
}

void machine_reap(struct machine *machine)
{
	uint32_t p;

	machine->reaped_ns = stub_now_ns();
	for (p = 0; p < machine->processes; p++) {
		pid_t pid = machine->process[p].pid;

		if (pid && kill(pid, 0) && errno == ESRCH)
			forget(&machine->process[p]);
	}
}

struct process *machine_join(struct machine *machine)
{
	struct process *process = NULL;
	uint32_t p;

	machine_lock(machine);
	machine_reap(machine);
	for (p = 0; p < PROCESSES && !process; p++)
		if (!machine->process[p].pid)
			process = &machine->process[p];
	if (process) {
		forget(process);
		process->pid = getpid();
		if (machine->processes < p)
			machine->processes = p;
	}
	machine_unlock(machine);
	return process;
}

void machine_leave(struct machine *machine, struct process *process)
{
	machine_lock(machine);
	machine_advance(machine, stub_now_ns());
	forget(process);
	machine_changed(machine);
	machine_unlock(machine);
}

uint64_t machine_used(const struct machine *machine, unsigned int device)
{
	uint64_t used = 0;
	uint32_t p;

	for (p = 0; p < machine->processes; p++)
		used += machine->process[p].used_bytes[device];
	return used;
}

/* Takes device memory, or gives it back; false when there is not enough. */
bool machine_charge(struct machine *machine, struct process *process, unsigned int device, int64_t bytes)
{
	bool fits = true;

	machine_lock(machine);
	if (bytes > 0 && machine_used(machine, device) + bytes > machine->memory_bytes) {
		machine_reap(machine);
		fits = machine_used(machine, device) + bytes <= machine->memory_bytes;
	}
	if (fits)
		process->used_bytes[device] += bytes;
	machine_unlock(machine);
	return fits;
}

static void sleep_until(uint64_t ns)
{
	struct timespec until = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static void sleep_for_change(struct machine *machine, uint32_t version, uint64_t ns)
{
	struct timespec until = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

	atomic_fetch_add(&machine->sleepers, 1);
	syscall(SYS_futex, &machine->version, FUTEX_WAIT_BITSET, version, &until, NULL,
		FUTEX_BITSET_MATCH_ANY);
	atomic_fetch_sub(&machine->sleepers, 1);
}

static void pass_time(struct machine *machine, uint32_t version, uint64_t until_ns, uint64_t at_least_ns,
		      enum patience patience)
{
	uint64_t now_ns = stub_now_ns();

	if (until_ns > now_ns + LONGEST_WAIT_NS)
		until_ns = now_ns + LONGEST_WAIT_NS;
	if (patience == BLOCK && at_least_ns) {
		sleep_until(now_ns + at_least_ns);
	} else if (patience == BLOCK) {
		sleep_for_change(machine, version, until_ns);
	} else {
		while (stub_now_ns() < until_ns && machine->version == version)
			if (patience == YIELD)
				sched_yield();
	}
}

void machine_wait(struct machine *machine, machine_done done, void *what, enum patience patience)
{
	uint64_t now_ns, next_ns, at_least_ns;
	uint32_t version;
	bool over;

	for (;;) {
		machine_lock(machine);
		now_ns = stub_now_ns();
		if (now_ns > machine->reaped_ns + REAP_EVERY_NS)
			machine_reap(machine);
		machine_advance(machine, now_ns);
		at_least_ns = 0;
		over = done(what, &at_least_ns);
		next_ns = machine->next_ns;
		version = machine->version;
		machine_unlock(machine);
		if (over)
			return;
		pass_time(machine, version, next_ns, at_least_ns, patience);
	}
}
