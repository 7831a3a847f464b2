/* A short training as PyTorch's is seen from the driver: half of a step's launches by one thread, half by
 * another that it waits for; a memset and some copies within the GPU in every step, a value read back in
 * every tenth. It prepares before its first step, and computes for a while after its last.
 *
 *     short_training [STEPS] [LAUNCHES_PER_STEP] [MICROSECONDS_BETWEEN_LAUNCHES] [SECONDS_BEFORE] [SECONDS_AFTER]
 *
 * Waits for a line before it begins if STEPS is followed by `w`. Prints one JSON line: the calls it made.
 * Set INGERO_STUB_CALL_NS for a realistic call.
 */
#include "cuda_calls.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream);
int cudaMemsetAsync(void *pointer, int value, size_t bytes, void *stream);

#define TO_HOST 2
#define WITHIN 3
#define COPIES 7
#define READ_BACK 10

static pthread_barrier_t begun, ended;
static unsigned long half, between_us, failed;
static int over;

void hot_kernel(void);
void hot_kernel(void)
{
}

static void compute(double us)
{
	uint64_t until_ns = now_ns() + (uint64_t)(us * 1000);

	while (now_ns() < until_ns)
		;
}

static void launch(unsigned long count)
{
	dim3 one = {1, 1, 1};
	unsigned long i;

	for (i = 0; i < count; i++) {
		failed += cudaLaunchKernel((void *)hot_kernel, one, one, NULL, 0, NULL) != 0;
		compute(between_us);
	}
}

static void *backward(void *unused)
{
	for (;;) {
		pthread_barrier_wait(&begun);
		if (over)
			return NULL;
		launch(half);
		pthread_barrier_wait(&ended);
	}
}

int main(int argc, char **argv)
{
	unsigned long steps = argc > 1 ? strtoul(argv[1], NULL, 10) : 200, step, i;
	unsigned long per_step = argc > 2 ? strtoul(argv[2], NULL, 10) : 126;
	double before = argc > 4 ? atof(argv[4]) : 1, after = argc > 5 ? atof(argv[5]) : 2;
	unsigned long copies = 0, syncs = 0, memsets = 0;
	pthread_t other;
	void *memory, *more;
	int item;

	between_us = argc > 3 ? strtoul(argv[3], NULL, 10) : 100;
	half = per_step / 2;
	failed += cudaMalloc(&memory, 1 << 20) != 0;
	failed += cudaMalloc(&more, 1 << 20) != 0;
	if (argc > 1 && strchr(argv[1], 'w'))
		announce_and_wait();
	compute(before * 1e6);
	pthread_barrier_init(&begun, NULL, 2);
	pthread_barrier_init(&ended, NULL, 2);
	if (pthread_create(&other, NULL, backward, NULL))
		return 1;
	for (step = 0; step < steps; step++) {
		failed += cudaMemsetAsync(memory, 0, 4096, NULL) != 0;
		memsets++;
		launch(per_step - half);
		pthread_barrier_wait(&begun);
		pthread_barrier_wait(&ended);
		for (i = 0; i < COPIES; i++, copies++)
			failed += cudaMemcpyAsync(memory, more, 4096, WITHIN, NULL) != 0;
		if (step % READ_BACK)
			continue;
		failed += cudaMemcpyAsync(&item, memory, sizeof(item), TO_HOST, NULL) != 0;
		failed += cudaStreamSynchronize(NULL) != 0;
		copies++;
		syncs++;
	}
	over = 1;
	pthread_barrier_wait(&begun);
	pthread_join(other, NULL);
	compute(after * 1e6);
	printf("{\"launches\": %lu, \"copies\": %lu, \"syncs\": %lu, \"memsets\": %lu, \"failed\": %lu}\n",
	       steps * per_step, copies, syncs, memsets, failed);
	fflush(stdout);
	return failed != 0;
}
