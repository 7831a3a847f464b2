/* Steps of a launch-bound job: launches without end, an event, one wait; now and then an allocation.
 *
 *     hot_steps [SECONDS] [LAUNCHES_PER_STEP] [MICROSECONDS_BETWEEN_STEPS]
 *
 * Prints `ready PID`, waits for a line, works, then prints one JSON line: the calls it made by
 * function; `done`, and waits for another line. Set INGERO_STUB_CALL_NS for a realistic call.
 */
#include "cuda_calls.h"

#include <stdlib.h>

void hot_kernel(void);
void hot_kernel(void)
{
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 3;
	unsigned long per_step = argc > 2 ? strtoul(argv[2], NULL, 10) : 400, i;
	unsigned long pause_us = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
	unsigned long launches = 0, syncs = 0, allocations = 0, failed = 0;
	dim3 one = {1, 1, 1};
	uint64_t until_ns;
	void *memory;

	failed += cudaFree(NULL) != 0;
	announce_and_wait();
	until_ns = now_ns() + (uint64_t)(seconds * 1e9);
	while (now_ns() < until_ns) {
		for (i = 0; i < per_step; i++)
			failed += cudaLaunchKernel((void *)hot_kernel, one, one, NULL, 0, NULL) != 0;
		launches += per_step;
		failed += cudaStreamSynchronize(NULL) != 0;
		syncs++;
		if (pause_us)
			usleep((useconds_t)pause_us);
		if (syncs % 50)
			continue;
		failed += cudaMalloc(&memory, 4096) != 0;
		failed += cudaFree(memory) != 0;
		allocations++;
	}
	printf("{\"launches\": %lu, \"syncs\": %lu, \"allocations\": %lu, \"failed\": %lu}\n", launches, syncs,
	       allocations, failed);
	finish_and_wait();
	return failed != 0;
}
