/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "settings.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct stub_settings stub_settings;
bool stub_fail_armed;
static const char *failures;

static uint64_t number(const char *name, double usual, double scale)
{
	const char *text = getenv(name);
	double value = text && *text ? strtod(text, NULL) : usual;

	return value > 0 ? (uint64_t)(value * scale) : 0;
}

static uint64_t size(const char *name, uint64_t usual)
{
	const char *text = getenv(name);
	char *unit;
	double value;

	if (!text || !*text)
		return usual;
	value = strtod(text, &unit);
	switch (*unit | 0x20) {
	case 'g': value *= 1024;	/* fall through */
	case 'm': value *= 1024;	/* fall through */
	case 'k': value *= 1024;
	}
	return value > 0 ? (uint64_t)value : 0;
}

static uint64_t at_least_one(uint64_t value)
{
	return value ? value : 1;
}

__attribute__((constructor)) static void read_environment(void)
{
	const char *device = getenv("INGERO_STUB_DEVICE");

	stub_settings.device = device && *device ? device : NULL;
	stub_settings.devices = at_least_one(number("INGERO_STUB_DEVICES", 1, 1));
	stub_settings.memory_bytes = size("INGERO_STUB_MEMORY", 16ull << 30);
	stub_settings.kernel_ns = number("INGERO_STUB_KERNEL_US", 0, 1e3);
	stub_settings.call_ns = number("INGERO_STUB_CALL_NS", 0, 1);
	stub_settings.init_ns = number("INGERO_STUB_INIT_MS", 0, 1e6);
	stub_settings.load_ns = number("INGERO_STUB_LOAD_MS", 0, 1e6);
	stub_settings.alloc_ns = number("INGERO_STUB_ALLOC_US", 0, 1e3);
	stub_settings.pageable_bytes_per_us = at_least_one(number("INGERO_STUB_PAGEABLE_GBPS", 6, 1e3));
	stub_settings.pcie_bytes_per_us = at_least_one(number("INGERO_STUB_PCIE_GBPS", 25, 1e3));
	stub_settings.nccl_bytes_per_us = at_least_one(number("INGERO_STUB_NCCL_GBPS", 100, 1e3));
	failures = getenv("INGERO_STUB_FAIL");
	stub_fail_armed = failures && *failures;
}

uint64_t stub_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static uint64_t thread_cpu_ns(void)
{
	struct timespec used;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return used.tv_sec * 1000000000ull + used.tv_nsec;
}

/* CPU time, not wall time: a thread that loses its core must get it back to finish.
 * The thread clock is a system call, so very short burns go by the wall. */
void stub_burn_ns(uint64_t cpu_ns)
{
	uint64_t (*clock)(void) = cpu_ns < 20000 ? stub_now_ns : thread_cpu_ns;
	uint64_t until;

	if (!cpu_ns)
		return;
	until = clock() + cpu_ns;
	while (clock() < until)
		;
}

/* INGERO_STUB_FAIL is a list of FUNCTION:N[+][=CODE]. */
int stub_forced(const char *function, atomic_uint *calls, int usual_code)
{
	unsigned long call = atomic_fetch_add(calls, 1) + 1;
	size_t length = strlen(function);
	const char *entry = failures;
	int code = 0;

	while (entry && !code) {
		if (!strncmp(entry, function, length) && entry[length] == ':') {
			char *rest;
			unsigned long n = strtoul(entry + length + 1, &rest, 10);

			if (call == n || (*rest == '+' && call > n)) {
				rest += *rest == '+';
				code = *rest == '=' ? atoi(rest + 1) : usual_code;
			}
		}
		entry = strchr(entry, ',');
		entry = entry ? entry + 1 : NULL;
	}
	return code;
}
