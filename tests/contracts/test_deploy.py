"""What is deployed is valid, says what the docs say, and asks for no more than it needs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from ingero import config, privileges

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd/ingero.service"
SETS = {
    "defaults": (),
    "as the article prints it": ("--set", "prometheus.enabled=true", "--set", "otlp.enabled=true"),
    "everything": (
        "--set", "prometheus.enabled=true,prometheus.serviceMonitor.enabled=true",
        "--set", "prometheus.serviceMonitor.clientSecret=pc,otlp.endpoint=https://o.example:4318",
        "--set", "otlp.enabled=true,otlp.headersSecret=h,otlp.caSecret=c,otlp.clientSecret=k",
        "--set", "fleet.enabled=true,fleet.address=https://c.example:8443,fleet.cluster=west",
        "--set", "fleet.tokenSecret=t,fleet.caSecret=c,fleet.clientSecret=k",
        "--set", "kubelet.caSecret=kc,certificates.clientCASecret=cc,runtimeClassName=nvidia",
        "--set-json", 'config={"agent": {"max_overhead": "1%"}, "cost": {"prices": {"H100": 2.49}}}',
        "--set", "args={--without,gpu},nodeSelector.pool=gpu,resources.limits.cpu=1",
    ),
    "no kubelet, no account": (
        "--set", "kubelet.enabled=false,serviceAccount.create=false,rbac.create=false,tolerations=null",
    ),
}  # fmt: skip


def manifests():
    """tools/manifests.py, which is no package."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("manifests", ROOT / "tools/manifests.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def helm_or_skip() -> str:
    program = manifests().helm()
    if program is None:
        pytest.skip("no helm; `make helm` builds it")
    return program


def objects(text: str) -> list[dict]:
    return [each for each in yaml.safe_load_all(text) if each]


def require_valid(found: list[dict]) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    for each in found:
        if each["kind"] == "ServiceMonitor":  # the Prometheus operator's, not Kubernetes'
            assert each["spec"]["endpoints"][0]["scheme"] == "https"
        else:
            validate.validate(each, "1.31", strict=True)


def of_kind(found: list[dict], kind: str) -> list[dict]:
    return [each for each in found if each["kind"] == kind]


def require_loads(found: list[dict], folder: Path) -> None:
    (configured,) = of_kind(found, "ConfigMap")
    path = folder / "ingero.yaml"
    path.write_text(configured["data"]["ingero.yaml"])
    config.load(path, {})


def require_mounted(found: list[dict]) -> None:
    """Every file the configuration names lies in a mounted volume."""
    (configured,) = of_kind(found, "ConfigMap")
    pod = of_kind(found, "DaemonSet")[0]["spec"]["template"]["spec"]
    mounts = {each["mountPath"]: each["name"] for each in pod["containers"][0]["volumeMounts"]}
    assert {each["name"] for each in pod["volumes"]} == set(mounts.values())
    for path in re.findall(r"/etc/ingero/secrets/[^/]+", configured["data"]["ingero.yaml"]):
        assert path in mounts


def test_the_plain_manifests_are_valid_and_their_configuration_loads(tmp_path):
    found = objects((DEPLOY / "kubernetes/ingero.yaml").read_text())
    require_valid(found)
    require_loads(found, tmp_path)
    require_mounted(found)


def test_no_manifest_holds_a_secret():
    assert not of_kind(objects((DEPLOY / "kubernetes/ingero.yaml").read_text()), "Secret")


def test_the_plain_manifests_are_what_the_chart_renders():
    assert (DEPLOY / "kubernetes/ingero.yaml").read_text() == manifests().plain(helm_or_skip())


@pytest.mark.parametrize("options", SETS.values(), ids=SETS)
def test_the_chart_renders_valid_objects(options, tmp_path):
    found = objects(manifests().rendered(helm_or_skip(), *options))
    require_valid(found)
    require_loads(found, tmp_path)
    require_mounted(found)


