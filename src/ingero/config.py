"""ingero.yaml: every key, its meaning, its variable and its default, in one place.

A mistake is reported with its line: the file is composed into YAML nodes, which
know where they stand, and the path msgspec complains about is looked up there.
Words are YAML 1.2 ones: `off` is text, only true and false are booleans.
Flags override variables, variables the file, the file the defaults below; flags
are not known here. No key holds a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
import yaml
from msgspec import Meta

from ingero import units
from ingero.config_fleet import Collector, Fleet
from ingero.config_keys import Section
from ingero.config_keys import key as _key
from ingero.config_tenants import Cost, Kubernetes
from ingero.errors import ConfigError, IngeroError, UsageError

FILE_NAME = "ingero.yaml"
MAX_FILE_BYTES = 1 << 20
LogLevel = Literal["debug", "info", "warning", "error"]


class Agent(Section, frozen=True):
    """How a trace runs and what it keeps."""

    node: Annotated[
        str | None,
        _key("Name of this machine in every record; its host name if not set.", "INGERO_NODE", "node"),
    ] = None
    max_overhead: Annotated[
        str | int | float,
        _key(
            "Limit on what tracing may cost a traced thread: a percentage, or `off`.",
            "INGERO_MAX_OVERHEAD",
            "overhead",
        ),
    ] = "2%"
    record: Annotated[bool, _key("Write a database.", "INGERO_RECORD")] = True
    record_all: Annotated[
        bool, _key("Record every call, not only those that matter.", "INGERO_RECORD_ALL")
    ] = False
    max_db: Annotated[
        str | int, _key("Maximum size of the database; `0` is no limit.", "INGERO_MAX_DB", "size")
    ] = "10g"
    stack: Annotated[
        bool,
        _key(
            "Record where calls, waits and samples come from: Python lines, native functions.", "INGERO_STACK"
        ),
    ] = True


class Trace(Section, frozen=True):
    """What `ingero trace` looks at unless flags say otherwise."""

    pid: Annotated[
        list[Annotated[int, Meta(ge=1)]],
        _key("Processes, with their descendants; all CUDA processes if empty.", "INGERO_PID"),
    ] = msgspec.field(default_factory=list)
    user: Annotated[str | None, _key("Only processes of this user, by name or number.", "INGERO_USER")] = None
    container: Annotated[
        str | None, _key("Only this container, by id or the beginning of one.", "INGERO_CONTAINER")
    ] = None
    duration: Annotated[
        str | int | None,
        _key("Stop after this time; runs until stopped if not set.", "INGERO_DURATION", "duration"),
    ] = None


class Log(Section, frozen=True):
    """The agent's own messages."""

    level: Annotated[
        LogLevel,
        _key("Lowest level of messages to show: `debug`, `info`, `warning` or `error`.", "INGERO_LOG_LEVEL"),
    ] = "warning"
    file: Annotated[
        str | None, _key("Append messages to this file instead of standard error.", "INGERO_LOG_FILE")
    ] = None


class Query(Section, frozen=True):
    """Bounds on `ingero query`."""

    limit: Annotated[int, Meta(ge=1), _key("Maximum number of rows in an answer.", "INGERO_QUERY_LIMIT")] = (
        10_000
    )
    timeout: Annotated[
        str | int, _key("How long a statement may run.", "INGERO_QUERY_TIMEOUT", "duration")
    ] = "30s"


class Server(Section, frozen=True):
    """Who may connect to `dashboard`, `mcp --http`, `trace --prometheus`. A token: INGERO_TOKEN or a file."""

    cert: Annotated[str | None, _key("Certificate in PEM; one is made if not set.", "INGERO_TLS_CERT")] = None
    key: Annotated[str | None, _key("File with its private key in PEM.", "INGERO_TLS_KEY")] = None
    client_ca: Annotated[
        str | None,
        _key("Accept only clients with a certificate signed by a CA in this file.", "INGERO_CLIENT_CA"),
    ] = None
    token_file: Annotated[
        str | None, _key("File with the accepted bearer tokens, one per line.", "INGERO_TOKEN_FILE")
    ] = None
    allowed_hosts: Annotated[list[str], _key("Other host names of this machine.", "INGERO_ALLOWED_HOSTS")] = (
        msgspec.field(default_factory=list)
    )


