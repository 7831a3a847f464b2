/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * GPU faults as the NVIDIA driver reports them: its tracepoint nvidia_dev_xid
 * (device, error code, message). Exists only where the driver is loaded; attaching
 * needs tracefs.
 */
#include "maps.bpf.h"

/* events/nvidia/nvidia_dev_xid/format, driver 580 */
struct xid_event {
	__u64 common;
	__u32 dev;		/* __data_loc: offset in the low half, length in the high one */
	__u32 code;
	__u32 message;
};

SEC("tp/nvidia/nvidia_dev_xid")
int nvidia_dev_xid(struct xid_event *event)
{
	struct xid *r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);

	if (!r) {
		lose(LOSS_RING_OTHER, 1);
		return 0;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->h.type = REC_XID;
	r->h.cpu = bpf_get_smp_processor_id();
	r->h.start_ns = bpf_ktime_get_ns();
	r->code = event->code;
	bpf_probe_read_kernel_str(r->device, sizeof(r->device), (void *)event + (event->dev & 0xffff));
	bpf_probe_read_kernel_str(r->message, sizeof(r->message), (void *)event + (event->message & 0xffff));
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
