"""The Helm chart, and the manifests made from it: valid, loadable, no secret in the clear.

Helm's own library renders. `make helm` builds the program too, which a long test holds against it.
"""

from __future__ import annotations

import base64
import json
import platform
import re
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from ingero import __version__, config
from tests.conftest import require
from tools import manifests

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="Helm's library has no wheel for this processor"
)
CHART = manifests.CHART
PROGRAM = manifests.ROOT / "build/tools/helm"
# As `--set` takes them.
SETS = {
    "defaults": "",
    "as the article prints it": "prometheus.enabled=true,otlp.enabled=true",
    "everything": ",".join(
        (
            "prometheus.enabled=true,prometheus.serviceMonitor.enabled=true",
            "prometheus.serviceMonitor.clientSecret=pc,prometheus.serviceMonitor.labels.release=kps",
            "otlp.enabled=true,otlp.endpoint=https://o.example:4318",
            "otlp.headersSecret=h,otlp.caSecret=c,otlp.clientSecret=k",
            "fleet.enabled=true,fleet.address=https://c.example:8443,fleet.cluster=west",
            "fleet.tokenSecret=t,fleet.caSecret=c,fleet.clientSecret=k",
            "kubelet.caSecret=kc,certificates.clientCASecret=cc,runtimeClassName=nvidia",
            "args={--without,gpu},nodeSelector.pool=gpu,resources.limits.cpu=1,env[0].name=A,env[0].value=b",
            "imagePullSecrets[0].name=pull,podLabels.team=a,podAnnotations.note=b,serviceAccount.annotations.c=d",
        )
    ),
    "no kubelet, no account": (
        "kubelet.enabled=false,serviceAccount.create=false,rbac.create=false,tolerations=null"
    ),
    "own secrets and names": "prometheus.enabled=true,prometheus.tokenSecret=t,certificates.secret=s,"
    "nameOverride=watch,fullnameOverride=gpu-watch,serviceAccount.name=own,rbac.kubeletResources={nodes/pods}",
}
CONFIG = {"agent": {"max_overhead": "1%"}, "cost": {"prices": {"H100": 2.49}}}
KUBERNETES = ("1.28", "1.31", "1.37")
ours = pytest.mark.parametrize("words", SETS.values(), ids=SETS)


def values(words: str) -> dict:
    return manifests.chosen(words, CONFIG if words == SETS["everything"] else None)


def objects(text: str) -> list[dict]:
    return [each for each in yaml.safe_load_all(text) if each]


def made(words: str) -> list[dict]:
    return objects(manifests.rendered(values(words)))


def plain() -> list[dict]:
    return objects((manifests.PLAIN / "ingero.yaml").read_text())


def of_kind(found: list[dict], kind: str) -> list[dict]:
    return [each for each in found if each["kind"] == kind]


def agents(found: list[dict]) -> dict:
    """The pod of the DaemonSet."""
    return of_kind(found, "DaemonSet")[0]["spec"]["template"]["spec"]


def require_valid(found: list[dict]) -> None:
    for each in found:
        if each["kind"] == "ServiceMonitor":  # the Prometheus operator's, not Kubernetes'
            assert each["spec"]["endpoints"][0]["scheme"] == "https"
            continue
        for version in KUBERNETES:
            kubernetes_validate.validate(each, version, strict=True)


def require_loads(found: list[dict], folder: Path) -> None:
    (configured,) = of_kind(found, "ConfigMap")
    path = folder / "ingero.yaml"
    path.write_text(configured["data"]["ingero.yaml"])
    config.load(path, {})


def require_mounted(found: list[dict]) -> None:
    """Every file the configuration names lies in a mounted volume."""
    (configured,) = of_kind(found, "ConfigMap")
    pod = agents(found)
    mounts = {each["mountPath"]: each["name"] for each in pod["containers"][0]["volumeMounts"]}
    assert {each["name"] for each in pod["volumes"]} == set(mounts.values())
    for path in re.findall(r"/etc/ingero/secrets/[^/]+", configured["data"]["ingero.yaml"]):
        assert path in mounts


def test_the_plain_manifests_are_valid_and_their_configuration_loads(tmp_path):
    require_valid(plain())
    require_loads(plain(), tmp_path)
    require_mounted(plain())


def test_no_manifest_holds_a_secret():
    assert not of_kind(plain(), "Secret")


def test_the_plain_manifests_are_what_the_chart_renders():
    assert (manifests.PLAIN / "ingero.yaml").read_text() == manifests.plain()


