"""What an assistant is told: once at the start, and in the prompt `investigate`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ingero.serve.mcp.quoting import NOTE, data

INSTRUCTIONS = f"""\
ingero recorded GPU jobs on this machine with eBPF and says why they are slow. Ask get_findings first, then
get_causal_chains for causes, proofs and fixes; the other tools are for details. {NOTE} Numbers carry their
units. What was lost or not watched is part of every answer: absence of a finding there is no proof."""

STEPS = """\
Find out why the GPU job is slow, with the tools of ingero.{about}

1. get_findings{since}: what is wrong, worst first. If it says that nothing was recorded, get_check tells
   whether this machine can be traced, and `sudo ingero trace` records.
2. get_causal_chains{since}: for the worst finding the causes, who is to blame, the proof and the fix.
3. Only if that leaves a question: get_process_time (where the time went), get_trace_stats (what calls
   cost), get_stacks (which line), graph_lifecycle and graph_frequency (CUDA graphs), run_sql (anything else).

Rules:
- Say only what an answer says, with its numbers and units. Do not guess a cause; where ingero says that
  something is unexplained, lost or not watched, say so.
- Severity, confidence and the share of time lost belong into the summary; so does what fixing it wins.
- "no problem found" is an answer.
- {note}
- Fix commands are for a person to look at: never run one yourself.

Answer in a few sentences: what is slow, since when, why, through whose fault, the proof, what to do, what
that wins, how sure it is."""


def investigate(
    problem: Annotated[
        str,
        Field(max_length=1000, description="What the user noticed, such as: training is slow since 3 am."),
    ] = "",
    since: Annotated[str, Field(max_length=32, description="How far back to look, such as 5m.")] = "",
) -> str:
    """The steps of an investigation, and its rules."""
    about = f"\nWhat was noticed: {data(problem)}" if problem else ""
    asked = f"(since={data(since, 32)})" if since else ""
    return STEPS.format(about=about, since=asked, note=NOTE)
