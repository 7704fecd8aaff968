"""Operations on derived records and on the places of memories: facts, summaries, tiers, pins."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

from loom.operations.answers import (
    Compacted,
    FactItem,
    Facts,
    Flushed,
    InstructionItem,
    Instructions,
    Moved,
    Pinned,
    Summaries,
    SummaryItem,
    TierItem,
    Tiers,
    Undone,
)
from loom.operations.everyday_verbs import MemoryId, Wait, catch_up
from loom.operations.table import About, operation

if TYPE_CHECKING:
    from loom.everyday import Memory

__all__ = [
    "compact",
    "confirm",
    "demote",
    "facts",
    "flush",
    "instructions",
    "pin",
    "promote",
    "summaries",
    "tier_items",
    "tiers",
    "undo",
    "unpin",
    "withdraw",
]

_KNOWN, _PLACES = "knowledge", "places"
_ONLY_SIX = "a model gets six tools; `context` brings facts and summaries into its prompt by itself"
_NOT_FOR_MODELS = "where memories live is decided by use and importance; a model has no need to move them"


@operation(
    _KNOWN,
    "what is known: facts derived from what was said and done",
    examples=('loom facts "Which database do we use?"', "loom facts --as-of 2026-03-03", "loom facts --history"),
    read_only=True,
    catches_up=True,
    derives=True,
    long=True,
    elsewhere={"mcp": _ONLY_SIX},
)
def facts(
    memory: "Memory",
    question: Annotated[str | None, About("what to look for; without it, all facts", shown_as="QUESTION")] = None,
    *,
    limit: Annotated[int, About("at most this many", least=1, most=10_000, shown_as="N")] = 20,
    fact_type: Annotated[str | None, About("only of this type, such as user_preference", shown_as="TYPE")] = None,
    session_id: Annotated[str | None, About("only from this session", shown_as="ID")] = None,
    as_of: Annotated[datetime | None, About("only facts that held at this time", shown_as="TIME")] = None,
    history: Annotated[bool, About("also facts that no longer hold")] = False,
    wait_s: Wait = 10.0,
) -> Facts:
    """Lists the newest facts first, or, with a question, the facts that answer it, best first. Each fact names the
    ids of its sources. Facts are derived in the background; the command waits for that unless the file is
    read-only."""
    catch_up(memory, wait_s)
    found = memory.facts(
        question, limit=limit, fact_type=fact_type, session_id=session_id, as_of=as_of, history=history
    )
    return Facts(tuple(map(FactItem.of, found)))


@operation(
    _KNOWN,
    "the summaries that stand for stretches of dialogue, and how faithful they are",
    examples=("loom summaries", "loom summaries --history --json"),
    read_only=True,
    elsewhere={"mcp": _ONLY_SIX},
)
def summaries(
    memory: "Memory",
    *,
    session_id: Annotated[str | None, About("only of this session", shown_as="ID")] = None,
    limit: Annotated[int, About("at most this many", least=1, most=10_000, shown_as="N")] = 20,
    history: Annotated[bool, About("also those that were rejected or undone")] = False,
) -> Summaries:
    """Lists the newest first."""
    return Summaries(tuple(map(SummaryItem.of, memory.summaries(session_id, limit=limit, history=history))))


@operation(
    _KNOWN,
    "the user's standing instructions and preferences that are in force",
    examples=("loom instructions", 'loom instructions "Write the release notes"', "loom instructions --unconfirmed"),
    read_only=True,
    catches_up=True,
    derives=True,
    long=True,
    elsewhere={"mcp": "`context` puts those that apply into the prompt, and the resource memory://core lists them"},
)
def instructions(
    memory: "Memory",
    question: Annotated[str | None, About("only those that apply to this, best first", shown_as="QUESTION")] = None,
    *,
    session_id: Annotated[str | None, About("also those of this session alone", shown_as="ID")] = None,
    limit: Annotated[int, About("at most this many", least=1, most=10_000, shown_as="N")] = 20,
    history: Annotated[bool, About("also those that were changed or withdrawn")] = False,
    unconfirmed: Annotated[bool, About("only those of imported messages, which are not in force yet")] = False,
    wait_s: Wait = 10.0,
) -> Instructions:
    """Lists the newest first. Instructions are derived from the user's own words in the background; the command waits
    for that. Those of imported messages take effect only with `loom confirm`."""
    catch_up(memory, wait_s)
    found = memory.instructions(
        question, session_id=session_id, limit=limit, history=history, unconfirmed=unconfirmed
    )
    return Instructions(tuple(map(InstructionItem.of, found)))


@operation(
    _KNOWN,
    "put the standing instructions of an imported message into force",
    examples=("loom confirm claude-code:5e7dc3f1-2f1b-4f0e-9a3b-7c1de2a8b640",),
    elsewhere={"mcp": "only the user can confirm what was imported"},
)
def confirm(
    memory: "Memory", id: Annotated[str, About("the id that instructions --unconfirmed shows", shown_as="ID")]
) -> Instructions:
    """Shows the instructions that are now in force. Without confirmation, instructions in an imported message have no
    effect."""
    return Instructions(tuple(map(InstructionItem.of, memory.confirm(id))))


@operation(
    _KNOWN,
    "end a standing instruction",
    examples=("loom withdraw instruction_01M7H88YD44HRX3GSM1NB3F86E",),
    elsewhere={"mcp": _ONLY_SIX},
)
def withdraw(
    memory: "Memory", id: Annotated[str, About("the id that instructions shows", shown_as="ID")]
) -> InstructionItem:
    """Shows the withdrawn instruction. Saying it again restores it; forgetting its source removes it for good."""
    return InstructionItem.of(memory.withdraw(id))


@operation(
    _KNOWN,
    "withdraw a fact or a summary that the memory has derived by itself",
    examples=("loom undo summary_01M7H88YD44HRX3GSM1NB3F86E",),
    elsewhere={"mcp": _ONLY_SIX},
)
def undo(
    memory: "Memory", id: Annotated[str, About("the id that facts or summaries shows", shown_as="ID")]
) -> Undone:
    """The records that it replaced are valid again. The original records were never changed."""
    return Undone.of(memory.undo(id))


@operation(
    _KNOWN,
    "summarise stretches of the archive tier now",
    examples=("loom compact",),
    long=True,
    elsewhere={"mcp": "a memory also does this by itself"},
)
def compact(memory: "Memory") -> Compacted:
    """Compacts the tier down to its target. A memory also does this by itself. The original records stay."""
    return Compacted.of(memory.compact())


@operation(
    _KNOWN,
    "wait until everything remembered is embedded, indexed and derived",
    examples=("loom flush", "loom flush --wait-s 60"),
    idempotent=True,
    by_meaning=True,
    catches_up=True,
    derives=True,
    long=True,
    elsewhere={"mcp": "a server does this work while it runs"},
)
def flush(memory: "Memory", *, wait_s: Wait = 600.0) -> Flushed:
    """A short command leaves this work to a later process; it is never lost."""
    done = memory.flush(wait_s)
    return Flushed(done.complete, dict(done.waiting), dict(done.failed), tuple(done.errors))


@operation(
    _PLACES,
    "bring a memory back towards the prompt",
    examples=("loom promote turn-17", "loom promote turn-17 --to l1"),
    elsewhere={"mcp": _NOT_FOR_MODELS},
)
def promote(
    memory: "Memory",
    id: MemoryId,
    *,
    to: Annotated[Literal["l1", "l2"], About("the window of recent memories (l1) or the working tier (l2)")] = "l2",
) -> Moved:
    """Moves it to the working tier, or into the window of recent memories, where it stays until other promoted
    memories take its place. Ends with 1 if the memory was not moved."""
    return Moved(id, to, memory.promote(id, to).refused.get(id))


@operation(
    _PLACES,
    "move a memory one tier down, away from the prompt",
    examples=("loom demote turn-17",),
    elsewhere={"mcp": _NOT_FOR_MODELS},
)
def demote(memory: "Memory", id: MemoryId) -> Moved:
    """The memory stays in the log and is still found."""
    tier = memory.demote(id)
    return Moved(id, None if tier is None else str(tier))


@operation(
    _PLACES,
    "exempt a memory from retention rules",
    examples=("loom pin turn-17",),
    idempotent=True,
    elsewhere={"mcp": _NOT_FOR_MODELS},
)
def pin(memory: "Memory", id: MemoryId) -> Pinned:
    """Retention rules are off by default."""
    memory.pin(id)
    return Pinned(id, True)


@operation(
    _PLACES,
    "undo pin",
    examples=("loom unpin turn-17",),
    idempotent=True,
    elsewhere={"mcp": _NOT_FOR_MODELS},
)
def unpin(memory: "Memory", id: MemoryId) -> Pinned:
    """Retention rules apply to the memory again."""
    memory.unpin(id)
    return Pinned(id, False)


@operation(
    _PLACES,
    "how full each tier is, and the metrics of this memory",
    examples=("loom tiers", "loom tiers --json"),
    read_only=True,
    idempotent=True,
    elsewhere={"mcp": "stats has the tiers"},
)
def tiers(memory: "Memory") -> Tiers:
    """L1 is the window of recent memories, L2 the working set, L3 the archive, L4 knowledge."""
    readings = {one.key: {"value": one.value, "level": str(one.level)} for one in memory.monitor.readings()}
    return Tiers(memory.node_id, memory.settings.profile, tier_items(memory), readings)


def tier_items(memory: "Memory") -> tuple[TierItem, ...]:
    """Return the tiers of a memory, nearest to the prompt first."""
    stats = memory.get_stats()
    return tuple(
        TierItem(tier, stats[f"{tier}_items"], stats[f"{tier}_token_usage"], stats[f"{tier}_token_budget"])
        for tier in ("l1", "l2", "l3", "l4")
    )
