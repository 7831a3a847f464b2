"""Every error a user can meet, in one tree.

IngeroError                 what failed, on what, why; hint says what to do next
├── UsageError              wrong flags or values (exit 2)
├── ConfigError             a mistake in ingero.yaml, with its line (exit 2)
├── PrivilegeError          a capability or permission is missing
├── KernelError             the kernel lacks or refuses something we need
├── AttachError             a probe or library cannot be attached
├── TargetError             no such process, user, container, or it is gone
├── FileFormatError         an ELF file or recording that cannot be understood
└── StoreError              the database
    ├── StoreBusyError      locked by somebody else
    ├── StoreFullError      no space left
    └── StoreVersionError   written by a newer version, or not one of ours

The CLI catches IngeroError once and prints it. Any other exception is a bug of
ours and keeps its traceback.
"""

from __future__ import annotations


class IngeroError(Exception):
    """Something failed in a way the user can act on."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(IngeroError):
    """Wrong flags or values."""

    exit_code = 2


class ConfigError(IngeroError):
    """A mistake in the configuration file."""

    exit_code = 2


class PrivilegeError(IngeroError):
    """A capability or permission is missing."""


class KernelError(IngeroError):
    """The kernel lacks or refuses something we need."""


class AttachError(IngeroError):
    """A probe or library cannot be attached."""


class TargetError(IngeroError):
    """No such process, user or container, or it is gone."""


class FileFormatError(IngeroError):
    """An ELF file or recording that cannot be understood."""


class StoreError(IngeroError):
    """The database cannot be read or written."""


class StoreBusyError(StoreError):
    """The database is locked by somebody else."""


class StoreFullError(StoreError):
    """No space is left for the database."""


class StoreVersionError(StoreError):
    """The database was written by a newer version, or is not one of ours."""
