/* Launches kernels of C++ names, as often as it is told to.
 *
 *     kernels [warm|cold] [LAUNCHES]
 *
 * warm: every kernel is launched once before `ready PID`, so that whoever comes later has
 * missed how they got their handles. For each line read: LAUNCHES of each kernel, with
 * cudaLaunchKernel and cudaLaunchKernelExC in turn, one JSON line and `done`; at the end of
 * input it exits.
 * gcc kernels.cc -L STUB -l:libcudart.so.12 -Wl,-rpath,STUB
 */
extern "C" {
#include "cuda_calls.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
	dim3 grid, block;
	size_t shared_bytes;
	void *stream, *attributes;
	unsigned int attribute_count;
} cudaLaunchConfig_t;

int cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **args);
void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function, const char *name,
			    int thread_limit, void *tid, void *bid, void *block, void *grid, int *warp_size);
}

namespace model {
template <typename Value, int N> __attribute__((noinline)) void scale(Value *values, Value factor)
{
	for (int i = 0; i < N; i++)
		values[i] *= factor;
}

__attribute__((noinline)) void add(const float *a, const float *b, float *sum)
{
	*sum = *a + *b;
}

__attribute__((noinline)) void add(const double *a, const double *b, double *sum)
{
	*sum = *a + *b;
}
}

static const void *const kernels[] = {
	(const void *)static_cast<void (*)(float *, float)>(model::scale<float, 4>),
	(const void *)static_cast<void (*)(const float *, const float *, float *)>(model::add),
	(const void *)static_cast<void (*)(const double *, const double *, double *)>(model::add),
};
static const char *const names[] = {
	"_ZN5model5scaleIfLi4EEEvPT_S1_", "_ZN5model3addEPKfS1_Pf", "_ZN5model3addEPKdS1_Pd",
};

static int launch(unsigned int which, unsigned int turn)
{
	cudaLaunchConfig_t config = {};

	config.grid = config.block = {1, 1, 1};
	if (turn % 2)
		return cudaLaunchKernelExC(&config, kernels[which], NULL);
	return cudaLaunchKernel(kernels[which], config.grid, config.block, NULL, 0, NULL);
}

int main(int argc, char **argv)
{
	unsigned int launches = argc > 2 ? atoi(argv[2]) : 10, failed = 0, which, i;
	char line[64];

	for (which = 0; which < 3; which++)
		__cudaRegisterFunction(NULL, (const char *)kernels[which], NULL, names[which], 0, NULL, NULL,
				       NULL, NULL, NULL);
	failed += cudaFree(NULL) != 0;
	for (which = 0; which < 3 && argc > 1 && !strcmp(argv[1], "warm"); which++)
		failed += launch(which, 0) != 0;
	printf("ready %d\n", (int)getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (i = 0; i < launches; i++)
			for (which = 0; which < 3; which++)
				failed += launch(which, i) != 0;
		failed += cudaDeviceSynchronize() != 0;
		printf("{\"launches\": %u, \"failed\": %u}\ndone\n", 3 * launches, failed);
		fflush(stdout);
	}
	return 0;
}
