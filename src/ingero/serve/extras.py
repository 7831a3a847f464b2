"""How an extra gets to where this program is: what hints say instead of `pip install 'ingero[web]'`.

In the environment that pipx made there is no pip, and Debian's own refuses. A wheel that is in no index
is named as the file it was installed from.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMAND = re.compile(r"pip install '(ingero\[[a-z-]+\])'")
PIPX_MADE = "pipx_metadata.json"  # lies in each environment of pipx


def installable(text: str) -> str:
    """The text with `pip install 'ingero[...]'` written so that it runs as it stands."""
    return COMMAND.sub(lambda found: _into(Path(sys.prefix), found[1]), text)


def _into(environment: Path, extra: str) -> str:
    wheel = _wheel()
    wanted = shlex.quote(f"{extra} @ {wheel}") if wheel else f"'{extra}'"
    sudo = "" if os.access(environment, os.W_OK) else "sudo "
    if (environment / PIPX_MADE).is_file():
        pipx, home = environment.parents[1], os.environ.get("HOME")
        of_all = "" if home and pipx.is_relative_to(home) else f"PIPX_HOME={shlex.quote(str(pipx))} "
        return f"{sudo}{of_all}pipx inject ingero {wanted}"
    pip = environment / "bin/pip"
    if sys.prefix != sys.base_prefix and shutil.which("pip") != str(pip):
        return f"{sudo}{shlex.quote(str(pip))} install {wanted}"
    return f"pip install {wanted}"


def _wheel() -> str | None:
    """Where it was installed from, if that is a file that is still there."""
    try:
        said = metadata.distribution("ingero").read_text("direct_url.json")
        url = str(json.loads(said)["url"]) if said else ""
        there = url.endswith(".whl") and Path(unquote(urlsplit(url).path)).is_file()
    except (metadata.PackageNotFoundError, ValueError, KeyError, TypeError, OSError):
        return None
    return url if there and url.startswith("file://") else None
