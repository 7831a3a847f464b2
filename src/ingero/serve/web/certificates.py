"""The certificate a server shows: the user's, or one of its own made at the first start.

Our own signs itself and nothing else: whoever trusts it trusts this server only, which
a private authority could not promise. TLS 1.3 is all we speak.
"""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ingero.errors import UsageError
from ingero.serve.web.private_files import Folder, read_private, read_public, write_whole

if TYPE_CHECKING:
    from cryptography import x509

DAYS = 365
RENEW_DAYS = 30  # before its end
WITH_KEY, FOR_CLIENTS = "server.pem", "certificate.pem"
_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Certificate:
    """Files in PEM; `made` is true for our own, which clients must be told about."""

    chain: Path
    key: Path
    made: bool = False


def given_certificate(chain: Path, key: Path) -> Certificate:
    """The user's own."""
    read_public(chain, "certificate")
    read_private(key, "key")
    return Certificate(chain, key)


def own_certificate(folder: Folder, names: Sequence[str]) -> Certificate:
    """Ours, made when there is none, when it ends soon or when it lacks a name.

    A new one keeps the names of the old one, and each has the host's: whoever starts the server at
    another address, and back again, is shown the same one.
    """
    path = folder.path / WITH_KEY
    known = _names_in(path)
    wanted = list(dict.fromkeys((*known, *names, socket.gethostname().lower())))
    if known != wanted or not _still_good(path):
        both, public = _make(wanted)
        write_whole(folder, WITH_KEY, both)
        write_whole(folder, FOR_CLIENTS, public, mode=0o644)
    return Certificate(folder.path / FOR_CLIENTS, path, made=True)


def tls_context(certificate: Certificate, client_ca: Path | None = None) -> ssl.SSLContext:
    """TLS 1.3; with `client_ca`, only for clients with a certificate it signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        if certificate.made:  # key and certificate in one file, so they always fit each other
            context.load_cert_chain(certificate.key)
        else:
            context.load_cert_chain(certificate.chain, certificate.key, password=_no_password)
    except (ssl.SSLError, OSError) as error:
        raise UsageError(
            f"cannot use the certificate {certificate.chain} with the key {certificate.key}: {_why(error)}",
            hint="Both must be PEM, fit each other, and the key must have no password.",
        ) from error
    if client_ca is not None:
        _require_clients(context, client_ca)
    return context


def ask_clients(context: ssl.SSLContext, client_ca: Path) -> None:
    """Clients may show a certificate of this authority; one of another authority is refused."""
    _require_clients(context, client_ca)
    context.verify_mode = ssl.CERT_OPTIONAL


def fingerprint(certificate: Certificate) -> str:
    """SHA-256, as browsers show it."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    found = x509.load_pem_x509_certificate(read_public(certificate.chain, "certificate"))
    return ":".join(f"{byte:02X}" for byte in found.fingerprint(SHA256()))


def _no_password() -> str:
    raise ssl.SSLError("the key has a password")  # asked for on the terminal otherwise


def _require_clients(context: ssl.SSLContext, client_ca: Path) -> None:
    text = read_public(client_ca, "authority of clients")
    try:
        context.load_verify_locations(cadata=text.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise UsageError(
            f"cannot use {client_ca} to check clients: {_why(error)}",
            hint="It must hold one or more certificates of authorities, in PEM.",
        ) from error
    context.verify_mode = ssl.CERT_REQUIRED


def _why(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)


def _names_in(path: Path) -> list[str]:
    """That the certificate there is for; none where there is none."""
    from cryptography import x509

    found = _certificate(path)
    if found is None:
        return []
    try:
        known = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return []
    return [str(each.value) for each in known]


def _still_good(path: Path) -> bool:
    found = _certificate(path)
    return found is not None and found.not_valid_after_utc > _now() + RENEW_DAYS * _DAY


def _certificate(path: Path) -> x509.Certificate | None:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(read_private(path, "certificate")) if path.exists() else None
    except ValueError:
        return None


def _make(names: Sequence[str]) -> tuple[bytes, bytes]:
    """Key and certificate in one, and the certificate alone."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ingero")])
    subject_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - _DAY)  # clocks differ
        .not_valid_after(_now() + DAYS * _DAY)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_signing_only(), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(subject_key, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(subject_key), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return secret + public, public


def _signing_only() -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=False, crl_sign=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _general(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
