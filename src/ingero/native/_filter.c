/* SPDX-License-Identifier: Apache-2.0
 *
 * A child under a seccomp filter that kills for every system call but its exit, and calls functions of
 * ours: with probes on them it shows what this kernel does to filtered programs that are traced.
 */
#include "_shim.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALLS 4			/* the first hit of a probe may change how the next ones enter the kernel */
#define NO_FILTER 100

long ingero_calibration_target(long x);

/* One that begins with the nop of five bytes, which newer kernels turn into a call of theirs. */
long ingero_filtered_target(long x);
#if defined(__x86_64__)
__asm__(".pushsection .text\n.globl ingero_filtered_target\n"
	".type ingero_filtered_target, @function\n"
	"ingero_filtered_target:\n"
	".byte 0x0f, 0x1f, 0x44, 0x00, 0x00\nmov %rdi, %rax\nret\n"
	".size ingero_filtered_target, . - ingero_filtered_target\n.popsection\n");
#else
__attribute__((noinline, visibility("default"))) long ingero_filtered_target(long x)
{
	__asm__ volatile("" : "+r"(x));
	return x;
}
#endif

static int install_filter(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_exit_group, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {sizeof(rules) / sizeof(rules[0]), rules};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) || /* no core file of it */
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

/* After the fork: no memory, no locks, only system calls. */
static void __attribute__((noreturn)) live_under_filter(void)
{
	long x = 0;

	if (install_filter())
		_exit(NO_FILTER);
	for (long i = 0; i < CALLS; i++)
		x += ingero_calibration_target(i) + ingero_filtered_target(i);
	__asm__ volatile("" : : "r"(x));
	syscall(__NR_exit_group, 0);
	__builtin_unreachable();
}

/* call_under_filter() -> the signal that ended the child, 0 when it came to its own end */
PyObject *call_under_filter(PyObject *module, PyObject *unused)
{
	int status = 0;
	pid_t pid;

	(void)module;
	(void)unused;
	Py_BEGIN_ALLOW_THREADS
	pid = fork();
	if (pid == 0)
		live_under_filter();
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	Py_END_ALLOW_THREADS
	if (pid < 0 || (WIFEXITED(status) && WEXITSTATUS(status))) {
		if (pid > 0)
			errno = ENOSYS;
		return PyErr_SetFromErrno(PyExc_OSError);
	}
	return PyLong_FromLong(WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}
