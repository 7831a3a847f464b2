/* SPDX-License-Identifier: Apache-2.0
 *
 * What the environment says about the modelled device, and the two things every
 * stub library needs: failures on request and burning CPU time.
 *
 * Read once, when the library is loaded: changing the environment later has no effect.
 */
#ifndef STUB_SETTINGS_H
#define STUB_SETTINGS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define STUB_API __attribute__((visibility("default")))

struct stub_settings {
	const char *device;		/* name or path of the shared device, NULL: private */
	unsigned int devices;
	uint64_t memory_bytes;
	uint64_t kernel_ns;		/* 0: a microsecond for each thread block */
	uint64_t call_ns;		/* CPU time a launch costs */
	uint64_t init_ns;		/* CPU time the first context costs */
	uint64_t load_ns;		/* CPU time loading a module costs */
	uint64_t alloc_ns;		/* CPU time an allocation or a free costs */
	uint64_t pageable_bytes_per_us;
	uint64_t pcie_bytes_per_us;
	uint64_t nccl_bytes_per_us;
};

extern struct stub_settings stub_settings;
extern bool stub_fail_armed;

uint64_t stub_now_ns(void);
void stub_burn_ns(uint64_t cpu_ns);

/* The code the environment wants this call to return, or 0. */
int stub_forced(const char *function, atomic_uint *calls, int usual_code);

#endif
