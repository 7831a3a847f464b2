/* A call's begin and end, interrupted at every instruction by the scheduler or by a reader.
 *
 * The code is the probes' own (interval.bpf.h), compiled for this processor and executed step by step. At the
 * chosen steps the thread loses its core for a while, as under full preemption, or somebody else
 * reads its account. Prints how many cases there were, and fails at the first whose sums are wrong.
 */
#define _GNU_SOURCE
#include <linux/types.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "wire.h"

#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define barrier() asm volatile("" ::: "memory")
#define barrier_var(var) asm volatile("" : "+r"(var))
#define TRAP_FLAG 0x100
#define AWAY_NS 1000000

struct thread {
	__u64 since, first_ns, acc[BUCKETS];
	__u32 depth, pad;
};

static volatile __u64 clock_ns = 1000;
static struct thread thread;
static volatile long step, steps;
static long at[3];		/* steps at which it is interrupted */
static int interruptions;
static bool read_only;

static __u64 bpf_ktime_get_ns(void)
{
	return __sync_add_and_fetch(&clock_ns, 1);
}

static __always_inline void add_interval(struct thread *t, __u32 bucket, __u64 ns)
{
	__sync_fetch_and_add(&t->acc[bucket], ns);
}

#include "interval.bpf.h"

static void fail(const char *what, __u64 wanted, __u64 found)
{
	printf("interrupted at %ld, %ld, %ld: %s: %llu instead of %llu\n", at[0], at[1], at[2], what,
	       (unsigned long long)found, (unsigned long long)wanted);
	exit(1);
}

static __u64 sum(const __u64 *acc)
{
	__u64 all = 0;

	for (int i = 0; i < BUCKETS; i++)
		all += acc[i];
	return all;
}

static __u32 running(void)
{
	return thread.depth ? CUDA_CPU : HOST_CPU;
}

/* As sched.bpf.c does: out into the bucket it ran in, back from the queue. */
static void preempt(void)
{
	__sync_fetch_and_add(&clock_ns, 10);
	settle(&thread, bpf_ktime_get_ns(), running());
	__sync_fetch_and_add(&clock_ns, AWAY_NS);
	settle(&thread, bpf_ktime_get_ns(), RUNQUEUE);
}

/* As tasks.bpf.c does of a thread that waits for a core meanwhile. */
static void read_account(void)
{
	__u64 acc[BUCKETS], now, open;

	__sync_fetch_and_add(&clock_ns, 10);
	settle(&thread, bpf_ktime_get_ns(), running());
	__sync_fetch_and_add(&clock_ns, AWAY_NS);
	now = bpf_ktime_get_ns();
	memcpy(acc, thread.acc, sizeof(acc));
	open = now - thread.since;
	acc[RUNQUEUE] += open;
	if (make_whole(acc, running(), now - thread.first_ns, 0) != now - thread.first_ns)
		fail("a reader's time", now - thread.first_ns, make_whole(acc, running(), now - thread.first_ns, 0));
	if (sum(acc) != now - thread.first_ns)
		fail("a reader's sum", now - thread.first_ns, sum(acc));
	if (acc[RUNQUEUE] < AWAY_NS || acc[RUNQUEUE] > AWAY_NS + 10)
		fail("a reader's run-queue time", AWAY_NS, acc[RUNQUEUE]);
	settle(&thread, bpf_ktime_get_ns(), RUNQUEUE);
}

static void on_step(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info, (void)context;
	for (int i = 0; i < interruptions; i++) {
		if (step == at[i])
			read_only ? read_account() : preempt();
	}
	step++;
}

static void trap(bool on)
{
	if (on)
		asm volatile("pushfq; orq %0, (%%rsp); popfq" ::"i"(TRAP_FLAG) : "memory", "cc");
	else
		asm volatile("pushfq; andq %0, (%%rsp); popfq" ::"i"(~TRAP_FLAG) : "memory", "cc");
}

static void one_call(void)
{
	__u64 before[BUCKETS], after[BUCKETS], start_ns, end_ns, split = 0, least = 0;

	memset(&thread, 0, sizeof(thread));
	thread.first_ns = thread.since = clock_ns;
	step = 0;
	__sync_fetch_and_add(&clock_ns, 100);
	trap(true);
	start_ns = stamp(&thread, HOST_CPU, before);
	thread.depth = 1;
	__sync_fetch_and_add(&clock_ns, 5000);
	end_ns = stamp(&thread, CUDA_CPU, after);
	thread.depth = 0;
	trap(false);
	steps = step;
	for (int i = 0; i < BUCKETS; i++)
		split += after[i] - before[i];
	if (split != end_ns - start_ns)
		fail("a call's split", end_ns - start_ns, split);
	if (sum(before) != start_ns - thread.first_ns)
		fail("the account at its begin", start_ns - thread.first_ns, sum(before));
	if (end_ns - start_ns < 5000)
		fail("a call's duration", 5000, end_ns - start_ns);
	if (after[CUDA_CPU] - before[CUDA_CPU] < 5000)
		fail("its time on a core", 5000, after[CUDA_CPU] - before[CUDA_CPU]);
	settle(&thread, bpf_ktime_get_ns(), HOST_CPU);
	least = thread.since - thread.first_ns;
	if (sum(thread.acc) != least)
		fail("the account in the end", least, sum(thread.acc));
	if (thread.acc[RUNQUEUE] < interruptions * (__u64)AWAY_NS ||
	    thread.acc[RUNQUEUE] > interruptions * (__u64)(AWAY_NS + 100))
		if (step > at[interruptions - 1])
			fail("time away from its core", interruptions * (__u64)AWAY_NS, thread.acc[RUNQUEUE]);
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO | SA_NODEFER};
	long cases = 0, all;

	sigaction(SIGTRAP, &action, NULL);
	one_call();
	all = steps;
	for (int kind = 0; kind < 2; kind++) {
		read_only = kind;
		interruptions = 1;
		for (at[0] = 0; at[0] < all; at[0]++, cases++)
			one_call();
	}
	read_only = false;
	interruptions = 2;	/* a second time while it makes good for the first */
	for (at[0] = 0; at[0] < all; at[0]++)
		for (at[1] = at[0] + 1; at[1] < at[0] + all; at[1] += 7, cases++)
			one_call();
	interruptions = 3;
	for (at[0] = 0; at[0] < all; at[0] += 5)
		for (at[1] = at[0] + 1; at[1] < at[0] + 40; at[1] += 9)
			for (at[2] = at[1] + 1; at[2] < at[1] + 40; at[2] += 11, cases++)
				one_call();
	printf("%ld cases of %ld instructions\n", cases, all);
	return 0;
}
