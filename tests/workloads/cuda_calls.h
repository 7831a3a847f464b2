/* The few public runtime functions these programs call, and the waiting they share. */
#ifndef WORKLOAD_CUDA_CALLS_H
#define WORKLOAD_CUDA_CALLS_H

#include <stddef.h>
#include <stdio.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

typedef struct {
	unsigned int x, y, z;
} dim3;

int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);
int cudaMemset(void *pointer, int value, size_t bytes);
int cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes, void *stream);
int cudaStreamSynchronize(void *stream);
int cudaStreamQuery(void *stream);
int cudaDeviceSynchronize(void);

/* A tracer reads the first line, attaches, and writes one. */
static inline void announce_and_wait(void)
{
	char line[64];

	printf("ready %d\n", (int)getpid());
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return;
}

static inline void finish_and_wait(void)
{
	char line[64];

	printf("done\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return;
}

static inline uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

#endif
