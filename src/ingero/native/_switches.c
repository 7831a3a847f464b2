/* SPDX-License-Identifier: Apache-2.0
 *
 * Two threads on one core that pass a byte to and fro: what a context switch takes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#include "_shim.h"

struct game {
	int there[2], back[2];
	long trips;
};

/* A signal may come in between. */
static int pass(int from, int to)
{
	char byte = 0;
	ssize_t done;

	do
		done = read(from, &byte, 1);
	while (done < 0 && errno == EINTR);
	while (done == 1 && (done = write(to, &byte, 1)) < 0 && errno == EINTR)
		done = 1;
	return done == 1;
}

static void *answer(void *argument)
{
	struct game *game = argument;

	for (long trip = 0; trip < game->trips; trip++)
		if (!pass(game->there[0], game->back[1]))
			break;
	return NULL;
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The other thread inherits the core it may use. Two switches for each trip. */
static int64_t play(struct game *game)
{
	pthread_t other;
	int64_t from;

	if (pthread_create(&other, NULL, answer, game))
		return -1;
	from = now_ns();
	if (write(game->there[1], "x", 1) == 1)
		for (long trip = 1; trip < game->trips; trip++)
			if (!pass(game->back[0], game->there[1]))
				break;
	close(game->there[1]);	/* whatever happened, the other one ends too */
	game->there[1] = -1;
	pthread_join(other, NULL);
	return now_ns() - from;
}

static int64_t on_one_core(struct game *game)
{
	cpu_set_t before, one;
	int core = sched_getcpu();
	int64_t took;

	if (core < 0 || sched_getaffinity(0, sizeof(before), &before))
		return -1;
	CPU_ZERO(&one);
	CPU_SET(core, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		return -1;
	took = play(game);
	sched_setaffinity(0, sizeof(before), &before);
	return took;
}

/* time_switches(trips) -> nanoseconds, two switches a trip */
PyObject *time_switches(PyObject *module, PyObject *args)
{
	struct game game = {.trips = 0};
	int64_t took = -1;

	(void)module;
	if (!PyArg_ParseTuple(args, "l", &game.trips))
		return NULL;
	if (pipe(game.there))
		return PyErr_SetFromErrno(PyExc_OSError);
	if (pipe(game.back)) {
		close(game.there[0]);
		close(game.there[1]);
		return PyErr_SetFromErrno(PyExc_OSError);
	}
	Py_BEGIN_ALLOW_THREADS
	took = on_one_core(&game);
	Py_END_ALLOW_THREADS
	for (int end = 0; end < 2; end++) {
		if (game.there[end] >= 0)
			close(game.there[end]);
		close(game.back[end]);
	}
	if (took < 0) {
		PyErr_SetString(PyExc_OSError, "two threads cannot be put on one core");
		return NULL;
	}
	return PyLong_FromLongLong(took);
}
