/* SPDX-License-Identifier: Apache-2.0
 *
 * The modelled machine: devices, the processes that use them, their queues, and the
 * places where the ranks of a communicator meet. It lives in memory that processes
 * naming the same device share.
 *
 * Nothing runs by itself. Whoever calls in first moves the machine's clock up to now
 * (queue.c), for all devices and all processes, and then looks at the result.
 */
#ifndef STUB_MACHINE_H
#define STUB_MACHINE_H

#include "settings.h"

#include <pthread.h>
#include <sys/types.h>

#define DEVICES 8
#define PROCESSES 32
#define STREAMS 128
#define EVENTS 8192
#define ITEMS 4096		/* room for finished items between unfinished ones */
#define OUTSTANDING 1024	/* a launch beyond this waits */
#define CHANNELS 256
#define MEETINGS 2048		/* more than OUTSTANDING: no rank can be further ahead */
#define RANKS 64
#define NEVER UINT64_MAX
#define LEGACY_STREAM 0

enum item_kind { DONE, KERNEL, COPY, EVENT, WAIT, COLLECTIVE };

/* Items of one stream run one after the other; items with the same seq run together. */
struct item {
	uint64_t seq;
	uint64_t left_ns;	/* KERNEL, COPY: device time still needed */
	uint64_t other_seq;	/* WAIT: of the other stream; COLLECTIVE: number of the meeting */
	uint32_t target;	/* EVENT: slot; WAIT: device << 16 | stream; COLLECTIVE: channel */
	uint16_t stream;
	uint8_t kind;
	uint8_t arrived;
};

struct stream_state {
	uint64_t last_seq;
	uint64_t done_seq;
};

struct queue {
	uint64_t last_seq;
	uint64_t nonblocking[STREAMS / 64];
	uint32_t head, tail;
	uint32_t outstanding;
	uint32_t live_streams;
	struct item *computing, *copying;	/* valid only while the machine is moved */
	struct stream_state stream[STREAMS];
	struct item item[ITEMS];
};

struct process {
	pid_t pid;		/* 0: free */
	uint64_t used_bytes[DEVICES];
	uint64_t event_ns[EVENTS];
	struct queue queue[DEVICES];
};

struct meeting {		/* one collective, or one send and its receive */
	uint64_t number;
	uint64_t took_ns;
	uint64_t end_ns;	/* known when all have arrived */
	uint32_t arrived;
};

struct channel {		/* a communicator, or one direction between two of its ranks */
	uint64_t key;		/* 0: free */
	uint32_t parties;
	uint32_t joined, left;
	int32_t color[RANKS], order[RANKS];	/* what each rank said in a split */
	struct meeting meeting[MEETINGS];
};

struct machine {
	uint64_t magic;
	uint64_t nonce;
	pthread_mutex_t lock;
	_Atomic uint32_t version;	/* changes whenever work or a rank arrives; a futex */
	_Atomic uint32_t sleepers;
	_Atomic uint64_t next_ns;	/* nothing changes by itself before this */
	uint64_t clock_ns;
	uint64_t reaped_ns;
	uint64_t memory_bytes;
	uint32_t devices;
	uint32_t processes;		/* slots ever used */
	struct process process[PROCESSES];
	struct channel channel[CHANNELS];
};

enum patience { SPIN, YIELD, BLOCK };

/* machine.c */
struct machine *machine_open(void);
struct process *machine_join(struct machine *machine);
void machine_leave(struct machine *machine, struct process *process);
void machine_reap(struct machine *machine);
void machine_lock(struct machine *machine);
void machine_unlock(struct machine *machine);
void machine_changed(struct machine *machine);
bool machine_charge(struct machine *machine, struct process *process, unsigned int device, int64_t bytes);
uint64_t machine_used(const struct machine *machine, unsigned int device);

/* Waits until done() says so; done() is called with the machine locked and up to date,
 * and may say in *at_least_ns how much device time must still pass. */
typedef bool (*machine_done)(void *what, uint64_t *at_least_ns);
void machine_wait(struct machine *machine, machine_done done, void *what, enum patience patience);

/* queue.c; the machine is locked */
void machine_advance(struct machine *machine, uint64_t now_ns);
void queue_push(struct machine *machine, struct process *process, unsigned int device,
		const struct item *items, unsigned int count);
bool queue_reached(const struct queue *queue, unsigned int stream, uint64_t seq);
uint64_t queue_left_ns(const struct queue *queue, unsigned int stream, uint64_t seq);
void queue_drop(struct machine *machine, struct process *process, unsigned int channel);

/* channel.c; the machine is locked */
int channel_find(struct machine *machine, uint64_t key, uint32_t parties);
void channel_leave(struct channel *channel);
void meeting_arrive(struct machine *machine, const struct item *item);
uint64_t meeting_end_ns(struct machine *machine, const struct item *item);

/* What libnccl gets from libcuda through cuGetExportTable. */
struct stub_table {
	uint64_t bytes;
	struct machine *(*machine)(void);
	struct process *(*process)(void);
	void (*lock)(struct machine *machine);
	void (*unlock)(struct machine *machine);
	void (*changed)(struct machine *machine);
	void (*wait)(struct machine *machine, machine_done done, void *what, enum patience patience);
	int (*find)(struct machine *machine, uint64_t key, uint32_t parties);
	void (*leave)(struct channel *channel);
	void (*drop)(struct machine *machine, struct process *process, unsigned int channel);
};

#define STUB_TABLE_ID "ingero stub nccl"	/* 16 bytes, as an id has */

#define RENDEZVOUS_KERNEL "ncclDevKernel"

/* First parameter of a kernel whose name begins with RENDEZVOUS_KERNEL. */
struct rendezvous {
	uint32_t count;
	struct {
		uint32_t channel;
		uint64_t number;
		uint64_t took_ns;
	} part[];
};

#endif
