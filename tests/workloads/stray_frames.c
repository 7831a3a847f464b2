/* Launches from code without frame pointers: where the chain of frames should go on, the
 * register holds something else each time.
 *
 *     stray_frames [LAUNCHES]
 *
 * gcc -O2 -fomit-frame-pointer -mno-red-zone stray_frames.c -L STUB -l:libcudart.so.12
 */
#include "cuda_calls.h"

#include <stdlib.h>

void stray_kernel(void);
void stray_kernel(void)
{
}

int launch_one(void);
__attribute__((noinline)) int launch_one(void)
{
	dim3 one = {1, 1, 1};

	return cudaLaunchKernel((void *)stray_kernel, one, one, NULL, 0, NULL);
}

int main(int argc, char **argv)
{
	unsigned long launches = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000, i;
	static uint64_t words[2];

	announce_and_wait();
	for (i = 0; i < launches; i++) {
		words[1] = 0x10000000 + 64 * i;	/* no code is there */
		__asm__ volatile("push %%rbp\n\tpush %%rbp\n\tmov %0, %%rbp\n\tcall launch_one\n\tpop %%rbp\n\tpop %%rbp"
				 : : "b"(words)
				 : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc", "memory");
	}
	cudaDeviceSynchronize();
	printf("{\"launches\": %lu}\n", launches);
	finish_and_wait();
	return 0;
}
