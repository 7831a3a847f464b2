"""The certificate we make stays the same while the server moves between addresses."""

from __future__ import annotations

from pathlib import Path

from ingero.serve.web.certificates import fingerprint, own_certificate
from ingero.serve.web.private_files import Folder
from ingero.serve.web.server import Address, names_of


def test_the_certificate_is_the_same_at_every_address_it_was_made_for(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    folder = Folder(tmp_path)
    local, everywhere, one = (names_of(Address(host, 8080)) for host in ("127.0.0.1", "", "192.0.2.7"))
    first = fingerprint(own_certificate(folder, local))
    assert fingerprint(own_certificate(folder, everywhere)) == first
    moved = fingerprint(own_certificate(folder, one))
    assert moved != first
    for names in (local, everywhere, one):
        assert fingerprint(own_certificate(folder, names)) == moved
