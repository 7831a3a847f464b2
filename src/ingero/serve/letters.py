"""What stands for the characters that a terminal without Unicode does not have; one for one: columns stay."""

from __future__ import annotations

import re
from collections.abc import Mapping

# The marks of buckets stay different from each other and from plain letters in a bar.
_INSTEAD = str.maketrans(
    "█▓▒░▁▂▃▄▅▆▇│┃─━┼┌┐└┘├┤┬┴╭╮╰╯·…→⚠µ≥“”▼▎▊",
    '@co._.:-=+*||--++++++++++++\'.~>!u>""v||',
)
_OTHERS = re.compile(r"[^\x00-\x7f]")
_PLAIN_TERMINALS = ("linux", "vt100", "vt220", "ansi")


def has_unicode(environment: Mapping[str, str]) -> bool:
    """Whether whoever set this environment says that the terminal shows more than ASCII.

    Python turns LANG=C into LC_CTYPE=C.UTF-8 for itself, which says nothing about the terminal.
    """
    if environment.get("TERM", "") in _PLAIN_TERMINALS:
        return False
    ctype = environment.get("LC_CTYPE", "")
    said = [environment.get("LC_ALL", ""), "" if ctype == "C.UTF-8" else ctype, environment.get("LANG", "")]
    locale = next((each for each in said if each), "")
    return not locale or "utf" in locale.lower()


def to_ascii(text: str) -> str:
    return text if text.isascii() else _OTHERS.sub("?", text.translate(_INSTEAD))