def test_helm_finds_nothing_wrong_with_the_chart():
    done = subprocess.run(
        [helm_or_skip(), "lint", "--strict", str(DEPLOY / "helm/ingero")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_a_certificate_made_by_the_chart_is_signed_by_the_authority_prometheus_checks(tmp_path):
    found = objects(manifests().rendered(helm_or_skip(), *SETS["everything"]))
    (monitor,) = of_kind(found, "ServiceMonitor")
    tls = monitor["spec"]["endpoints"][0]["tlsConfig"]
    (made,) = [each for each in of_kind(found, "Secret") if each["type"] == "kubernetes.io/tls"]
    assert made["metadata"]["name"] == tls["ca"]["secret"]["name"]
    import base64

    for name in ("ca.crt", "tls.crt"):
        (tmp_path / name).write_bytes(base64.b64decode(made["data"][name]))
    subprocess.run(
        ["openssl", "verify", "-verify_hostname", tls["serverName"], "-CAfile", "ca.crt", "tls.crt"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip


def probes(*options: str) -> list[dict]:
    found = objects(manifests().rendered(helm_or_skip(), *options))
    (container,) = of_kind(found, "DaemonSet")[0]["spec"]["template"]["spec"]["containers"]
    return [container.get(f"{kind}Probe") for kind in ("readiness", "liveness")]


def test_the_kubelet_asks_without_a_shell_and_without_a_certificate():
    served = ("--set", "prometheus.enabled=true")
    assert [each["httpGet"]["path"] for each in probes(*served)] == ["/alive"] * 2
    wanted = (*served, "--set", "certificates.clientCASecret=cc,prometheus.serviceMonitor.enabled=false")
    assert [each["tcpSocket"] for each in probes(*wanted)] == [{"port": "metrics"}] * 2
    assert probes() == [None, None]


def test_prometheus_shows_a_certificate_where_clients_need_one():
    found = objects(manifests().rendered(helm_or_skip(), *SETS["everything"]))
    tls = of_kind(found, "ServiceMonitor")[0]["spec"]["endpoints"][0]["tlsConfig"]
    assert tls["cert"]["secret"] == {"name": "pc", "key": "tls.crt"}
    assert tls["keySecret"] == {"name": "pc", "key": "tls.key"}


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ("otlp.enabled=true,otlp.headersSecret=h", "sent readable"),
        ("otlp.enabled=true,otlp.headersSecret=h,otlp.endpoint=http://o:4318", "sent readable"),
        (
            "prometheus.enabled=true,prometheus.serviceMonitor.enabled=true,certificates.clientCASecret=c",
            "serviceMonitor.clientSecret",
        ),
    ],
)
def test_the_chart_refuses_what_would_not_work_or_leak(options: str, word: str):
    program = helm_or_skip()
    with pytest.raises(SystemExit, match=word):
        manifests().rendered(program, "--set", options)


@pytest.mark.parametrize("endpoint", ["https://o:4318", "o:4318", "http://127.0.0.1:4318"])
def test_headers_go_where_nobody_reads_them(endpoint: str):
    options = f"otlp.enabled=true,otlp.headersSecret=h,otlp.endpoint={endpoint}"
    assert manifests().rendered(helm_or_skip(), "--set", options)


def test_the_one_file_can_unpack_itself_below_the_unit():
    assert "place=/var/cache/ingero" in (ROOT / "tools/onefile_head.sh").read_text()
    assert "\nCacheDirectory=ingero\n" in UNIT.read_text()


def composed() -> dict[str, dict]:
    return yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())["services"]


def test_the_files_that_compose_mounts_are_there_and_all_its_volumes_declared():
    """What `docker compose config` would find, and that it cannot: whether the files are there."""
    whole = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())
    for service in whole["services"].values():
        assert set(service.get("depends_on", ())) <= set(whole["services"])
        for source in (each.split(":")[0] for each in service["volumes"]):
            if source.startswith("."):
                assert (DEPLOY / "compose" / source).is_file(), source
            elif not source.startswith("/"):
                assert source in whole["volumes"]
    build = whole["services"]["ingero"]["build"]
    assert (DEPLOY / "compose" / build["context"] / build["dockerfile"]).is_file()


