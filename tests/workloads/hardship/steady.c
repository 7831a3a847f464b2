/* A job that goes on until told to stop and checks every answer it gets.
 *
 *     steady [PAUSE_US] [CHILDREN] [CALLS_PER_CHILD]
 *
 * Prints `ready PID`, works from the first line it reads to the second, then tells what
 * it did as one JSON line. With children it instead forks them, lets each make so many
 * launches and exit, and tells the sum. A line that was closed counts as read.
 */
#include "cuda_calls.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>

void steady_kernel(void);
void steady_kernel(void)
{
}

static unsigned long launches, syncs, failed;

static void launch(void)
{
	dim3 one = {1, 1, 1};

	failed += cudaLaunchKernel((void *)steady_kernel, one, one, NULL, 0, NULL) != 0;
	if (++launches % 10 == 0) {
		failed += cudaStreamSynchronize(NULL) != 0;
		syncs++;
	}
}

static void work_until_told(useconds_t pause_us)
{
	struct pollfd told = {.fd = 0, .events = POLLIN};
	char line[64];

	while (poll(&told, 1, 0) == 0) {
		launch();
		if (pause_us)
			usleep(pause_us);
	}
	if (!fgets(line, sizeof(line), stdin))
		return;
}

static void work_in_children(int children, unsigned long calls)
{
	int status;

	for (int i = 0; i < children; i++)
		if (fork() == 0) {
			while (launches < calls)
				launch();
			_exit(failed != 0);
		}
	while (wait(&status) > 0)
		failed += status != 0;
	launches = children * calls;
	syncs = children * (calls / 10);
}

int main(int argc, char **argv)
{
	useconds_t pause_us = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;

	announce_and_wait();
	if (argc > 3)
		work_in_children(atoi(argv[2]), strtoul(argv[3], NULL, 10));
	else
		work_until_told(pause_us);
	printf("{\"launches\": %lu, \"syncs\": %lu, \"failed\": %lu}\n", launches, syncs, failed);
	finish_and_wait();
	return failed != 0;
}
