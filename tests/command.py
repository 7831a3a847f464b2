"""The `ingero` that tests start: the installed one, or the file that INGERO_COMMAND names."""

from __future__ import annotations

import os
import sys

INGERO = (
    (os.environ["INGERO_COMMAND"],) if "INGERO_COMMAND" in os.environ else (sys.executable, "-m", "ingero")
)
