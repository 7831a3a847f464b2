/* A training loop as it looks from outside, without an interpreter: fits into a container that has nothing else.
 *
 *     steps HOST_US KERNELS
 *
 * Per step so much CPU time, so many kernels, a sum over the one rank there is, a wait that blocks. Prints
 * `ready PID`, waits for a line, works until the next one, or until it is killed. A third argument has it then take
 * memory without end instead of ending.
 *
 *     steps burn
 *
 * Prints `ready PID` and takes all the CPU time it gets.
 */
#include "cuda_calls.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define SCHEDULE_BLOCK 4

#define NCCL_FLOAT32 7
#define NCCL_SUM 0
#define FLOATS 1024

typedef struct {
	char internal[128];
} ncclUniqueId;

int cudaSetDeviceFlags(unsigned int flags);
int ncclGetUniqueId(ncclUniqueId *id);
int ncclCommInitRank(void **communicator, int ranks, ncclUniqueId id, int rank);
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, void *communicator, void *stream);

static void *communicator, *memory;

void step_kernel(void);
void step_kernel(void)
{
}

static void burn(uint64_t ns)
{
	struct timespec now;
	uint64_t until = 0, used;

	do {
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
		used = now.tv_sec * 1000000000ull + now.tv_nsec;
		if (!until)
			until = used + ns;
	} while (used < until);
}

static void step(uint64_t host_ns, int kernels)
{
	dim3 blocks = {50, 1, 1}, one = {1, 1, 1};

	burn(host_ns);
	for (int i = 0; i < kernels; i++)
		cudaLaunchKernel((void *)step_kernel, blocks, one, NULL, 0, NULL);
	ncclAllReduce(memory, memory, FLOATS, NCCL_FLOAT32, NCCL_SUM, communicator, NULL);
	cudaStreamSynchronize(NULL);
}

static int prepare(void)
{
	ncclUniqueId id;

	return cudaSetDeviceFlags(SCHEDULE_BLOCK) || cudaMalloc(&memory, FLOATS * sizeof(float)) ||
	       ncclGetUniqueId(&id) || ncclCommInitRank(&communicator, 1, id, 0);
}

int main(int argc, char **argv)
{
	struct pollfd told = {.fd = 0, .events = POLLIN};

	if (argc > 1 && !strcmp(argv[1], "burn")) {
		printf("ready %d\n", (int)getpid());
		fflush(stdout);
		for (;;)
			burn(1000000000);
	}
	if (argc < 3 || prepare())
		return 2;
	announce_and_wait();
	while (!poll(&told, 1, 0))
		step(strtoul(argv[1], NULL, 10) * 1000, atoi(argv[2]));
	while (argc > 3) {
		char *more = malloc(1 << 20);

		if (more)
			memset(more, 1, 1 << 20);
	}
	return 0;
}
