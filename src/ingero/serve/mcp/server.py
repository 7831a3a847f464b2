"""The MCP server: tools, a prompt and resources, the same over every transport.

Questions are answered in a few threads, so that one long one holds nobody up, and SQL
of others in fewer. What we expect to go wrong is said with its hint; anything else is our bug:
it is logged here, and the assistant learns only that it happened.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import anyio
import anyio.to_thread
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp.server.mcpserver.prompts import Prompt
from mcp_types import ToolAnnotations
from pydantic import Field

from ingero import __version__
from ingero.errors import IngeroError
from ingero.serve.answers.catalogue import looked_for, not_looked_for
from ingero.serve.answers.schema import NOTES, VIEWS
from ingero.serve.answers.schema_page import schema_markdown
from ingero.serve.mcp.bounds import NOTE, Answer, data, fitted
from ingero.serve.mcp.source import AssistantSource
from ingero.serve.mcp.tools import Tools

TOOLS = {
    "get_check": "Can this machine be traced?",
    "get_findings": "What is wrong?",
    "get_causal_chains": "Why is it slow?",
    "get_process_time": "Where did the time go?",
    "get_trace_stats": "What do calls cost?",
    "get_stacks": "Where do calls come from?",
    "graph_lifecycle": "How were CUDA graphs made?",
    "graph_frequency": "How often are CUDA graphs launched?",
    "get_cost": "What do GPUs cost?",
    "run_sql": "Ask the recording in SQL",
    "run_demo": "Show a made-up problem",
    "query_fleet": "Ask many nodes",
    "get_fleet_status": "How is the whole fleet doing?",
    "get_node_history": "How did one node do?",
}
THREADS = 4
SHOWN_COLUMNS = 12  # of a view that has far more of them
HEAVY = frozenset({"run_sql", "run_demo", "get_check", "query_fleet"})
HEAVY_THREADS = 2


def make_server(source: AssistantSource) -> MCPServer[Any]:
    """Everything registered; no transport yet."""
    server: MCPServer[Any] = MCPServer(
        "ingero",
        title="ingero: why is the GPU job slow?",
        instructions=INSTRUCTIONS,
        version=__version__,
        log_level="WARNING",
        subscriptions=False,
    )
    _add_tools(server, Tools(source))
    server.add_prompt(
        Prompt.from_function(
            investigate, title="Investigate a slow GPU job", description="Finds out why a GPU job is slow."
        )
    )
    _add_resources(server, Tools(source))
    return server


def _add_tools(server: MCPServer[Any], tools: Tools) -> None:
    light, heavy = anyio.CapacityLimiter(THREADS), anyio.CapacityLimiter(HEAVY_THREADS)
    for name, title in TOOLS.items():
        method = getattr(tools, name)
        server.add_tool(
            _answering(method, heavy if name in HEAVY else light),
            name=name,
            title=title,
            description=description_of(method),
            annotations=ToolAnnotations(
                title=title, read_only_hint=True, destructive_hint=False, open_world_hint=False
            ),
            structured_output=False,
        )


def description_of(method: Callable[..., Answer]) -> str:
    text = " ".join((inspect.getdoc(method) or "").split())
    return f"{text} {_tables()}" if method.__name__ == "run_sql" else text


# What tracing itself cost, and keys with values: named, and described in the resource.
NAMED_ONLY = frozenset(
    {"overhead", "own_cost", "governor_actions", "thread_estimates", "container_labels", "process_labels"}
)


def _tables() -> str:
    views = "; ".join(
        f"{view.name}({_columns([n for n in view.columns if n != 'node'])})"
        for view in VIEWS
        if view.name not in NAMED_ONLY
    )
    notes = NOTES[0]  # the others are in the resource
    ours = ", ".join(sorted(NAMED_ONLY))
    return f"Views, most with node too: {views}; {ours}. {notes} Resource ingero://schema: what columns mean."


def _columns(names: list[str]) -> str:
    """Of a view with very many, the first ones: the schema has them all."""
    if len(names) <= SHOWN_COLUMNS + SHOWN_COLUMNS // 2:
        return ", ".join(names)
    return f"{', '.join(names[:SHOWN_COLUMNS])} and {len(names) - SHOWN_COLUMNS} more"


def _answering(
    method: Callable[..., Answer], limiter: anyio.CapacityLimiter
) -> Callable[..., Awaitable[str]]:
    @functools.wraps(method)
    async def answer(**arguments: Any) -> str:
        work = functools.partial(_answered, method, arguments)
        return await anyio.to_thread.run_sync(work, limiter=limiter)

    # What is checked and described is the method's own signature; what comes back is text.
    signature = inspect.signature(method, eval_str=True)
    answer.__signature__ = signature.replace(return_annotation=str)  # type: ignore[attr-defined]
    return answer


def _answered(method: Callable[..., Answer], arguments: dict[str, Any]) -> str:
    try:
        found = method(**arguments)
    except IngeroError as error:
        raise ToolError(_said(error)) from error
    return fitted({"note": NOTE, **found}, arguments.get("detail", "brief"))


def _said(error: IngeroError) -> str:
    """A message may quote a traced process."""
    hint = f" Hint: {data(error.hint)}" if error.hint else ""
    return f"{data(error.message)}{hint}"


def _add_resources(server: MCPServer[Any], tools: Tools) -> None:
    json = "application/json"

    @server.resource("ingero://findings", title="Findings of the last recording", mime_type=json)
    async def findings() -> str:
        """What is wrong in the last recording, worst first."""
        try:
            return await anyio.to_thread.run_sync(_answered, tools.get_findings, {})
        except ToolError as error:
            raise ResourceError(str(error)) from error

    @server.resource("ingero://schema", title="Views and columns for run_sql", mime_type="text/markdown")
    async def schema() -> str:
        """What every view and column of a recording means."""
        return schema_markdown()

    @server.resource("ingero://kinds", title="Kinds of findings", mime_type="text/markdown")
    async def kinds() -> str:
        """Every kind of problem that can be found, and those that nobody looks for yet."""
        found = [f"- {each.name}: {each.summary}" for each in looked_for()]
        others = [f"- {each.name}: {each.summary} ({each.unwatched})" for each in not_looked_for()]
        return "\n".join(["What can be found:", *found, "", "What nobody looks for yet:", *others])


# What an assistant is told: once at the start, and in the prompt `investigate`.


INSTRUCTIONS = f"""\
ingero recorded GPU jobs on this machine with eBPF and says why they are slow. Ask get_findings first, then
get_causal_chains for causes, proofs and fixes; the other tools are for details. {NOTE} Numbers carry their
units. What was dropped (`lost`) or not watched is part of every answer: there, absence of a finding proves
nothing."""
STEPS = """\
Find out why the GPU job is slow, with the tools of ingero.{about}

1. get_findings{since}: what is wrong, worst first. If it says that nothing was recorded, get_check tells
   whether this machine can be traced, and `sudo ingero trace` records.
2. get_causal_chains{since}: for the worst finding the causes, who is to blame, the proof and the fix.
3. Only if that leaves a question: get_process_time (where the time went), get_trace_stats (what calls
   cost), get_stacks (which line), graph_lifecycle and graph_frequency (CUDA graphs), run_sql (anything else).

Rules:
- Say only what an answer says, with its numbers and units. Do not guess a cause; where ingero says that
  something is unexplained, dropped or not watched, say so.
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
