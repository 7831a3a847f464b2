/* A program that carries its own CUDA runtime: 23 calls, no libcudart file mapped.
 *
 * Prints `ready PID`, waits for a line, makes 5 allocations, 10 launches, a wait, 5 frees,
 * an allocation that fails and another wait, prints them as JSON, `done`, and waits.
 * gcc static_runtime.c STUB/libcudart_static.a -pthread -ldl -L STUB -l:libcuda.so.1 -Wl,-rpath,STUB
 */
#include "cuda_calls.h"

void static_kernel(void);
void static_kernel(void)
{
}

int main(void)
{
	dim3 grid = {2, 1, 1}, block = {64, 1, 1};
	void *memory[5], *none = NULL;
	int i, failed = 0;

	announce_and_wait();
	for (i = 0; i < 5; i++)
		failed += cudaMalloc(&memory[i], 1000 * (i + 1)) != 0;
	for (i = 0; i < 10; i++)
		failed += cudaLaunchKernel((void *)static_kernel, grid, block, NULL, 0, NULL) != 0;
	failed += cudaStreamSynchronize(NULL) != 0;
	for (i = 0; i < 5; i++)
		failed += cudaFree(memory[i]) != 0;
	failed += cudaMalloc(&none, (size_t)1 << 50) != 0;
	failed += cudaDeviceSynchronize() != 0;
	printf("{\"cudaMalloc\": 6, \"cudaLaunchKernel\": 10, \"cudaStreamSynchronize\": 1, \"cudaFree\": 5, "
	       "\"cudaDeviceSynchronize\": 1, \"failed\": %d}\n", failed);
	finish_and_wait();
	return 0;
}
