"""The OpenAPI document, made from the table of routes and the types behind it."""

from __future__ import annotations

from typing import Any

import msgspec

from ingero import __version__
from ingero.serve.dashboard.routes import RECORDING, ROUTES, Nothing, OfRecording, Route

PREFIX = "/api/v1"
FAILURES = {
    "400": "The question is wrong: a parameter is unknown, missing or malformed, or the SQL is wrong",
    "404": "There is no such node, process, operation, container or event in the recording",
    "503": "The recording cannot be read, or the answer took longer than allowed",
}


class Failure(msgspec.Struct, frozen=True):
    """What went wrong, and what to do about it."""

    error: str
    hint: str


def document() -> dict[str, Any]:
    types = [Failure, OfRecording, *(route.answer for route in ROUTES), *(route.asked for route in ROUTES)]
    schemas, parts = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    answers = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {
        f"{PREFIX}/{route.path}": {route.method.lower(): _operation(route, answers, parts)}
        for route in ROUTES
    }
    paths[f"{PREFIX}/live"] = {"get": _live()}
    paths[f"{PREFIX}/recording"] = {"get": _recording(parts, answers[Failure])}
    return {
        "openapi": "3.1.0",
        "info": {"title": "ingero", "version": __version__, "summary": "Why a GPU job is slow"},
        "paths": paths,
        "components": {
            "schemas": parts,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(route: Route, answers: dict[type, Any], parts: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": route.summary,
        "operationId": route.path,
        "responses": {
            "200": {"description": "The answer", "content": _json(answers[route.answer])},
            **{
                status: {"description": why, "content": _json(answers[Failure])}
                for status, why in FAILURES.items()
                if status == "400" or route.asked is not Nothing
            },
            "default": {"description": "No answer", "content": _json(answers[Failure])},
        },
    }
    if route.method == "GET":
        found["parameters"] = _parameters(parts[route.asked.__name__])
    else:
        found["requestBody"] = {"required": True, "content": _json(answers[route.asked])}
    return found


def _parameters(schema: dict[str, Any]) -> list[dict[str, Any]]:
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": value}
        for name, value in schema["properties"].items()
    ]


def _live() -> dict[str, Any]:
    return {
        "summary": "An event `changed` whenever the database did, as server-sent events",
        "operationId": "live",
        "responses": {"200": {"description": "Never ends", "content": {"text/event-stream": {}}}},
    }


def _recording(parts: dict[str, Any], failure: Any) -> dict[str, Any]:
    return {
        "summary": "A part of the recording, as a SQLite database",
        "operationId": "recording",
        "parameters": _parameters(parts[OfRecording.__name__]),
        "responses": {
            "200": {"description": "The file", "content": {RECORDING: {}}},
            "413": {"description": "It would be too large", "content": _json(failure)},
            "default": {"description": "No answer", "content": _json(failure)},
        },
    }


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
