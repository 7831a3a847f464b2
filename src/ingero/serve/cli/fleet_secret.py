"""The secret that nodes' tokens are made from: the user's, or one made at the first start."""

from __future__ import annotations

import secrets
from pathlib import Path

from ingero.errors import UsageError

NAME = "node-secret"


def node_secret_of(named: Path | None) -> bytes:
    from ingero.serve.answers.places import owner_of_new_files, state_folder
    from ingero.serve.web.private_files import Folder, read_private, write_whole

    if named is None:
        folder = Folder(state_folder() / "server", owner_of_new_files())
        named = folder.path / NAME
        if not named.exists():
            write_whole(folder, NAME, f"{secrets.token_urlsafe(32)}\n".encode())
    secret = read_private(named, "node secret").strip()
    if len(secret) < 16:
        raise UsageError(
            f"the node secret in {named} is too easy to guess",
            hint="Use at least 16 letters and digits, for example from: openssl rand -hex 32",
        )
    return secret
