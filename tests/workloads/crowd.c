/* Many processes with many threads, a few of which feed the GPU: what a full machine looks like to the agent.
 *
 *     crowd PROCESSES THREADS FEEDERS SECONDS
 *
 * Each of PROCESSES has THREADS, of which FEEDERS make rounds of launches, a copy and a wait every 50 ms and the
 * others wake up once a second. Prints `ready PID`, waits for a line, runs for SECONDS, prints a JSON line
 * with the launches made, and waits for another line. The first process is the parent of all.
 */
#define _GNU_SOURCE
#include "cuda_calls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define LAUNCHES 10

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream);
int cudaEventRecord(void *event, void *stream);
int cudaMemsetAsync(void *pointer, int value, size_t bytes, void *stream);
int cudaGetDevice(int *device);

struct shared {
	atomic_ulong launches;
	atomic_int go, stop;
};

static struct shared *shared;

void crowd_kernel(void);
void crowd_kernel(void)
{
}

static void *feed(void *none)
{
	dim3 one = {1, 1, 1};
	char host[64] = {0};
	void *memory = NULL;
	int device;

	while (!shared->go)
		usleep(10000);
	cudaMalloc(&memory, 4096);
	while (!shared->stop) {
		for (int i = 0; i < LAUNCHES; i++)
			cudaLaunchKernel((void *)crowd_kernel, one, one, NULL, 0, NULL);
		shared->launches += LAUNCHES;
		cudaMemcpyAsync(memory, host, sizeof(host), 1, NULL);
		cudaMemsetAsync(memory, 0, 64, NULL);
		cudaGetDevice(&device);
		cudaStreamQuery(NULL);
		cudaStreamSynchronize(NULL);
		usleep(50000);
	}
	cudaFree(memory);
	return none;
}

static void *idle(void *none)
{
	while (!shared->stop)
		usleep(1000000);
	return none;
}

static int process(unsigned int threads, unsigned int feeders)
{
	pthread_t *made = calloc(threads, sizeof(*made));
	pthread_attr_t small;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	for (unsigned int i = 0; i < threads; i++)
		if (pthread_create(&made[i], &small, i < feeders ? feed : idle, NULL))
			return 1;
	for (unsigned int i = 0; i < threads; i++)
		pthread_join(made[i], NULL);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned int processes = argc > 1 ? atoi(argv[1]) : 2, threads = argc > 2 ? atoi(argv[2]) : 4;
	unsigned int feeders = argc > 3 ? atoi(argv[3]) : 1, seconds = argc > 4 ? atoi(argv[4]) : 5;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	for (unsigned int i = 0; i < processes; i++)
		if (!fork())
			_exit(process(threads, feeders));
	cudaStreamQuery(NULL);
	announce_and_wait();
	shared->go = 1;
	sleep(seconds);
	shared->stop = 1;
	for (unsigned int i = 0; i < processes; i++)
		wait(NULL);
	printf("{\"launches\": %lu}\n", shared->launches);
	finish_and_wait();
	return 0;
}
