"""Print the version: the one place it is written is src/ingero/__init__.py."""

from __future__ import annotations

import re
from pathlib import Path

text = (Path(__file__).parent.parent / "src/ingero/__init__.py").read_text()
match = re.search(r'__version__ = "([^"]+)"', text)
assert match is not None
print(match.group(1))
