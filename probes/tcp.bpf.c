/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 *
 * TCP retransmits. They happen in softirq, on top of whatever task runs, so the
 * owner is the socket's: its inode is among that process's descriptors.
 */
#include "maps.bpf.h"
#include <bpf/bpf_endian.h>

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(tcp_retransmit_skb, struct sock *sk)
{
	struct tcp *r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	unsigned short family;

	if (!r) {
		lose(LOSS_RING_OTHER, 1);
		return 0;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->h.type = REC_TCP;
	r->h.cpu = bpf_get_smp_processor_id();
	r->h.start_ns = bpf_ktime_get_ns();
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	r->family = family;
	r->sport = BPF_CORE_READ(sk, __sk_common.skc_num);
	r->dport = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	r->state = BPF_CORE_READ(sk, __sk_common.skc_state);
	r->uid = BPF_CORE_READ(sk, sk_uid.val);
	if (family == 10) {
		BPF_CORE_READ_INTO(&r->saddr, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&r->daddr, sk, __sk_common.skc_v6_daddr);
	} else {
		BPF_CORE_READ_INTO((__u32 *)r->saddr, sk, __sk_common.skc_rcv_saddr);
		BPF_CORE_READ_INTO((__u32 *)r->daddr, sk, __sk_common.skc_daddr);
	}
	r->inode = BPF_CORE_READ(sk, sk_socket, file, f_inode, i_ino);
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
