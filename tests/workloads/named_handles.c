/* A driver that does nothing, and a program that names handles with it as it is told.
 *
 * Compiled twice. With -DDRIVER: libcuda.so.1, whose handles are the numbers the caller
 * passes as module, so that one can be given again and names can be anything.
 * Without: a program that prints `ready PID`, and for each line read
 *     name HANDLE TEXT     TEXT may be @unmapped, @endless (no end within its page),
 *                          @long:N (N letters), @nowhere (the handle cannot be written)
 *     alias HANDLE KERNEL
 *     launch HANDLE TIMES
 * does that, says `done`, and at the end of input exits.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int cuInit(unsigned int flags);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuKernelGetFunction(void **function, void *kernel);
int cuLaunchKernel(void *function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
		   unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
		   void *stream, void **parameters, void **extra);

#ifdef DRIVER
static void *aliased;

int cuInit(unsigned int flags)
{
	return flags != 0;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
	(void)name;
	if ((uintptr_t)function > 4096)
		*function = module;
	return 0;
}

int cuKernelGetFunction(void **function, void *kernel)
{
	(void)kernel;
	aliased = *function;	/* the caller says which one it wants */
	return aliased == NULL;
}

int cuLaunchKernel(void *function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
		   unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
		   void *stream, void **parameters, void **extra)
{
	(void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
	(void)shared_bytes, (void)stream, (void)parameters, (void)extra;
	return function == NULL;
}
#else
static const char *text_of(char *word)
{
	size_t length;
	char *pages;

	if (!strcmp(word, "@unmapped"))
		return (const char *)0xdead0000;
	if (!strcmp(word, "@endless")) {
		pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		munmap(pages + 4096, 4096);
		memset(pages + 4000, 'x', 96);
		return pages + 4000;
	}
	if (!strncmp(word, "@long:", 6)) {
		length = strtoul(word + 6, NULL, 10);
		pages = malloc(length + 1);
		memset(pages, 'k', length);
		pages[length] = 0;
		return pages;
	}
	return strdup(word);
}

static void name(void *handle, char *word)
{
	void *out = NULL;

	if (!strcmp(word, "@nowhere"))
		cuModuleGetFunction((void **)8, handle, "nowhere");
	else
		cuModuleGetFunction(&out, handle, text_of(word));
}

int main(void)
{
	char line[8192], word[8192];
	unsigned long handle, number;
	void *out;

	if (cuInit(0))
		return 1;
	printf("ready %d\n", (int)getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "name %lx %8191[^\n]", &handle, word) == 2)
			name((void *)handle, word);
		if (sscanf(line, "alias %lx %lx", &handle, &number) == 2) {
			out = (void *)handle;
			cuKernelGetFunction(&out, (void *)number);
		}
		if (sscanf(line, "launch %lx %lu", &handle, &number) == 2)
			while (number--)
				cuLaunchKernel((void *)handle, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
		printf("done\n");
		fflush(stdout);
	}
	return 0;
}
#endif
