#!/bin/busybox sh
# The first and only program of the virtual machine: runs the tests, says how they ended, switches it off.
export PATH=/bin:/usr/bin:/sbin:/usr/sbin HOME=/root LANG=C.UTF-8
bb=/bin/busybox
$bb mkdir -p /proc /sys /dev /tmp /run /root /var/tmp
$bb --install -s /bin 2>/dev/null
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
dmesg -n 1
echo "at $(cut -d" " -f1 /proc/uptime) s: /init"
cd /ingero || exit
INGERO_TELL=/dev/console INGERO_MUST_RUN="ebpf kernels" INGERO_PATIENCE=3 \
    python3 -m pytest tests/kernels -q -p no:cacheprovider --timeout 400 --color=no --tb=short $TEST_WORDS </dev/null
echo "KERNELS-END $?"
poweroff -f
