"""Writes deploy/kubernetes/ingero.yaml: what the Helm chart renders, for clusters without Helm.

`python -m tools.manifests`, or `make manifests`. Helm's own library renders, without the program.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy/helm/ingero"
PLAIN = ROOT / "deploy/kubernetes"
HEADER = "# Written by `make manifests` from deploy/helm/ingero and values.yaml; do not edit.\n"
# What others need comes before them, as Helm has it.
KINDS = ("ServiceAccount", "Secret", "ConfigMap", "ClusterRole", "ClusterRoleBinding", "Service", "DaemonSet")


def library() -> Any:
    """Helm's library, of which there is no wheel for every processor."""
    try:
        import helm_python
    except ImportError:
        sys.exit("no helm-python-sdk here: pip install helm-python-sdk")
    return helm_python


def chosen(words: str = "", config: dict[str, Any] | None = None) -> dict[str, Any]:
    """Values, as `helm --set WORDS --set-json config=...` takes them."""
    found: dict[str, Any] = library().parse_set_string(words) if words else {}
    return found | ({"config": config} if config else {})


def rendered(values: dict[str, Any], namespace: str = "ingero") -> str:
    """What `helm install ingero` would apply with these values."""
    with library().Chart.load(str(CHART)) as chart:
        files: dict[str, str] = chart.render(values, name="ingero", namespace=namespace)
    texts = [text for name, text in sorted(files.items()) if name.endswith(".yaml")]
    found = [part.strip("\n") for text in texts for part in ("\n" + text).split("\n---\n") if part.strip()]
    return "".join(f"---\n{part}\n" for part in sorted(found, key=_place))


def _place(part: str) -> int:
    kind = yaml.safe_load(part)["kind"]
    return KINDS.index(kind) if kind in KINDS else len(KINDS)


def plain() -> str:
    """The text of the manifests."""
    return HEADER + rendered(yaml.safe_load((PLAIN / "values.yaml").read_text()))


if __name__ == "__main__":
    (PLAIN / "ingero.yaml").write_text(plain())
