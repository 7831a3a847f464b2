/* A call that is entered and not left the usual way.
 *
 *     stuck sync                 the main thread waits for a kernel of hours
 *     stuck exec-main COMMAND    another thread waits in the call, the main one executes COMMAND
 *     stuck exec-thread COMMAND  the main thread waits in the call, another one executes COMMAND
 *     stuck jump JUMPS LAUNCHES  signals jump out of the waiting call, then it launches on
 *
 * Prints `ready PID` and waits for a line before the first call.
 */
#include "cuda_calls.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

int cudaSetDeviceFlags(unsigned int flags);

#define BLOCK_WHILE_WAITING 4

void endless_kernel(void);
void endless_kernel(void)
{
}

static char **command;
static sigjmp_buf before_the_call;

static int launch(unsigned int blocks)
{
	dim3 grid = {blocks, 1, 1}, one = {1, 1, 1};

	return cudaLaunchKernel((void *)endless_kernel, grid, one, NULL, 0, NULL);
}

static void *wait_in_call(void *unused)
{
	(void)unused;
	cudaStreamSynchronize(NULL);
	return NULL;
}

static void *execute_later(void *unused)
{
	(void)unused;
	usleep(300000);
	execv(command[0], command);
	_exit(99);
}

static void jump_out(int number)
{
	(void)number;
	siglongjmp(before_the_call, 1);
}

static void jump(int jumps, unsigned long launches)
{
	struct itimerval soon = {.it_value = {.tv_usec = 20000}};
	volatile int jumped = 0;
	int failed = 0;

	signal(SIGALRM, jump_out);
	sigsetjmp(before_the_call, 1);
	if (jumped++ < jumps) {
		setitimer(ITIMER_REAL, &soon, NULL);
		cudaStreamSynchronize(NULL);
	}
	for (unsigned long i = 0; i < launches; i++)
		failed += launch(1) != 0;
	printf("{\"launches\": %lu, \"failed\": %d}\n", launches + 1, failed);
	finish_and_wait();
	_exit(failed != 0);
}

int main(int argc, char **argv)
{
	pthread_t other;

	announce_and_wait();
	cudaSetDeviceFlags(BLOCK_WHILE_WAITING);
	launch(4000000000u);
	if (argc > 3 && !strcmp(argv[1], "jump"))
		jump(atoi(argv[2]), strtoul(argv[3], NULL, 10));
	command = argv + 2;
	if (!strcmp(argv[1], "exec-main")) {
		pthread_create(&other, NULL, wait_in_call, NULL);
		execute_later(NULL);
	}
	if (!strcmp(argv[1], "exec-thread"))
		pthread_create(&other, NULL, execute_later, NULL);
	wait_in_call(NULL);
	return 1;
}
