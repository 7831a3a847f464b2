"""ingero.yaml: what is accepted, and how a mistake is pointed at."""

import contextlib
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ingero import config
from ingero.errors import ConfigError, UsageError

ARTICLE = b"""\
agent:
  node: gpu-node-01
  max_overhead: off
fleet:
  nodes:
    - gpu-node-01:8080
    - gpu-node-02:8080
"""


def wrong(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        config.parse(text.encode(), "ingero.yaml")
    return caught.value


def test_the_file_of_the_articles_is_accepted() -> None:
    found = config.parse(ARTICLE, "ingero.yaml")
    assert found.agent.node == "gpu-node-01"
    assert found.agent.max_overhead == "off"
    assert found.fleet.nodes == ["gpu-node-01:8080", "gpu-node-02:8080"]


def test_an_empty_file_means_the_defaults() -> None:
    assert config.parse(b"", "f") == config.parse(b"# nothing\n", "f") == config.Config()


def test_an_unknown_key_is_an_error_with_its_line_and_a_guess() -> None:
    error = wrong("log:\n  level: info\nagent:\n  node: a\n  max_dbs: 1g\n")
    assert error.message == "ingero.yaml, line 5: unknown key agent.max_dbs"
    assert error.hint == "Did you mean max_db?"
    assert error.exit_code == 2


def test_an_unknown_section_is_an_error_with_its_line() -> None:
    error = wrong("\n\nagnet:\n  node: a\n")
    assert error.message == "ingero.yaml, line 3: unknown key agnet"
    assert "agent" in error.hint


@pytest.mark.parametrize(
    "text, line, what",
    [
        ("agent:\n  record: maybe\n", 2, "agent.record"),
        ("agent:\n  record: yes\n", 2, "agent.record"),
        ("trace:\n  pid:\n    - 12\n    - x\n", 4, "trace.pid"),
        ("trace:\n  pid: [12, 0]\n", 2, "trace.pid"),
        ("log:\n  file: a\n  level: loud\n", 3, "log.level"),
        ("agent:\n  stack: true\n  max_db: lots\n", 3, "agent.max_db"),
        ("agent:\n  max_overhead: 300%\n", 2, "agent.max_overhead"),
        ("agent:\n  node: a:b\n", 2, "agent.node"),
        ("trace:\n  duration: 5 parsecs\n", 2, "trace.duration"),
        ("query:\n  limit: 0\n", 2, "query.limit"),
        ("fleet:\n  nodes: [a:1, 'b c']\n", 2, "fleet.nodes"),
        ("agent: 3\n", 1, "agent"),
        ("- a\n", 1, "the file"),
    ],
)
def test_a_wrong_value_is_reported_with_its_line(text: str, line: int, what: str) -> None:
    error = wrong(text)
    assert error.message.startswith(f"ingero.yaml, line {line}: {what}"), error.message
    assert error.hint


def test_yaml_that_does_not_parse_is_reported_with_its_line() -> None:
    assert wrong("agent:\n  node: 'a\n").message.startswith("ingero.yaml, line ")
    assert "line 3" in wrong("agent:\n  node: a\n  node: b\n").message
    assert "line 2: aliases are not allowed" in wrong("agent: &a {}\nlog: *a\n").message
    assert "line 1" in wrong("agent: !!python/object/apply:os.system ['true']\n").message


@given(st.binary(max_size=200))
def test_whatever_the_file_holds_it_is_a_configuration_or_a_config_error(text: bytes) -> None:
    with contextlib.suppress(ConfigError):
        assert isinstance(config.parse(text, "f"), config.Config)


def test_the_named_file_wins_and_must_exist(tmp_path: Path) -> None:
    named = tmp_path / "mine.yaml"
    named.write_text("agent:\n  node: named\n")
    other = tmp_path / "other.yaml"
    other.write_text("agent:\n  node: variable\n")
    environ = {"INGERO_CONFIG": str(other), "HOME": str(tmp_path)}
    assert config.load(named, environ).agent.node == "named"
    assert config.load(None, environ).agent.node == "variable"
    with pytest.raises(ConfigError, match="cannot read"):
        config.load(tmp_path / "none.yaml", environ)


def test_the_working_directory_comes_before_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home/.config/ingero"
    home.mkdir(parents=True)
    (home / "ingero.yaml").write_text("agent:\n  node: home\n")
    monkeypatch.chdir(tmp_path)
    environ = {"HOME": str(tmp_path / "home")}
    assert config.load(None, environ).agent.node == "home"
    (tmp_path / "ingero.yaml").write_text("agent:\n  node: here\n")
    assert config.load(None, environ).agent.node == "here"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to be careful")
def test_root_does_not_obey_a_file_others_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tmp_path / "ingero.yaml"
    found.write_text("log:\n  file: /etc/passwd\n")
    monkeypatch.chdir(tmp_path)
    found.chmod(0o666)
    with pytest.raises(ConfigError, match="changed by other users"):
        config.load(None, {})
    assert config.load(found, {}).log.file == "/etc/passwd"
    found.chmod(0o644)
    os.chown(found, 4242, 4242)
    with pytest.raises(ConfigError, match="changed by other users"):
        config.load(None, {})
    assert config.load(None, {"SUDO_UID": "4242"}).log.file == "/etc/passwd"


def test_variables_override_the_file() -> None:
    before = config.parse(b"agent:\n  node: file\n  max_db: 1g\nlog:\n  level: error\n", "f")
    after = config.with_variables(
        before, {"INGERO_NODE": "variable", "INGERO_PID": "1,2", "INGERO_LOG_LEVEL": ""}
    )
    assert (after.agent.node, after.agent.max_db, after.log.level) == ("variable", "1g", "error")
    assert after.trace.pid == [1, 2]


@pytest.mark.parametrize(
    "name, value", [("INGERO_MAX_DB", "x"), ("INGERO_RECORD", "x"), ("INGERO_PID", "1,b")]
)
def test_a_wrong_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        config.with_variables(config.Config(), {name: value})


def test_every_key_has_a_meaning_and_a_variable_of_its_own() -> None:
    keys = config.keys()
    assert {(key.section, key.name) for key in keys} >= {("agent", "max_overhead"), ("fleet", "nodes")}
    assert all(key.description and key.variable.startswith("INGERO_") for key in keys)
    assert len({key.variable for key in keys}) == len(keys)


def example() -> str:
    page = (Path(__file__).parents[2] / "docs/configuration.md").read_text(encoding="utf-8")
    return page.partition("```yaml\n")[2].partition("```")[0]


def test_the_example_in_the_documentation_loads_and_has_every_key() -> None:
    found = config.parse(example().encode(), "ingero.yaml")
    written = yaml.safe_load(example())
    for key in list(config.keys()):
        value = getattr(getattr(found, key.section), key.name)
        assert value not in (None, [], {}), key
        assert str(written[key.section][key.name]) == str(value), key


@pytest.mark.parametrize("key", config.keys(), ids=lambda key: f"{key.section}.{key.name}")
def test_each_line_of_the_example_is_accepted_by_itself(key: config.Key) -> None:
    line = next(
        each
        for each in example().partition(f"{key.section}:\n")[2].splitlines()
        if each.startswith(f"  {key.name}:")
    )
    config.parse(f"{key.section}:\n{line}\n".encode(), "ingero.yaml")


def test_an_overhead_is_a_percentage_or_off() -> None:
    assert config.parse_overhead("2%") == 0.02
    assert config.parse_overhead("0.5 %") == 0.005
    assert config.parse_overhead("OFF") is None
    for text in ("0", "101%", "-1%", "two", "", "1e1"):
        with pytest.raises(UsageError):
            config.parse_overhead(text)


@pytest.mark.parametrize(
    "text", [b"agent:\n  [a, b]: 1\n", b"agent:\n  {a: 1}: 2\n", b"agent:\n  ? - a\n  : 1\n"]
)
def test_a_key_that_is_no_word_is_reported_with_its_line(text: bytes) -> None:
    with pytest.raises(ConfigError, match="line 2: a key has to be a word"):
        config.parse(text, "ingero.yaml")


@pytest.mark.parametrize(
    "url", ["https://fd00::7:10250", "https://[fd00::7]:10250", "http://127.0.0.1:10255"]
)
def test_a_kubelet_may_be_at_any_kind_of_address(url: str) -> None:
    assert config.with_variables(config.Config(), {"INGERO_KUBELET": url}).kubernetes.kubelet == url
