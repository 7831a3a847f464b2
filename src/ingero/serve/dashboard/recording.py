"""A part of the recording, handed out as a SQLite file while it is read from disk.

One at a time is made: it takes the disk's time, and who asks many nodes asks each of them once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ingero.errors import IngeroError
from ingero.serve.answers.recordings import recording_part
from ingero.serve.dashboard.api import BadRequest, asked_with, failed, told
from ingero.serve.dashboard.questions import RECORDING as KIND
from ingero.serve.dashboard.questions import OfRecording
from ingero.serve.dashboard.source import Source

CHUNK = 1 << 18


def make_recording(source: Source) -> tuple[Any, ThreadPoolExecutor]:
    """The endpoint, and the thread it works in."""
    thread = ThreadPoolExecutor(1, "recording")

    async def recording(request: Request) -> Response:
        try:
            asked = await asked_with(request, OfRecording)
            file, size = await asyncio.get_running_loop().run_in_executor(thread, _made, source, asked)
        except BadRequest as error:
            return failed(400, str(error), "See /api/v1/openapi.json.")
        except IngeroError as error:
            return told(error)
        return StreamingResponse(_parts(file), media_type=KIND, headers={"content-length": str(size)})

    return recording, thread


def _made(source: Source, asked: OfRecording) -> tuple[BinaryIO, int]:
    with recording_part(source.db, asked.range, asked.tables, asked.most_bytes, asked.last) as path:
        file = path.open("rb")  # it lives on without a name until it is closed
    return file, os.fstat(file.fileno()).st_size


async def _parts(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while part := await asyncio.to_thread(file.read, CHUNK):
            yield part