def test_prometheus_finds_token_and_certificate_where_the_agent_makes_them():
    from ingero.serve.web import certificates, tokens

    (job,) = yaml.safe_load((DEPLOY / "compose/prometheus.yml").read_text())["scrape_configs"]
    made = "/ingero/.ingero/server"  # the agent's HOME is the volume
    assert "state:/ingero:ro" in composed()["prometheus"]["volumes"]
    assert job["authorization"]["credentials_file"] == f"{made}/{tokens.OWN_FILE}"
    assert job["tls_config"]["ca_file"] == f"{made}/{certificates.FOR_CLIENTS}"
    assert job["static_configs"][0]["targets"] == [f"{composed()['ingero']['hostname']}:9090"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool")
def test_prometheus_takes_the_configuration_of_compose(tmp_path):
    text = (DEPLOY / "compose/prometheus.yml").read_text()
    for name in ("token", "certificate.pem"):
        (tmp_path / name).touch()
    text = text.replace("/ingero/.ingero/server", str(tmp_path)).replace(
        "/etc/prometheus", str(DEPLOY / "prometheus")
    )
    (tmp_path / "prometheus.yml").write_text(text)
    done = subprocess.run(
        ["promtool", "check", "config", str(tmp_path / "prometheus.yml")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_chart_and_compose_run_the_image_that_the_dockerfile_makes():
    from ingero import __version__

    dockerfile = (DEPLOY / "image/Dockerfile").read_text()
    assert 'ENTRYPOINT ["/opt/ingero/bin/ingero"]' in dockerfile
    assert "FROM scratch" in dockerfile
    values = yaml.safe_load((DEPLOY / "helm/ingero/values.yaml").read_text())
    assert composed()["ingero"]["image"] == f"{values['image']['repository']}:{__version__}"
    for state in ("HOME=/var/lib/ingero ", "INGERO_DB=/var/lib/ingero/ingero.db"):
        assert state in dockerfile


def asked_for() -> dict[str, set[str]]:
    values = yaml.safe_load((DEPLOY / "helm/ingero/values.yaml").read_text())
    line = re.search(r"^CapabilityBoundingSet=(.*)$", UNIT.read_text(), re.MULTILINE)
    return {
        "chart": {f"CAP_{each}" for each in values["capabilities"]},
        "compose": {f"CAP_{each}" for each in composed()["ingero"]["cap_add"]},
        "unit": set(line[1].split()),
        "docs": set(re.findall(r"^\| `(CAP_\w+)` \|", (ROOT / "docs/deploy.md").read_text(), re.MULTILINE)),
    }


def test_chart_compose_unit_and_docs_ask_for_the_same_capabilities():
    asked = asked_for()
    assert asked["chart"] == asked["compose"] == asked["unit"] == asked["docs"]
    assert asked["chart"] <= set(privileges.KEPT)


def test_no_container_is_privileged():
    (daemon,) = of_kind(objects((DEPLOY / "kubernetes/ingero.yaml").read_text()), "DaemonSet")
    (container,) = daemon["spec"]["template"]["spec"]["containers"]
    rights = container["securityContext"]
    assert rights["privileged"] is False
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["readOnlyRootFilesystem"] is True
    assert rights["capabilities"]["drop"] == ["ALL"]
    assert not any("privileged" in each for each in composed().values())


def test_the_chart_is_of_this_version():
    from ingero import __version__

    assert yaml.safe_load((DEPLOY / "helm/ingero/Chart.yaml").read_text())["appVersion"] == __version__


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_understands_the_unit(tmp_path):
    text = UNIT.read_text().replace("/usr/local/bin/ingero", "/bin/true")  # it need not be installed here
    (tmp_path / UNIT.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / UNIT.name)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_the_exposure_in_the_docs_is_what_systemd_says():
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=100", str(UNIT)],
        capture_output=True, text=True,
    )  # fmt: skip
    score = re.search(r"exposure level for ingero.service: ([0-9.]+)", done.stdout)
    assert score, done.stdout + done.stderr
    assert f"exposure {score[1]}" in (ROOT / "docs/deploy.md").read_text()
