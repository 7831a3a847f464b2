/* A launch loop at a set rate, for measuring what tracing costs.
 *
 *     hot_loop [LAUNCHES] [LAUNCHES_PER_SECOND, 0 = as fast as possible]
 *
 * Prints `ready PID`, waits for a line, then one JSON line: launches, nanoseconds in
 * all, and nanoseconds spent inside calls (waiting for the next turn does not count);
 * `done`, and waits for another line. Set INGERO_STUB_CALL_NS for a realistic call.
 * gcc -O2 hot_loop.c -L STUB -l:libcudart.so.12 -Wl,-rpath,STUB
 */
#include "cuda_calls.h"

#include <stdlib.h>

void hot_kernel(void);
void hot_kernel(void)
{
}

int main(int argc, char **argv)
{
	unsigned long launches = argc > 1 ? strtoul(argv[1], NULL, 10) : 100000, i;
	unsigned long rate = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	uint64_t gap_ns = rate ? 1000000000ull / rate : 0, start_ns, inside_ns = 0, before_ns;
	dim3 one = {1, 1, 1};
	int failed = 0;

	failed += cudaFree(NULL) != 0;		/* the context, outside what is measured */
	announce_and_wait();
	start_ns = now_ns();
	for (i = 0; i < launches; i++) {
		while ((before_ns = now_ns()) < start_ns + i * gap_ns)
			;
		failed += cudaLaunchKernel((void *)hot_kernel, one, one, NULL, 0, NULL) != 0;
		inside_ns += now_ns() - before_ns;
	}
	before_ns = now_ns();
	failed += cudaDeviceSynchronize() != 0;
	printf("{\"launches\": %lu, \"took_ns\": %llu, \"inside_ns\": %llu, \"failed\": %d}\n", launches,
	       (unsigned long long)(before_ns - start_ns), (unsigned long long)inside_ns, failed);
	finish_and_wait();
	return failed != 0;
}
