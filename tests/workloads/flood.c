/* Calls as fast as possible, and says exactly how many.
 *
 *     flood [CALLS] [THREADS]
 *
 * Each thread makes CALLS rounds of launch, query and memset, and a synchronising call
 * every 256 rounds. Prints `ready PID`, waits for a line, then one JSON line with the
 * counts by function and the nanoseconds it took, `done`, and waits for another line.
 * gcc -O2 flood.c -pthread -L STUB -l:libcudart.so.12 -Wl,-rpath,STUB
 */
#include "cuda_calls.h"

#include <pthread.h>
#include <stdlib.h>

struct counts {
	unsigned long calls, launches, queries, memsets, syncs, failed;
};

void flood_kernel(void);
void flood_kernel(void)
{
}

static void *flood(void *what)
{
	struct counts *counts = what;
	dim3 one = {1, 1, 1};
	void *memory = NULL;
	unsigned long i;

	counts->failed += cudaMalloc(&memory, 4096) != 0;
	for (i = 0; i < counts->calls; i++) {
		counts->failed += cudaLaunchKernel((void *)flood_kernel, one, one, NULL, 0, NULL) != 0;
		counts->launches++;
		cudaStreamQuery(NULL);
		counts->queries++;
		counts->failed += cudaMemset(memory, 0, 64) != 0;
		counts->memsets++;
		if (i % 256 == 255) {
			counts->failed += cudaStreamSynchronize(NULL) != 0;
			counts->syncs++;
		}
	}
	counts->failed += cudaFree(memory) != 0;
	return NULL;
}

static void print(const struct counts *each, unsigned int threads, uint64_t took_ns)
{
	struct counts all = {0};
	unsigned int i;

	for (i = 0; i < threads; i++) {
		all.launches += each[i].launches;
		all.queries += each[i].queries;
		all.memsets += each[i].memsets;
		all.syncs += each[i].syncs;
		all.failed += each[i].failed;
	}
	printf("{\"cudaLaunchKernel\": %lu, \"cudaStreamQuery\": %lu, \"cudaMemset\": %lu, "
	       "\"cudaStreamSynchronize\": %lu, \"cudaMalloc\": %u, \"cudaFree\": %u, \"failed\": %lu, "
	       "\"took_ns\": %llu}\n",
	       all.launches, all.queries, all.memsets, all.syncs, threads, threads, all.failed,
	       (unsigned long long)took_ns);
}

int main(int argc, char **argv)
{
	unsigned long calls = argc > 1 ? strtoul(argv[1], NULL, 10) : 100000;
	unsigned int threads = argc > 2 ? strtoul(argv[2], NULL, 10) : 1, i;
	struct counts *counts = calloc(threads, sizeof(*counts));
	pthread_t *workers = calloc(threads, sizeof(*workers));
	uint64_t before_ns;

	if (!threads || !counts || !workers)
		return 1;
	announce_and_wait();
	before_ns = now_ns();
	for (i = 0; i < threads; i++) {
		counts[i].calls = calls;
		if (pthread_create(&workers[i], NULL, flood, &counts[i]))
			return 1;
	}
	for (i = 0; i < threads; i++)
		pthread_join(workers[i], NULL);
	print(counts, threads, now_ns() - before_ns);
	finish_and_wait();
	return 0;
}
