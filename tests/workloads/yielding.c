/* Threads that lose their core as often as they can, around and inside of traced calls.
 *
 *     yielding [CALLS] [THREADS] [BRIEF]
 *
 * THREADS make CALLS rounds of launch, query and synchronise each, all pinned to the first core they may use,
 * and yield it after every call; meanwhile BRIEF threads one after the other make a call and end. Prints `ready PID`,
 * waits for a line, then one JSON line with the counts by function, `done`, and waits for another line.
 * gcc -O2 yielding.c -pthread -L STUB -l:libcudart.so.12 -Wl,-rpath,STUB
 */
#define _GNU_SOURCE
#include "cuda_calls.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

static unsigned long calls = 1000;

void yielding_kernel(void);
void yielding_kernel(void)
{
}

static void pin_to_first(void)
{
	cpu_set_t allowed, first;
	int cpu = 0;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return;
	while (cpu < CPU_SETSIZE && !CPU_ISSET(cpu, &allowed))
		cpu++;
	CPU_ZERO(&first);
	CPU_SET(cpu, &first);
	sched_setaffinity(0, sizeof(first), &first);
}

static void *make_calls(void *none)
{
	dim3 one = {1, 1, 1};
	unsigned long i;

	pin_to_first();
	for (i = 0; i < calls; i++) {
		cudaLaunchKernel((void *)yielding_kernel, one, one, NULL, 0, NULL);
		sched_yield();
		cudaStreamQuery(NULL);
		sched_yield();
		cudaStreamSynchronize(NULL);
	}
	return none;
}

static void *one_call(void *none)
{
	cudaStreamQuery(NULL);
	return none;
}

int main(int argc, char **argv)
{
	unsigned int threads = argc > 2 ? strtoul(argv[2], NULL, 10) : 8, i;
	unsigned int brief = argc > 3 ? strtoul(argv[3], NULL, 10) : 200;
	pthread_t *workers = calloc(threads + 1, sizeof(*workers)), guest;

	if (argc > 1)
		calls = strtoul(argv[1], NULL, 10);
	if (!workers)
		return 1;
	announce_and_wait();
	for (i = 0; i < threads; i++)
		if (pthread_create(&workers[i], NULL, make_calls, NULL))
			return 1;
	for (i = 0; i < brief; i++)
		if (pthread_create(&guest, NULL, one_call, NULL) || pthread_join(guest, NULL))
			return 1;
	for (i = 0; i < threads; i++)
		pthread_join(workers[i], NULL);
	printf("{\"cudaLaunchKernel\": %lu, \"cudaStreamQuery\": %lu, \"cudaStreamSynchronize\": %lu}\n",
	       calls * threads, calls * threads + brief, calls * threads);
	finish_and_wait();
	return 0;
}
