/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of libcuda share. Exported functions are declared in driver_api.h.
 */
#ifndef STUB_DRIVER_H
#define STUB_DRIVER_H

#include "cuda_abi.h"
#include "driver_api.h"
#include "machine.h"

struct context {
	unsigned int device;
	unsigned int flags;
	int users;
	struct context *next;
};

struct stream {
	bool open;
	unsigned int device, index;
	struct graph *capture;
};

struct event {
	bool open, recorded;
	unsigned int flags;
	unsigned int device, stream;
	uint64_t seq;
};

struct graph {
	unsigned int nodes;
	uint64_t took_ns;
	bool whole_process;	/* captured in the mode that forbids unsafe calls in any thread */
};

extern struct machine *driver_machine;
extern struct process *driver_process;
extern _Thread_local struct context *driver_context;
extern atomic_int driver_captures;	/* captures under way that forbid unsafe calls */
extern pthread_mutex_t driver_lock;	/* tables of this process */

/* Every exported function begins with one of these. */
#define FAIL_IF_ASKED(function, code)							\
	do {										\
		if (__builtin_expect(stub_fail_armed, 0)) {				\
			static atomic_uint calls;					\
			int forced = stub_forced(#function, &calls, code);		\
			if (forced)							\
				return forced;						\
		}									\
	} while (0)

#define ENTER(function)									\
	do {										\
		CUresult ready = driver_ready();					\
		if (ready)								\
			return ready;							\
		FAIL_IF_ASKED(function, UNKNOWN);					\
	} while (0)

#define ENTER_ALLOCATION(function)							\
	do {										\
		CUresult ready = driver_ready();					\
		if (ready)								\
			return ready;							\
		FAIL_IF_ASKED(function, OUT_OF_MEMORY);					\
		if (driver_captures)							\
			return CAPTURE_UNSUPPORTED;					\
	} while (0)

CUresult driver_ready(void);		/* initialised, not a fork's child, a context is current */
enum patience driver_patience(void);

struct stream *stream_find(CUstream handle, bool per_thread);
uint64_t stream_push(struct stream *stream, const struct item *items, unsigned int count);
void stream_work(struct stream *stream, enum item_kind kind, uint64_t took_ns);
void stream_wait(const struct stream *stream);

struct point {			/* a place in a queue */
	const struct queue *queue;
	unsigned int stream;
	uint64_t seq;
};
bool point_reached(const struct point *point);
void point_wait(struct point *point, enum patience patience);
void device_wait(void);

enum memory { PAGEABLE, PINNED, ON_DEVICE };
enum memory memory_of(uint64_t address);
bool memory_valid(uint64_t address, uint64_t bytes);
CUdeviceptr memory_addresses(uint64_t bytes);
bool memory_forget(CUdeviceptr pointer);

#endif
