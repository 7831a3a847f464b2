"""The support bundle helps and tells no secrets."""

from __future__ import annotations

import gzip
import json
import os
import sys
import tarfile
from pathlib import Path

import pytest

from ingero.discover.support import masked_command, masked_environment, masked_text, support_bundle
from ingero.errors import UsageError
from ingero.model.check_line import Check

from .conftest import LOAD, Build, Start

SECRETS = ("hunter2", "hf_abcdefghijklmnop", "s3cr3tvalue")


def test_the_bundle_holds_checks_and_host_files_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    members = support_bundle(path, [Check("kernel", "ok", "6.18")])
    assert path.stat().st_mode & 0o077 == 0
    with tarfile.open(path) as archive:
        assert sorted(archive.getnames()) == [f"ingero-support/{name}" for name in members]
        listed = archive.extractfile("ingero-support/checks.json")
        assert listed is not None
        assert json.load(listed)[0]["value"] == "6.18"
    assert "host/proc/version" in members
    assert list(tmp_path.iterdir()) == [path]


def test_no_secret_of_environment_or_command_line_gets_in(
    start: Start, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INGERO_TOKEN", SECRETS[0])
    monkeypatch.setenv("CUDA_CACHE_PATH", f"https://user:{SECRETS[2]}@host/")
    monkeypatch.setenv("WANDB_API_KEY", SECRETS[1])
    library = build(tmp_path / "libcudart.so.13", "int cudaMalloc(void) { return 0; }")
    child = start(sys.executable, "-c", LOAD.replace("sys.argv[1:]", "sys.argv[1:2]"), str(library), *SECRETS)
    path = tmp_path / "bundle.tar.gz"
    support_bundle(path, [Check("x", "ok", f"password={SECRETS[0]}")])
    content = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
    assert f'"pid": {child.pid}' in content
    assert "CUDA_CACHE_PATH" in content
    assert not any(secret in content for secret in SECRETS)


def test_a_link_in_the_way_is_replaced_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "bundle").symlink_to(victim)
    support_bundle(tmp_path / "bundle", [])
    assert victim.read_text() == "precious"
    assert not (tmp_path / "bundle").is_symlink()


def test_a_place_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        support_bundle(tmp_path / "missing" / "bundle", [])
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="cannot write"):
        support_bundle(tmp_path / "folder", [])
    assert os.listdir(tmp_path) == ["folder"]  # noqa: PTH208


@pytest.mark.parametrize(
    "arguments, shown",
    [
        (["python", "train.py", "--token", "x"], "python train.py (and 2 arguments)"),
        (["python", "-m", "torch.distributed.run", "a"], "python -m torch.distributed.run (and 1 arguments)"),
        (["python", "-c", "key='x'"], "python (and 2 arguments)"),
        (["postgres: user password [local]"], "postgres:"),
        (["./train"], "./train"),
        ([], ""),
    ],
)
def test_of_a_command_line_only_program_and_script_are_shown(arguments: list[str], shown: str) -> None:
    assert masked_command(arguments) == shown


def test_only_variables_that_matter_are_kept_and_secret_names_masked() -> None:
    env = {"NCCL_DEBUG": "INFO", "SLURM_JWT": "x", "HOME": "/root", "INGERO_API_KEY": "x", "RANK": "0"}
    assert masked_environment(env) == {
        "INGERO_API_KEY": "***",
        "NCCL_DEBUG": "INFO",
        "RANK": "0",
        "SLURM_JWT": "***",
    }


@pytest.mark.parametrize(
    "text, shown",
    [
        ("postgres://me:pw@host/db", "postgres://***@host/db"),
        ("user=a,password=b,x=c", "user=a,password=***,x=c"),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("--key sk-abcdefghijkl", "--key ***"),
        ("/usr/lib/libcuda.so.1", "/usr/lib/libcuda.so.1"),
    ],
)
def test_credentials_within_text_are_masked(text: str, shown: str) -> None:
    assert masked_text(text) == shown
