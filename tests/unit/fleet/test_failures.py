"""Errors of sockets, TLS and HTTP become words."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from ingero.fleet.failures import Problem, by_status, told_by


class ConnectError(Exception):
    """As a client library raises it."""


def behind(cause: BaseException) -> ConnectError:
    error = ConnectError("All connection attempts failed")
    error.__cause__ = OSError("something else")
    error.__cause__.__cause__ = ExceptionGroup("attempts", [cause]) if isinstance(cause, Exception) else cause
    return error


def certificate(message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = message
    return error


@pytest.mark.parametrize(
    ("cause", "problem", "word"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), Problem.DOWN, "nobody listens"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), Problem.DOWN, "no route to host"),
        (socket.gaierror(-2, "Name or service not known"), Problem.DOWN, "no such name"),
        (certificate("certificate has expired"), Problem.CERTIFICATE, "expired"),
        (
            certificate("Hostname mismatch, certificate is not valid for 'a'."),
            Problem.CERTIFICATE,
            "mismatch",
        ),
        (ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] x"), Problem.TLS, "certificate of ours"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong"), Problem.TLS, "does not speak TLS"),
    ],
)
def test_what_lies_behind_an_error_is_told(cause: Exception, problem: Problem, word: str) -> None:
    found = told_by(behind(cause))
    assert found.problem is problem
    assert word in found.why


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (401, b"no valid token\n", Problem.REFUSED),
        (421, b"not the name", Problem.REFUSED),
        (404, b"Not Found", Problem.FOREIGN),
        (400, b'{"error": "no such column", "hint": "look"}', Problem.FAILED),
        (503, b'{"error": "there is no database", "hint": ""}', Problem.FAILED),
        (302, b"", Problem.FAILED),
        (500, b'{"error": 7}', Problem.FAILED),
    ],
)
def test_a_status_says_what_kind_of_no_it_is(status: int, body: bytes, problem: Problem) -> None:
    assert by_status(status, body).problem is problem


def test_only_a_question_that_makes_no_sense_is_the_users_mistake() -> None:
    assert by_status(400, b'{"error": "no such column"}').usage
    assert not by_status(503, b'{"error": "there is no database"}').usage


def test_what_a_node_says_cannot_steer_a_terminal() -> None:
    found = by_status(400, b'{"error": "\\u001b[2Jgone", "hint": "\\u001b]0;x\\u0007y"}')
    assert "\x1b" not in found.why + found.hint


def test_a_connection_that_is_reset_amid_the_handshake_was_refused_not_unfinished() -> None:
    try:
        try:
            raise ssl.SSLWantReadError(2, "The operation did not complete (read)")
        except ssl.SSLError:
            raise ConnectionResetError(104, "Connection reset by peer")  # noqa: B904 - as the library does it
    except OSError as error:
        failure = told_by(error)
    assert failure.problem is Problem.REFUSED
    assert "--client-cert" in failure.hint
