"""Numbers as wide as what keeps them: an answer with others is none.

What a reader process says is decoded by these (agent/readers.py); nothing checks them elsewhere.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Word = Annotated[int, Meta(ge=0)]  # 64 bits: messages hold no more
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]  # as SQLite can store it
Half = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
Signed = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