class Prometheus(Section, frozen=True):
    """Metrics for Prometheus while `ingero trace` runs. Who may read them: see `server`."""

    address: Annotated[
        str | None,
        _key("Serve metrics here, as `--prometheus` does; not served if not set.", "INGERO_PROMETHEUS"),
    ] = None


class Otlp(Section, frozen=True):
    """Metrics and findings sent to an OTLP receiver. The `OTEL_EXPORTER_OTLP_*` variables count too."""

    endpoint: Annotated[
        str | None,
        _key("Send here, as `--otlp` does. Default: `OTEL_EXPORTER_OTLP_ENDPOINT`.", "INGERO_OTLP"),
    ] = None
    protocol: Annotated[
        Literal["http", "grpc"] | None,
        _key("`http` or `grpc`; else `OTEL_EXPORTER_OTLP_PROTOCOL`, else `http`.", "INGERO_OTLP_PROTOCOL"),
    ] = None
    interval: Annotated[
        str | int, _key("How often metrics are sent.", "INGERO_OTLP_INTERVAL", "duration")
    ] = "10s"
    timeout: Annotated[str | int, _key("How long a request may take.", "INGERO_OTLP_TIMEOUT", "duration")] = (
        "10s"
    )
    longest_pause: Annotated[
        str | int,
        _key("Longest pause before a retry.", "INGERO_OTLP_LONGEST_PAUSE", "duration"),
    ] = "30s"
    headers_file: Annotated[
        str | None,
        _key(
            "Private file with `name: value` lines; else `OTEL_EXPORTER_OTLP_HEADERS`.",
            "INGERO_OTLP_HEADERS_FILE",
        ),
    ] = None
    ca: Annotated[str | None, _key("CA of the receiver's certificate (PEM).", "INGERO_OTLP_CA")] = None
    client_cert: Annotated[str | None, _key("Our certificate, PEM.", "INGERO_OTLP_CLIENT_CERT")] = None
    client_key: Annotated[str | None, _key("File with its key (PEM).", "INGERO_OTLP_CLIENT_KEY")] = None


class Metrics(Section, frozen=True):
    """How many series there may be, for Prometheus and OTLP."""

    processes: Annotated[
        int,
        Meta(ge=1, le=1024),
        _key("How many processes get their own series; the rest share `other`.", "INGERO_METRICS_PROCESSES"),
    ] = 32
    operations: Annotated[
        int,
        Meta(ge=1, le=256),
        _key("How many operations of a process get their own series.", "INGERO_METRICS_OPERATIONS"),
    ] = 24
    keep: Annotated[
        str | int,
        _key("How long the series of an ended process are kept.", "INGERO_METRICS_KEEP", "duration"),
    ] = "5m"


class Config(Section, frozen=True):
    """The whole file."""

    agent: Agent = Agent()
    trace: Trace = Trace()
    log: Log = Log()
    query: Query = Query()
    server: Server = Server()
    prometheus: Prometheus = Prometheus()
    otlp: Otlp = Otlp()
    metrics: Metrics = Metrics()
    fleet: Fleet = Fleet()
    collector: Collector = Collector()
    kubernetes: Kubernetes = Kubernetes()
    cost: Cost = Cost()


class Key(msgspec.Struct, frozen=True):
    """One key, as documented."""

    section: str
    name: str
    description: str
    variable: str
    check: str
    default: Any


def keys() -> list[Key]:
    """Every key there is, in file order."""
    found = []
    for section in msgspec.structs.fields(Config):
        hints = get_type_hints(section.type, include_extras=True)
        for item in msgspec.structs.fields(section.type):
            meta = next(m for m in get_args(hints[item.name])[1:] if m.description)
            default = item.default_factory() if item.default is msgspec.NODEFAULT else item.default
            extra = meta.extra
            found.append(
                Key(section.name, item.name, meta.description, extra["variable"], extra["check"], default)
            )
    return found


