"""Writes deploy/kubernetes/ingero.yaml: what the Helm chart renders, for clusters without Helm.

    python tools/manifests.py

needs `helm`, or build/tools/helm, which `make helm` builds.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy/helm/ingero"
PLAIN = ROOT / "deploy/kubernetes"
HEADER = "# Written by `make manifests` from deploy/helm/ingero and values.yaml; do not edit.\n"
KUBERNETES = "1.31.0"


def helm() -> str | None:
    """The helm to use: the one made here, else the machine's."""
    made = ROOT / "build/tools/helm"
    return str(made) if made.exists() else shutil.which("helm")


def rendered(program: str, *options: str, namespace: str = "ingero") -> str:
    """What the chart makes with these options."""
    words = [program, "template", "ingero", str(CHART), "-n", namespace, "--kube-version", KUBERNETES]
    done = subprocess.run([*words, *options], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"helm template failed: {done.stderr.strip()}")
    return done.stdout


def plain(program: str) -> str:
    """The text of the manifests."""
    return HEADER + rendered(program, "-f", str(PLAIN / "values.yaml"))


def main() -> int:
    program = helm()
    if program is None:
        sys.exit("no helm: install it, or build it with `make helm`")
    (PLAIN / "ingero.yaml").write_text(plain(program))
    return 0


if __name__ == "__main__":
    sys.exit(main())
