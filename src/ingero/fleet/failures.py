"""Why a node did not answer, in words people can act on: the errors of sockets, TLS and HTTP, told apart."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from ingero.units import clean, format_bytes

MOST_TEXT = 300
ANOTHER = "It may be no ingero, or one of another version."


class Problem(StrEnum):
    """The kinds there are; scripts tell them apart by these words."""

    DOWN = "down"
    SLOW = "slow"
    CERTIFICATE = "certificate"
    TLS = "tls"
    REFUSED = "refused"
    FOREIGN = "foreign"  # no ingero, or one that does not know the question
    GARBAGE = "garbage"
    TOO_LARGE = "too-large"
    FAILED = "failed"  # it answered that it cannot
    SAME = "same"  # another address of a server that answered already


class Failure(msgspec.Struct, frozen=True):
    """What stands in an answer in place of a node's own."""

    problem: Problem
    why: str
    hint: str = ""
    usage: bool = False  # the question itself is wrong, as far as this node can tell


class NodeFailed(Exception):  # noqa: N818 - no error of ours: it becomes a part of the answer
    """A node's conversation is over."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.why)
        self.failure = failure


# How a refused certificate looks when the alert comes late, or is overtaken by the reset.
HUNG_UP = Failure(Problem.REFUSED, "it hung up without a word", "It may want --client-cert, or another one.")
# Raised inside a TLS conversation that goes on; they stay in the chain of what ended it.
UNFINISHED = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


def too_slow(seconds: float) -> Failure:
    return Failure(Problem.SLOW, f"no whole answer within {seconds:g} s", "--node-timeout allows more.")


def too_large(most_bytes: int) -> Failure:
    return Failure(
        Problem.TOO_LARGE,
        f"its answer is larger than {format_bytes(most_bytes)}",
        "Ask for less: a shorter time, or LIMIT.",
    )


def too_large_together(most_bytes: int) -> Failure:
    return Failure(
        Problem.TOO_LARGE,
        f"the answers of all nodes together are larger than {format_bytes(most_bytes)}",
        "Ask for less, or fewer nodes at a time.",
    )


def another_claims(name: str) -> Failure:
    return Failure(
        Problem.GARBAGE,
        f"it says that it is the server that answers as {name}, and shows another certificate",
        "Ask each of the two alone: one of them is not what it says.",
    )


def told_by(error: BaseException) -> Failure:
    """From an exception of the client library: what lies behind it says more than its own text."""
    chain = list(_behind(error))
    for each in chain:
        if isinstance(each, ssl.SSLCertVerificationError):
            return _certificate(each)
        if isinstance(each, ssl.SSLError) and not isinstance(each, UNFINISHED):
            return _tls(each)
        if isinstance(each, socket.gaierror):
            return Failure(Problem.DOWN, "no such name", "Is it spelt as the resolver knows it?")
    for each in chain:
        if isinstance(each, ConnectionRefusedError):
            return Failure(Problem.DOWN, "nobody listens there", "Is `ingero dashboard` running on it?")
        if isinstance(each, ConnectionResetError | BrokenPipeError):
            return HUNG_UP
        if isinstance(each, OSError) and each.strerror and not isinstance(each, UNFINISHED):
            return Failure(Problem.DOWN, clean(each.strerror.lower(), MOST_TEXT), "")
    kind = type(error).__name__
    if "disconnected without sending" in str(error):
        return HUNG_UP
    if kind in ("RemoteProtocolError", "LocalProtocolError", "DecodingError"):
        return Failure(Problem.GARBAGE, f"what it says is not HTTP: {clean(str(error), 100)}", "")
    text = clean(str(error) or str(chain[-1]) or kind, MOST_TEXT)
    return Failure(Problem.DOWN, text if "connection attempts failed" not in text else "cannot connect", "")


def _behind(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from, and the parts of a group, however deep."""
    seen: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting:
        each = waiting.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [behind for behind in (each.__cause__, each.__context__) if behind is not None]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


def _certificate(error: ssl.SSLCertVerificationError) -> Failure:
    why = (error.verify_message or str(error)).rstrip(".")
    if "expired" in why:
        hint = "Renew the node's certificate; check both clocks."
    elif "match" in why:
        hint = "Ask it by a name its certificate has, or start it with --allowed-host."
    else:
        hint = "--ca-cert names the authority, or the node's own certificate.pem."
    return Failure(Problem.CERTIFICATE, clean(why, MOST_TEXT), hint)


_REASONS = {
    "CERTIFICATE_REQUIRED": ("it wants a certificate of ours", "Give --client-cert and --client-key."),
    "WRONG_VERSION_NUMBER": ("it does not speak TLS there", "--no-tls asks without, on this machine only."),
    "RECORD_LAYER_FAILURE": ("it does not speak TLS there", "--no-tls asks without, on this machine only."),
    "PROTOCOL_VERSION": ("it does not speak TLS 1.3", "Older versions are not used."),
    "UNSUPPORTED_PROTOCOL": ("it does not speak TLS 1.3", "Older versions are not used."),
    "UNKNOWN_CA": ("it does not trust our certificate", "--client-cert must be signed by its --client-ca."),
    "BAD_CERTIFICATE": ("it does not accept our certificate", ""),
    "CERTIFICATE_EXPIRED": ("it says our certificate has expired", "Renew the one given as --client-cert."),
}


def _tls(error: ssl.SSLError) -> Failure:
    reason = getattr(error, "reason", None) or str(error)
    if "UNEXPECTED_EOF" in reason:
        return Failure(Problem.GARBAGE, "it hung up in the middle", "")
    for part, (why, hint) in _REASONS.items():
        if part in reason:
            return Failure(Problem.TLS, why, hint)
    return Failure(Problem.TLS, clean(f"TLS failed: {reason.lower().replace('_', ' ')}", MOST_TEXT), "")


def by_status(status: int, body: bytes) -> Failure:
    """A node that answers, and not with what was asked for."""
    error, hint = _said(body)
    if status == 401:
        return Failure(Problem.REFUSED, "our token is not accepted", "Give --token-file or INGERO_TOKEN.")
    if status == 421:
        return Failure(
            Problem.REFUSED, "it does not know itself by that name", "Start it with --allowed-host."
        )
    if status == 413 and error:
        return Failure(Problem.TOO_LARGE, error, hint)
    if status in (403, 407, 413, 431):
        return Failure(Problem.REFUSED, error or f"refused with status {status}", hint)
    if error and status in (400, 404, 500, 503):
        return Failure(Problem.FAILED, error, hint, usage=status in (400, 404))
    if status in (404, 405):
        return Failure(Problem.FOREIGN, f"it does not know this question (status {status})",
                       ANOTHER)  # fmt: skip
    return Failure(Problem.FAILED, f"it answered with status {status}", "")


class _Said(msgspec.Struct):
    error: str
    hint: str = ""


def _said(body: bytes) -> tuple[str, str]:
    try:
        found = msgspec.json.decode(body, type=_Said)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "", ""
    return clean(found.error, MOST_TEXT), clean(found.hint, MOST_TEXT)
