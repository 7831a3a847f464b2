"""What the views about tenants show: whose a process or container is, and what became of pods."""

from __future__ import annotations

_NODE = "The machine's name."
_PID = "The process."

TENANT_VIEWS: tuple[tuple[str, str, dict[str, str]], ...] = (
    (
        "tenants",
        "Which container, pod, job and user each process belongs to: one row per process, bystanders"
        " included. [Tenants](tenants.md) says where each name comes from.",
        {
            "node": _NODE,
            "pid": _PID,
            "start_ns": "When it began; with node and pid it names the process.",
            "end_ns": "When it ended; NULL while it runs.",
            "comm": "Its name.",
            "target": "1: traced; 0: a bystander, known because it took a core from a target, or woke one.",
            "container_id": "Its container's full id.",
            "runtime": "containerd, cri-o, docker, podman, lxc and others.",
            "container": "Its container's name.",
            "pod": "The Kubernetes pod.",
            "namespace": "The Kubernetes namespace.",
            "owner": "What made the pod, as in Deployment/trainer or Job/nightly.",
            "job": "The job of the batch system or launcher, without its step.",
            "user": "Whose job it is; of processes outside containers, the user of this machine.",
            "account": "The account the batch system charges.",
            "uid": "The user's number.",
            "cgroup_id": "Its cgroup; joins containers.cgroup_id.",
        },
    ),
    (
        "container_labels",
        "More about a container: its name, its pod's owner and uid, and each label of its own as label:KEY.",
        {
            "node": _NODE,
            "cgroup_id": "The container's cgroup; joins containers.cgroup_id.",
            "key": "name, image, owner, pod.uid, or label: and the label's name.",
            "value": "Its value.",
        },
    ),
    (
        "process_labels",
        "More about a process: job, user and account, and where they come from, as in slurm.step.",
        {
            "node": _NODE,
            "pid": _PID,
            "start_ns": "When the process began.",
            "key": "job, user, account, or the scheduler and its word for it.",
            "value": "Its value.",
        },
    ),
    (
        "pod_events",
        "What the kubelet said about the pods of this node: when each was first seen, its restarts, OOM kills"
        " and evictions.",
        {
            "node": _NODE,
            "timestamp_ns": "When it happened; of restarts when the container before ended.",
            "namespace": "The pod's namespace.",
            "pod": "The pod.",
            "container": "The container in it; NULL for the pod as a whole.",
            "event": "seen, restart, oom-kill or evicted.",
            "reason": "The kubelet's word for why, as in OOMKilled, Error or Evicted.",
            "exit_code": "What the container before ended with.",
            "restarts": "How often the container has been restarted so far.",
        },
    ),
)
