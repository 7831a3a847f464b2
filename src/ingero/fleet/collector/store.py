"""Where rounds are kept: ClickHouse, in a cluster or embedded (chdb), through the same client.

`chdb:///folder` needs no server; `clickhouse://user@host:8443/database?cluster=NAME` is one. A
password comes from the environment. Whoever inserts knows that the rows are in the store when the call
returns.
"""

from __future__ import annotations

import ipaddress
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from ingero import units
from ingero.errors import StoreError, UsageError
from ingero.fleet.collector.tables import COLUMNS, ROUNDS, Rows, statements

PASSWORD = "INGERO_STORE_PASSWORD"
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
# One machine has other things to do than to answer us.
EMBEDDED = {"max_threads": 2, "max_memory_usage": 2 << 30}
QUERY_S = 30


class Address(NamedTuple):
    """What a store's URL says. `folder` is that of an embedded one."""

    folder: Path | None
    host: str = ""
    port: int = 0
    secure: bool = True
    user: str = "default"
    database: str = "ingero"
    cluster: str | None = None

    @property
    def text(self) -> str:
        if self.folder is not None:
            return f"chdb://{self.folder}"
        return f"clickhouse://{self.host}:{self.port}/{self.database}"


def parse(text: str) -> Address:
    """A UsageError says what is wrong with it."""
    found = urlsplit(text)
    if found.scheme == "chdb" and found.path.startswith("/") and not found.netloc:
        return Address(Path(found.path))
    if found.scheme != "clickhouse" or not found.hostname:
        raise UsageError(
            f"--store: not a store: {units.clean(text, 80)!r}",
            hint="Write chdb:///var/lib/ingero/fleet or clickhouse://user@host:8443/ingero?cluster=NAME.",
        )
    if found.password is not None:
        raise UsageError(
            "--store: a password in an address can be read by everybody on this machine",
            hint=f"Put it into {PASSWORD}.",
        )
    more = {key: values[-1] for key, values in parse_qs(found.query).items()}
    secure = more.pop("secure", "0" if _is_loopback(found.hostname) else "1") != "0"
    cluster = more.pop("cluster", None)
    database = found.path.strip("/") or "ingero"
    if more or not all(_WORD.fullmatch(each) for each in (database, cluster or "x")):
        raise UsageError(
            f"--store: not understood: {units.clean(text, 80)!r}",
            hint="Known are ?cluster=NAME and secure=0; names are letters, digits and underscores.",
        )
    port = found.port or (8443 if secure else 8123)
    return Address(None, found.hostname, port, secure, found.username or "default", database, cluster)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Store:
    """Two connections: one writes, the other answers questions."""

    def __init__(self, address: Address, days: int = 14, environ: Mapping[str, str] = os.environ) -> None:
        self.address = address
        self._writer, self._reader = (_client(address, environ) for _ in range(2))
        self._writing, self._asking = (
            threading.Lock(),
            threading.Lock(),
        )  # a connection does one thing at a time
        for statement in statements(address.database, days, address.cluster):
            self._command(statement)

    def _command(self, statement: str) -> None:
        try:
            self._writer.command(statement)
        except _errors() as error:
            raise _failed("cannot make the tables", self.address, error) from error

    def insert(self, rows: Rows) -> None:
        """All of them are there when this returns; where it raises, any part of them may be.

        Rounds come last: who finds one finds its jobs and GPUs, too.
        """
        with self._writing:
            for table, each in sorted(rows.items(), key=lambda pair: pair[0] == ROUNDS):
                if each:
                    self._insert(table, each)

    def _insert(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        try:
            self._writer.insert(table, rows, column_names=COLUMNS[table], database=self.address.database)
        except Exception as error:  # also of sockets, of numbers: it is not stored
            raise _failed(f"cannot write into {table}", self.address, error) from error

    def ask(self, sql: str, **parameters: Any) -> list[dict[str, Any]]:
        """Rows by name of column; `$` before a table's name stands for the database."""
        with self._asking:
            try:
                found = self._reader.query(sql.replace("$", f"{self.address.database}."), parameters)
            except Exception as error:
                raise _failed("cannot be asked", self.address, error) from error
        return list(found.named_results())

    def close(self) -> None:
        for each in (self._writer, self._reader):
            each.close()


def _client(address: Address, environ: Mapping[str, str]) -> Any:
    try:
        import clickhouse_connect
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    try:
        if address.folder is not None:
            address.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return clickhouse_connect.get_client(dsn=f"chdb://{address.folder}", settings=EMBEDDED)
        return clickhouse_connect.get_client(
            host=address.host,
            port=address.port,
            secure=address.secure,
            username=address.user,
            password=environ.get(PASSWORD, ""),
            send_receive_timeout=QUERY_S,
            autogenerate_session_id=False,  # several questions at a time
            settings={"insert_distributed_sync": 1} if address.cluster else None,
        )
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    except _errors(OSError, RuntimeError) as error:
        raise _failed("cannot be opened", address, error) from error


def _missing(error: ModuleNotFoundError) -> UsageError:
    return UsageError(
        f"the collector needs packages that are not installed ({error.name})",
        hint="Install them: pip install 'ingero[fleet]'",
    )


def _errors(*more: type[Exception]) -> tuple[type[Exception], ...]:
    from clickhouse_connect.driver.exceptions import ClickHouseError

    return (ClickHouseError, *more)


def _failed(what: str, address: Address, error: Exception) -> StoreError:
    why = units.clean(str(error).partition("Stack trace")[0], 300)
    hint = "Is another collector using this folder?" if address.folder else "Is the server there?"
    return StoreError(f"the store {address.text} {what}: {why}", hint=hint)