def parse_overhead(text: str) -> float | None:
    """`2%` as a share of one; None for `off`."""
    if text.strip().lower() == "off":
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%?\s*", text)
    share = float(match[1]) / 100 if match else 0.0
    if not 0 < share <= 1:
        raise UsageError(f"not a percentage: {units.clean(text)!r}", hint="Write 2%, 0.5% or off.")
    return share


def check_node(text: str) -> str:
    """A node's name; a colon would make `node:id` ambiguous."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", text):
        raise UsageError(
            f"not a node name: {units.clean(text)!r}",
            hint="Use letters, digits, dots, dashes and underscores.",
        )
    return text


def _check_addresses(nodes: list[str]) -> None:
    for node in nodes:
        if not re.fullmatch(r"@.+|(https?://)?(\[[0-9a-fA-F:]+\]|[^\s:/\[\]]+)(:\d{1,5})?", node):
            raise UsageError(f"not an address: {units.clean(node)!r}", hint="Write HOST:PORT, or @FILE.")


def _check_url(text: str) -> None:
    # An IPv6 address without brackets is what Kubernetes tells a pod of its node.
    host = r"(\[[0-9a-fA-F:]+\]|[0-9a-fA-F]*:[0-9a-fA-F:]+|[^\s:/\[\]@]+)"
    if not re.fullmatch(rf"(https?://)?{host}(:\d{{1,5}})?/?", text):
        raise UsageError(f"not an address: {units.clean(text)!r}", hint="Write https://HOST:PORT.")


CHECKS: dict[str, Any] = {
    "": lambda value: value,
    "node": lambda value: check_node(value) if value is not None else None,
    "overhead": lambda value: parse_overhead(str(value)),
    "size": lambda value: units.parse_size(str(value)),
    "duration": lambda value: units.parse_duration(str(value)) if value is not None else None,
    "addresses": _check_addresses,
    "url": lambda value: _check_url(value) if value is not None else None,
}


def load(named: Path | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """The configuration in force: defaults, then the file, then the variables."""
    environ = os.environ if environ is None else environ
    path = find(named, environ)
    config = parse(path.read_bytes(), str(path)) if path is not None else Config()
    return with_variables(config, environ)


def find(named: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The file to read: the one named, else the first that exists and may be trusted."""
    if named is None and environ.get("INGERO_CONFIG"):
        named = Path(environ["INGERO_CONFIG"])
    if named is not None:
        return _readable(named)
    found = next((path for path in _places(environ) if _is_file(path)), None)
    if found is None:
        return None
    _refuse_foreign(found, environ)
    return _readable(found)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a home that is not ours to look into
        return False


def _places(environ: Mapping[str, str]) -> list[Path]:
    home = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or "/") / ".config")
    return [Path(FILE_NAME), home / "ingero" / FILE_NAME, Path("/etc/ingero") / FILE_NAME]


def _readable(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        hint = "Check the path given with --config or INGERO_CONFIG."
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint=hint) from error
    if size > MAX_FILE_BYTES:
        raise ConfigError(f"{path} is larger than 1 MiB", hint="This is not a configuration file.")
    return path


def _refuse_foreign(path: Path, environ: Mapping[str, str]) -> None:
    # As root, a file that somebody else left in a directory would choose where we write.
    if os.geteuid() != 0:
        return
    info = path.stat()
    owners = {0} | ({int(environ["SUDO_UID"])} if environ.get("SUDO_UID", "").isdigit() else set())
    if info.st_uid not in owners or info.st_mode & 0o022:
        raise ConfigError(
            f"{path} can be changed by other users, and ingero runs as root",
            hint=f"Pass --config {path} if it is meant, or fix it with chown and chmod 644.",
        )


