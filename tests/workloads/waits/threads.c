/* Threads that come and go, and programs that replace others.
 *
 *     threads short N       N threads one after another, each sleeping a millisecond
 *     threads headless      the first thread ends, another goes on for two seconds
 *     threads exec-first    the first thread executes `sleep`
 *     threads exec-other    another thread executes `sleep`, and so becomes the first
 *
 * Prints `ready PID` and waits for a line; `short` then tells the tids as JSON and `done`.
 */
#define _GNU_SOURCE
#include "cuda_calls.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *sleep_a_little(void *tid)
{
	cudaStreamQuery(NULL);
	*(long *)tid = syscall(SYS_gettid);
	usleep(1000);
	return NULL;
}

static void *go_on(void *unused)
{
	for (int i = 0; i < 20; i++)
		usleep(100000);
	_exit(0);
	return unused;
}

static void *execute(void *unused)
{
	usleep(300000);
	execlp("sleep", "sleep", "5", NULL);
	return unused;
}

static void many(long count)
{
	printf("{\"tids\": [");
	for (long i = 0; i < count; i++) {
		pthread_t thread;
		long tid = 0;

		pthread_create(&thread, NULL, sleep_a_little, &tid);
		pthread_join(thread, NULL);
		printf("%s%ld", i ? ", " : "", tid);
	}
	printf("]}\n");
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "short";
	pthread_t thread;

	cudaFree(NULL);
	announce_and_wait();
	if (!strcmp(what, "short")) {
		many(argc > 2 ? atol(argv[2]) : 100);
		finish_and_wait();
		return 0;
	}
	if (!strcmp(what, "exec-first"))
		execute(NULL);
	pthread_create(&thread, NULL, strcmp(what, "headless") ? execute : go_on, NULL);
	if (!strcmp(what, "headless"))
		pthread_exit(NULL);
	pthread_join(thread, NULL);
	return 0;
}
