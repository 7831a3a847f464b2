"""The running agent: wires discover, attach, capture, store and the surfaces.

The only package that knows all stages. A stage never imports another; what they
share passes through here.
"""

# No `from __future__ import annotations`: its name would hide the module `annotations`.
from ingero.agent.run import run

__all__ = ["run"]