class _Loader(yaml.SafeLoader):
    """YAML 1.2 words, no aliases (a few lines of them can stand for gigabytes), no key twice."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed", mark)
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.composer.ComposerError(None, None, "a key has to be a word", key.start_mark)
            if key.value in seen:
                raise yaml.composer.ComposerError(None, None, f"{key.value} is given twice", key.start_mark)
            seen.add(str(key.value))
        return node


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), list(_first))


def parse(text: bytes, name: str) -> Config:
    """The configuration in `text`; `name` stands in messages."""
    node, value = _compose(text, name)
    try:
        config = msgspec.convert(value if value is not None else {}, Config)
    except msgspec.ValidationError as error:
        raise _located(str(error), node, name) from error
    _check_values(config, lambda key: f"{name}, line {_line(node, [key.section, key.name])}")
    return config


def _compose(text: bytes, name: str) -> tuple[Any, Any]:
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        return node, loader.construct_document(node) if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(
            f"{name}{where}: {units.clean(str(error.problem))}", hint="Fix the YAML."
        ) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{name}: not YAML: {units.clean(str(error))}", hint="Fix the YAML.") from error


def _located(complaint: str, node: Any, name: str) -> ConfigError:
    what, _, where = complaint.partition(" - at `")
    path = re.findall(r"[A-Za-z_]\w*|\d+", where)
    unknown = re.search(r"unknown field `(.*)`", what)
    if unknown:
        return _unknown_key(unknown[1], path, node, name)
    dotted = ".".join(path) or "the file"
    what = what[:1].lower() + what[1:].replace("`", "")
    hint = (
        "Write true or false." if "Expected `bool`" in complaint else "docs/configuration.md lists every key."
    )
    return ConfigError(f"{name}, line {_line(node, path)}: {dotted}: {what}", hint=hint)


def _unknown_key(key: str, path: list[str], node: Any, name: str) -> ConfigError:
    import difflib

    struct = type(getattr(Config(), path[0])) if path else Config
    close = difflib.get_close_matches(key, struct.__struct_fields__, 1, 0.5)
    dotted = units.clean(".".join([*path, key]))
    hint = f"Did you mean {close[0]}?" if close else f"Known here: {', '.join(struct.__struct_fields__)}."
    return ConfigError(f"{name}, line {_line(node, [*path, key])}: unknown key {dotted}", hint=hint)


def _line(node: Any, path: list[str]) -> int:
    """The line of the innermost part of `path` that is in the file."""
    line = node.start_mark.line + 1 if node is not None else 1
    for part in path:
        if isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
            node = node.value[int(part)]
            line = node.start_mark.line + 1
            continue
        pair = next(
            (p for p in getattr(node, "value", ()) if isinstance(p, tuple) and p[0].value == part), None
        )
        if pair is None:
            return int(line)
        line, node = pair[0].start_mark.line + 1, pair[1]
    return int(line)


def _check_values(config: Config, where: Any) -> None:
    for key in keys():
        value = getattr(getattr(config, key.section), key.name)
        try:
            CHECKS[key.check](value)
        except IngeroError as error:
            raise ConfigError(
                f"{where(key)}: {key.section}.{key.name}: {error.message}", hint=error.hint
            ) from error


def with_variables(config: Config, environ: Mapping[str, str]) -> Config:
    """`config` with the INGERO_* variables on top; an empty one counts as not set."""
    changed: dict[str, Any] = msgspec.to_builtins(config)
    given = {key.variable: key for key in keys() if environ.get(key.variable)}
    for variable, key in given.items():
        text = environ[variable]
        value: Any = text.split(",") if isinstance(key.default, list | dict) else text
        if isinstance(key.default, dict):  # H100=2.49,A100=1.85
            value = {name.strip(): price for name, _, price in (each.partition("=") for each in value)}
        try:
            changed[key.section] = changed[key.section] | {key.name: value}
            config = msgspec.convert(changed, Config, strict=False)
            CHECKS[key.check](getattr(getattr(config, key.section), key.name))
        except msgspec.ValidationError as error:
            what = str(error).partition(" - at ")[0].replace("`", "")
            raise ConfigError(
                f"{variable}: {what[:1].lower()}{what[1:]}", hint=f"{key.description}"
            ) from error
        except IngeroError as error:
            raise ConfigError(f"{variable}: {error.message}", hint=error.hint) from error
    return config