@ours
def test_the_chart_renders_valid_objects(words, tmp_path):
    found = made(words)
    require_valid(found)
    require_loads(found, tmp_path)
    require_mounted(found)


def test_a_field_that_kubernetes_does_not_know_would_be_seen():
    (daemon,) = of_kind(plain(), "DaemonSet")
    daemon["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(kubernetes_validate.ValidationError, match="hostPid"):
        require_valid([daemon])


@ours
def test_helm_finds_nothing_wrong_with_the_chart(words):
    told = manifests.library().lint(str(CHART), values(words), strict=True)
    assert (told["total_charts_linted"], told["errors"]) == (1, [])
    assert [each["error"] for each in told["messages"]] == ["icon is recommended"]


def test_every_value_the_templates_read_is_in_values_yaml():
    """One that is not there is empty, whatever somebody meant by it."""
    known = yaml.safe_load((CHART / "values.yaml").read_text())
    for template in (CHART / "templates").iterdir():
        for path in re.findall(r"\.Values\.([a-zA-Z.]+)", template.read_text()):
            place = known
            for word in path.rstrip(".").split("."):
                assert word in place, f"{template.name}: {path}"
                place = place[word]


def keys(of: dict, names: str = "", below: str = "") -> set[str]:
    """Of values, or with `names` of their schema; what is below `config` and the like is free."""
    found = set()
    for name, value in of.items():
        found.add(f"{below}{name}")
        inside = value.get(names) if names else value
        if isinstance(inside, dict):
            found |= keys(inside, names, f"{below}{name}.")
    return found


def test_the_schema_has_every_value_and_no_other():
    """Or one that is misspelt would be taken and do nothing."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    shown = yaml.safe_load((CHART / "values.yaml").read_text())
    free = ("nodeSelector.", "resources.", "updateStrategy.")
    known = {each for each in keys(shown) if not each.startswith(free)}
    assert keys(schema["properties"], "properties") == known | {"global"}  # helm's own


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"promtheus": {"enabled": True}}, "promtheus"),
        ({"kubelet": {"verfy": False}}, "verfy"),
        ({"image": {"tag": 20261119}}, "/image/tag"),  # would be 2.0261119e+07
        ({"fleet": {"enabled": True, "address": "https://c", "cluster": 12}}, "/fleet/cluster"),
        ({"kubelet": {"port": None}}, "port"),
        ({"state": {"hostPath": "relative"}}, "hostPath"),
        ({"otlp": {"protocol": "udp"}}, "protocol"),
        ({"capabilities": ["ALL"]}, "capabilities"),
        ({"capabilities": []}, "capabilities"),
        ({"rbac": {"kubeletResources": ["*"]}}, "kubeletResources"),
        ({"seccompProfile": ""}, "seccompProfile"),
        ({"nodeSelector": {"gpu": True}}, "nodeSelector"),
        ({"config": {"cost": 3}}, "config"),
        ({"prometheus": {"tokenSecret": "a: b"}}, "tokenSecret"),
    ],
)
def test_a_value_that_is_misspelt_or_of_a_wrong_kind_is_refused(given: dict, said: str):
    with pytest.raises(manifests.library().HelmError, match=said):
        manifests.rendered(given)


def test_names_that_yaml_reads_as_something_else_stay_names(tmp_path: Path):
    given = {
        "nameOverride": "12", "fullnameOverride": "0x1f",
        "runtimeClassName": "1e3", "priorityClassName": "true",
        "state": {"hostPath": "/data/a, b #c: {d}"}, "runHostPath": "/run/'x\" y",
        "prometheus": {"enabled": True, "tokenSecret": "123", "serviceMonitor": {"enabled": True}},
        "certificates": {"secret": "456"}, "serviceAccount": {"name": "7"},
        "args": ["--log-level", "debug #1"], "podLabels": {"a": "no"}, "podAnnotations": {"b": "{x: 1}"},
    }  # fmt: skip
    found = objects(manifests.rendered(given, namespace="1234"))
    require_valid(found)
    require_loads(found, tmp_path)
    require_mounted(found)
    assert {each["metadata"].get("namespace", "1234") for each in found} == {"1234"}
    paths = [each["hostPath"]["path"] for each in agents(found)["volumes"] if "hostPath" in each]
    assert paths[:2] == [given["state"]["hostPath"], given["runHostPath"]]


def test_a_certificate_made_by_the_chart_is_signed_by_the_authority_prometheus_checks(tmp_path):
    found = made(SETS["everything"])
    (monitor,) = of_kind(found, "ServiceMonitor")
    tls = monitor["spec"]["endpoints"][0]["tlsConfig"]
    (secret,) = [each for each in of_kind(found, "Secret") if each["type"] == "kubernetes.io/tls"]
    assert secret["metadata"]["name"] == tls["ca"]["secret"]["name"]
    for name in ("ca.crt", "tls.crt"):
        (tmp_path / name).write_bytes(base64.b64decode(secret["data"][name]))
    subprocess.run(
        ["openssl", "verify", "-verify_hostname", tls["serverName"], "-CAfile", "ca.crt", "tls.crt"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip


def probes(words: str) -> list[dict]:
    (container,) = agents(made(words))["containers"]
    return [container.get(f"{kind}Probe") for kind in ("readiness", "liveness")]


def test_the_kubelet_asks_without_a_shell_and_without_a_certificate():
    served = "prometheus.enabled=true"
    assert [each["httpGet"]["path"] for each in probes(served)] == ["/alive"] * 2
    wanted = f"{served},certificates.clientCASecret=cc,prometheus.serviceMonitor.enabled=false"
    assert [each["tcpSocket"] for each in probes(wanted)] == [{"port": "metrics"}] * 2
    assert probes("") == [None, None]


def test_the_notes_say_where_the_token_and_the_authority_are():
    with manifests.library().Chart.load(str(CHART)) as chart:
        for words, said in (("", False), ("prometheus.enabled=true,certificates.secret=own", True)):
            files = chart.render(values(words), name="i", namespace="gpu")
            (notes,) = [text for name, text in files.items() if name.endswith("NOTES.txt")]
            for command in ("get secret i-ingero-token -o", "get secret own -o"):
                assert (f"kubectl -n gpu {command}" in notes) is said


def test_prometheus_shows_a_certificate_where_clients_need_one():
    tls = of_kind(made(SETS["everything"]), "ServiceMonitor")[0]["spec"]["endpoints"][0]["tlsConfig"]
    assert tls["cert"]["secret"] == {"name": "pc", "key": "tls.crt"}
    assert tls["keySecret"] == {"name": "pc", "key": "tls.key"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("otlp.enabled=true,otlp.headersSecret=h", "sent readable"),
        ("otlp.enabled=true,otlp.headersSecret=h,otlp.endpoint=http://o:4318", "sent readable"),
        ("otlp.enabled=true,otlp.endpoint=", "needs otlp.endpoint"),
        ("fleet.enabled=true", "needs fleet.address"),
        (
            "prometheus.enabled=true,prometheus.serviceMonitor.enabled=true,certificates.clientCASecret=c",
            "serviceMonitor.clientSecret",
        ),
    ],
)
def test_the_chart_refuses_what_would_not_work_or_leak(words: str, said: str):
    with pytest.raises(manifests.library().HelmError, match=said):
        made(words)


@pytest.mark.parametrize("endpoint", ["https://o:4318", "o:4318", "http://127.0.0.1:4318"])
def test_headers_go_where_nobody_reads_them(endpoint: str):
    assert made(f"otlp.enabled=true,otlp.headersSecret=h,otlp.endpoint={endpoint}")


def test_no_container_is_privileged():
    (container,) = agents(plain())["containers"]
    rights = container["securityContext"]
    assert rights["privileged"] is False
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["readOnlyRootFilesystem"] is True
    assert rights["capabilities"]["drop"] == ["ALL"]


def test_the_chart_is_of_this_version():
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__


def helm(*words: str) -> str:
    require("helm", [] if PROGRAM.exists() else [f"no {PROGRAM.name}: make helm"])
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def without_made_up(found: list[dict]) -> list[str]:
    """In one order, and without keys that are made anew each time."""
    kept = [{**each, "data": sorted(each["data"])} if each["kind"] == "Secret" else each for each in found]
    return sorted(json.dumps(each, sort_keys=True) for each in kept)


@pytest.mark.long
@ours
def test_the_program_renders_what_the_library_renders(words: str, tmp_path: Path):
    (tmp_path / "values.json").write_text(json.dumps(values(words)))
    given = ("-f", str(tmp_path / "values.json"), "--kube-version", "1.31.0")
    helm("lint", "--strict", str(CHART), *given)
    told = helm("template", "ingero", str(CHART), "-n", "ingero", *given)
    assert without_made_up(objects(told)) == without_made_up(made(words))
