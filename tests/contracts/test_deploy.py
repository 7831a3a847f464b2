"""What is deployed is valid, says what the docs say, and asks for no more than it needs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ingero import privileges
from ingero.store.location import SERVICES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd/ingero.service"


def test_the_one_file_can_unpack_itself_below_the_unit():
    assert "place=/var/cache/ingero" in (ROOT / "tools/onefile_head.sh").read_text()
    assert "\nCacheDirectory=ingero\n" in UNIT.read_text()


def composed() -> dict[str, dict]:
    return yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())["services"]


def test_compose_keeps_to_the_specification():
    told = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec",
         str(DEPLOY / "compose/compose.yaml")], capture_output=True, text=True,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout


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
    from ingero.serve.web import certificates, sessions

    (job,) = yaml.safe_load((DEPLOY / "compose/prometheus.yml").read_text())["scrape_configs"]
    made = "/ingero/.ingero/server"  # the agent's HOME is the volume
    assert "state:/ingero:ro" in composed()["prometheus"]["volumes"]
    assert job["authorization"]["credentials_file"] == f"{made}/{sessions.OWN_FILE}"
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


def test_hint_and_docs_name_the_recording_that_the_unit_writes():
    assert f"\nEnvironment=INGERO_DB={SERVICES}\n" in UNIT.read_text()
    assert f"ingero explain -d {SERVICES}" in (ROOT / "docs/deploy.md").read_text()


def test_the_docs_say_that_the_image_has_to_come_from_somewhere():
    """The name in values.yaml is no registry's."""
    repository = yaml.safe_load((DEPLOY / "helm/ingero/values.yaml").read_text())["image"]["repository"]
    assert "/" not in repository
    assert "--set image.repository=" in (ROOT / "docs/deploy.md").read_text()


def test_chart_compose_unit_and_docs_ask_for_the_same_capabilities():
    asked = asked_for()
    assert asked["chart"] == asked["compose"] == asked["unit"] == asked["docs"]
    assert asked["chart"] <= set(privileges.KEPT)


def test_no_container_of_compose_is_privileged():
    assert not any("privileged" in each for each in composed().values())


def test_grafana_has_no_administrator_whose_password_everybody_knows():
    said = composed()["grafana"]["environment"]
    assert said["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert said["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"


def test_what_compose_publishes_is_for_this_machine_alone():
    ports = [port for each in composed().values() for port in each.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


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
