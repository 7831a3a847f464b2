/* A job that asks the GPU for every single result, or allocates for every single one.
 *
 *     hot_waits items|blocked|allocations [SECONDS] [MICROSECONDS_BETWEEN_CALLS]
 *
 * `blocked` asks for every single result, too, and sleeps while it waits: others see no GPU in that.
 *
 * Prints `ready PID`, waits for a line, works, then prints one JSON line: the calls it made by
 * function; `done`, and waits for another line. Set INGERO_STUB_CALL_NS for a realistic call.
 */
#include "cuda_calls.h"

#include <stdlib.h>
#include <string.h>

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream);

int cudaSetDeviceFlags(unsigned int flags);

#define TO_HOST 2
#define BLOCKING_SYNC 4

void hot_kernel(void);
void hot_kernel(void)
{
}

static void spin(unsigned long us)
{
	uint64_t until_ns = now_ns() + us * 1000;

	while (now_ns() < until_ns)
		;
}

int main(int argc, char **argv)
{
	int blocked = argc > 1 && !strcmp(argv[1], "blocked");
	int items = blocked || (argc > 1 && !strcmp(argv[1], "items"));
	double seconds = argc > 2 ? atof(argv[2]) : 3;
	unsigned long pause_us = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
	unsigned long launches = 0, copies = 0, syncs = 0, allocations = 0, failed = 0;
	dim3 one = {1, 1, 1};
	void *memory = NULL, *more;
	uint64_t until_ns;
	int item;

	if (blocked)
		failed += cudaSetDeviceFlags(BLOCKING_SYNC) != 0;
	failed += cudaMalloc(&memory, 4096) != 0;
	announce_and_wait();
	until_ns = now_ns() + (uint64_t)(seconds * 1e9);
	while (now_ns() < until_ns) {
		failed += cudaLaunchKernel((void *)hot_kernel, one, one, NULL, 0, NULL) != 0;
		launches++;
		if (items) {
			failed += cudaMemcpyAsync(&item, memory, sizeof(item), TO_HOST, NULL) != 0;
			failed += cudaStreamSynchronize(NULL) != 0;
			copies++;
			syncs++;
		} else {
			failed += cudaMalloc(&more, 4096) != 0;
			failed += cudaFree(more) != 0;
			allocations++;
		}
		spin(pause_us);
	}
	printf("{\"launches\": %lu, \"copies\": %lu, \"syncs\": %lu, \"allocations\": %lu, \"failed\": %lu}\n", launches,
	       copies, syncs, allocations, failed);
	finish_and_wait();
	return failed != 0;
}
