/* Two threads on one core pass a byte to and fro: every pass is a context switch.
 *
 * Says `ready PID`; answers each line holding a number of round trips with
 * {"switches": ..., "took_ns": ...}.
 */
#define _GNU_SOURCE
#include "cuda_calls.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

static int there[2], back[2];

static void *echo(void *unused)
{
	char byte;

	while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
		;
	return unused;
}

static void pin_to_last_core(void)
{
	cpu_set_t cores;
	int core = CPU_SETSIZE - 1;

	sched_getaffinity(0, sizeof(cores), &cores);
	while (!CPU_ISSET(core, &cores))
		core--;
	CPU_ZERO(&cores);
	CPU_SET(core, &cores);
	sched_setaffinity(0, sizeof(cores), &cores);
}

int main(void)
{
	char line[64], byte = 0;
	pthread_t other;
	uint64_t start_ns;
	long trips, i;

	pin_to_last_core();
	if (pipe(there) || pipe(back) || pthread_create(&other, NULL, echo, NULL))
		return 1;
	printf("ready %d\n", (int)getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		trips = strtol(line, NULL, 10);
		start_ns = now_ns();
		for (i = 0; i < trips; i++)
			if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
				return 1;
		printf("{\"switches\": %ld, \"took_ns\": %llu}\n", 2 * trips,
		       (unsigned long long)(now_ns() - start_ns));
		fflush(stdout);
	}
	return 0;
}
