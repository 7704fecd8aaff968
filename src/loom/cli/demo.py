"""`loom demo`: store a small conversation in two languages, ask questions about it, and forget a part of it.

The conversation was written for this module. The demonstration runs in a temporary folder with a clock of its own, so
each run shows the same output. It needs rich, which the extra cli installs.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from loom.everyday import Memory, open_memory
from loom.models.embedders import EmbeddingProvider
from loom.recall.hits import Hit
from loom.storage.contract import ForgetReceipt
from loom.terminal import visible

__all__ = ["CONVERSATION", "QUESTIONS", "Question", "Session", "Turn", "run"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn. Turns with an id are updated or forgotten later."""

    role: str
    name: str | None
    text: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """One session, with a minute between its turns."""

    id: str
    began_at: datetime
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the feature that it shows, and its filters."""

    text: str
    shows: str
    filters: tuple[tuple[str, Any], ...] = ()


def _ana(text: str, id: str | None = None) -> Turn:
    return Turn("user", "Ana", text, id)


def _wei(text: str, id: str | None = None) -> Turn:
    return Turn("user", "Wei", text, id)


def _agent(text: str, id: str | None = None) -> Turn:
    return Turn("assistant", None, text, id)


def _day(month: int, day: int, hour: int = 9) -> datetime:
    return datetime(2026, month, day, hour, tzinfo=UTC)


CONVERSATION = (
    Session(
        "kickoff",
        _day(3, 2),
        (
            _ana("Morning! We are starting Heron today, the booking site for small guest houses."),
            _agent("Good morning, Ana. What should be settled first?"),
            _ana("Login. I looked at three OAuth flows over the weekend."),
            _agent("The implicit flow is deprecated, and device codes suit televisions more than browsers."),
            _ana("Then we choose the OAuth authorization-code flow with PKCE: it is the safest in a browser."),
            _agent("Noted: authorization code with PKCE, because it is the safest."),
            _ana("The whole project has a budget of 48,000 euros, and 6,000 of that is for design."),
            _ana("Heron goes live on 12 May.", "launch-date"),
            _agent("12 May it is. That leaves ten weeks."),
            _ana("One more thing: please keep your answers short, I mostly read them on my phone."),
        ),
    ),
    Session(
        "数据库",
        _day(3, 5, 14),
        (
            _wei("今天定一下数据库。我倾向 PostgreSQL 16，团队里每个人都用过。"),
            _agent("同意。要不要先用 SQLite 做原型？"),
            _wei("不用，直接上 PostgreSQL。预订数据要放在法兰克福机房，不能出欧盟。"),
            _agent("好的：PostgreSQL 16，法兰克福机房，数据不出欧盟。"),
            _wei("备份每晚两点做一次，保留三十天。"),
            _wei("供应商的发票到了，编号 INV-2041，金额三千二百欧元，月底前付清。"),
            _agent("已记下：发票 INV-2041，三千二百欧元，月底前付款。"),
            _wei("以后开会帮我订绿茶就行，我喝咖啡会失眠。"),
        ),
    ),
    Session(
        "refactor",
        _day(3, 10),
        (
            _ana("The class in memory_manager.py has grown to 900 lines. Nobody wants to touch it any more."),
            _agent("I would split memory_manager into storage, recall and budget."),
            _ana("Do that, but keep the old import path loom.memory.core working for one release."),
            _agent("Done. memory_manager is now three modules, and loom.memory.core re-exports the old names."),
            _ana("The payment calls time out after 10 seconds; raise PAYMENT_TIMEOUT_S to 30."),
            _agent("PAYMENT_TIMEOUT_S is 30 now. Retries stay at two."),
            _ana("The tests took 14 minutes before and 5 after. I am happy with that."),
        ),
    ),
    Session(
        "lisbon",
        _day(3, 17, 18),
        (
            _ana("I will visit the guest house in Lisbon from 7 to 9 April. Can you help with the trip?"),
            _agent("Gladly. Plane or train?"),
            _ana("I never fly if there is a train, even when it takes a night longer."),
            _agent("There is a sleeper to Madrid, and a connection from there in the morning."),
            _ana("I am allergic to peanuts, so keep them out of every meal you book."),
            _agent("Understood, no peanuts anywhere."),
            _ana("The budget for the trip is 700 euros, with the hotel."),
            _ana("The key box at the guest house opens with 4471.", "key-box"),
            _agent("Thank you. I have it for your arrival."),
        ),
    ),
    Session(
        "评审",
        _day(3, 24, 10),
        (
            _wei("评审结果：支付接口的安全测试没有通过，需要再做一轮。"),
            _agent("那上线时间要往后推吗？"),
            _wei("要推。第二轮测试在五月中旬，之后还要留一周修问题。"),
            _agent("明白，我去更新上线日期。"),
            _wei("小旅馆的老板们都说日历太难用，客房满了也看不出来。"),
            _agent("可以用颜色区分：满房红色，空房绿色。"),
            _wei("颜色不行，有的老板分不清红绿，用图案吧。"),
        ),
    ),
)

_NEW_DATE = "Heron goes live on 9 June: the security test of the payment calls is repeated first."
_CHANGED_AT = _day(3, 24, 11)
_ASKED_AT = _day(3, 26)

QUESTIONS = (
    Question("Which OAuth flow did we choose, and why?", "found by its words"),
    Question("发票的编号和金额是多少？", "the same in Chinese"),
    Question("What happened to the memory manager?", "an identifier, found by its parts"),
    Question("Does anyone have an allergy?", "no word in common: by another word for it, or by meaning"),
    Question("Can I serve coffee at the meeting?", "the same across languages"),
    Question("When does Heron go live?", "a fact that has changed since"),
    Question("When does Heron go live?", "as_of 10 March", (("as_of", _day(3, 10)),)),
    Question("How large is the budget?", 'session_id="lisbon"', (("session_id", "lisbon"),)),
)

_SECRET = "What is the code of the key box?"
_LIMIT = 2
_FACTS = 5

# Small budgets, so that a short conversation fills the tiers.
_BUDGETS: dict[str, Any] = {
    "l1_token_budget": 400,
    "l2_token_budget": 500,
    "l3_token_budget": 300,
    "l4_token_budget": 2000,
}
_TIERS = {
    "l1": "the newest, whole",
    "l2": "the working set, whole",
    "l3": "what left it, as short stand-ins",
    "l4": "older stand-ins, and facts",
}


class _Clock:
    """A clock that shows the current moment of the story."""

    def __init__(self) -> None:
        self.now = CONVERSATION[0].began_at

    def __call__(self) -> datetime:
        return self.now


def run(console: Console | None = None, *, embedder: EmbeddingProvider | str | None = None) -> None:
    """Run the demonstration on a console, with an `embedder` as for `loom.open`."""
    shown = console or Console(highlight=False)
    clock = _Clock()
    with (
        tempfile.TemporaryDirectory(prefix="loom-demo-") as folder,
        open_memory(Path(folder) / "demo.loom", embedder=embedder, clock=clock, profile="chat", **_BUDGETS) as memory,
    ):
        _introduce(shown, memory)
        _load(shown, memory, clock)
        whole = memory.get_stats()["tokens"]
        _show_tiers(shown, memory)
        _show_facts(shown, memory)
        _heading(shown, f"4  Questions, and the best {_LIMIT} answers to each")
        for question in QUESTIONS:
            _ask(shown, memory, question, whole)
        _forget(shown, memory)
        _check(shown, memory)


def _introduce(console: Console, memory: Memory) -> None:
    if memory.embedder is None:
        means = Text.assemble(("words", "bold green"), '. For meaning too: pip install "loomkeep[embed]"')
    else:
        model = memory.embedder.name.split("/")[0]
        means = Text.assemble(("words and meaning", "bold green"), f"\n({visible(model)}, offline)")
    lines = Group(
        Text("A memory for agents in one local file: no service, no network, no LLM."),
        Text.assemble("Recall here is by ", means),
    )
    console.print(Panel(lines, title="[bold]loom[/]", title_align="left", border_style="cyan", width=_width(console)))


def _width(console: Console) -> int:
    return min(console.width, 88)


def _date(moment: datetime) -> str:
    return f"{moment.day} {moment:%b}"


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold cyan"))


# --- writing -------------------------------------------------------------------------------------------------


def _load(console: Console, memory: Memory, clock: _Clock) -> None:
    _heading(console, "1  A conversation moves into the store")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("session", "day", "begins with"):
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    table.add_column("turns", justify="right")
    table.add_column("tokens", justify="right")
    for session in CONVERSATION:
        clock.now = session.began_at
        receipts = memory.remember(_messages(session), session_id=session.id)
        clock.now = session.began_at + timedelta(minutes=len(receipts))
        tokens = sum(receipt.tokens for receipt in receipts)
        opening = Text(visible(session.turns[0].text))
        opening.truncate(36, overflow="ellipsis")
        table.add_row(session.id, _date(session.began_at), opening, str(len(receipts)), str(tokens))
    clock.now = _CHANGED_AT
    memory.update("launch-date", _NEW_DATE)
    table.add_row("", _date(_CHANGED_AT), Text("(the launch date is updated)", style="dim"), "1", "")
    clock.now = _ASKED_AT
    console.print(table)
    console.print("Each session was one transaction, committed when the call returned.")
    with console.status("Embedding in the background; the first time, the model is loaded ..."):
        undone = memory.flush()
    stats = memory.get_stats()
    done = f"{stats['records']} records, {stats['tokens']:,} tokens (exact, {memory.counter.name})"
    if memory.embedder is not None:
        done += f", {stats['vectors']} vectors"
    console.print(Text.assemble(("✓ " if undone.complete else "! ", "green"), done, "."))


def _messages(session: Session) -> list[dict[str, Any]]:
    return [
        {
            "role": turn.role,
            "content": turn.text,
            "created_at": session.began_at + timedelta(minutes=minute),
            **({"name": turn.name} if turn.name else {}),
            **({"id": turn.id} if turn.id else {}),
        }
        for minute, turn in enumerate(session.turns)
    ]


def _show_tiers(console: Console, memory: Memory) -> None:
    _heading(console, "2  Four tiers, each within its budget of tokens")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("tier")
    table.add_column("holds", no_wrap=True)
    for column in ("records", "tokens", "of"):
        table.add_column(column, justify="right")
    stats = memory.get_stats()
    for tier, holds in _TIERS.items():
        used, budget = stats[f"{tier}_token_usage"], stats[f"{tier}_token_budget"]
        table.add_row(tier.upper(), holds, str(stats[f"{tier}_items"]), f"{used:,}", f"{budget:,}")
    console.print(table)
    summaries = memory.manager.get_l3_summaries(limit=1)
    if summaries:
        console.print(Text.assemble(("a stand-in  ", "dim"), visible(summaries[0].text)))
    console.print("Nothing is lost: the log has every record whole, and recall searches all of it.")


def _show_facts(console: Console, memory: Memory) -> None:
    _heading(console, "3  What it knows by itself")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("fact", ratio=1)
    table.add_column("since", no_wrap=True)
    table.add_column("said", justify="right", no_wrap=True)
    table.add_column("sure", justify="right", no_wrap=True)
    for fact in memory.facts(limit=_FACTS):
        times = f"{len(fact.sources)}x"
        table.add_row(Text(visible(fact.content)), _date(fact.created_at), times, f"{fact.confidence:.0%}")
    console.print(table)
    total = len(memory.facts(limit=1000))
    console.print(f"The newest of {total} facts, derived in the background by rules. Each names its sources.")


# --- asking --------------------------------------------------------------------------------------------------


def _ask(console: Console, memory: Memory, question: Question, whole: int) -> None:
    hits = memory.recall(question.text, limit=_LIMIT, **dict(question.filters))
    console.print()
    console.print(
        Text.assemble(("? ", "bold yellow"), (visible(question.text), "bold"), (f"  {question.shows}", "dim italic"))
    )
    if not hits:
        console.print(Text("  nothing is known about that", style="yellow"))
        return
    console.print(Padding(_hits(hits), (0, 0, 0, 2)))
    tokens = sum(hit.tokens for hit in hits)
    cost = f"  {tokens} tokens instead of {whole:,} for the whole conversation ({100 * tokens / whole:.0f} %)"
    console.print(Text(cost, style="green"))


def _hits(hits: list[Hit]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(justify="right", style="cyan", no_wrap=True)
    table.add_column(ratio=1)
    for hit in hits:
        said = Text(visible(hit.content))
        source = f"{hit.name or hit.role}, {hit.session_id}, {_date(hit.created_at)}"
        if hit.version > 1:
            source += f", version {hit.version}"
        table.add_row(f"{hit.score:.2f}", Group(said, Text(visible(f"{source}: {hit.why}"), style="dim")))
    return table


# --- forgetting ----------------------------------------------------------------------------------------------


def _forget(console: Console, memory: Memory) -> None:
    _heading(console, "5  Forgetting for good")
    console.print()
    console.print(Text.assemble(("? ", "bold yellow"), (_SECRET, "bold"), ("  before", "dim italic")))
    console.print(Padding(_hits(memory.recall(_SECRET, limit=1)), (0, 0, 0, 2)))
    receipt = memory.forget("key-box")
    console.print(Text.assemble(("  forget", "bold red"), '("key-box")  ', _receipt(receipt)))
    left = [hit for hit in memory.recall(_SECRET, limit=5) if hit.id == "key-box"]
    console.print(Text.assemble(("? ", "bold yellow"), (_SECRET, "bold"), ("  after", "dim italic")))
    gone = not left and memory.get("key-box") is None
    console.print(Text("  no longer found: by words, by meaning, by id" if gone else "  still found", style="green"))


def _receipt(receipt: ForgetReceipt) -> str:
    counts = {
        "record": receipt.records - receipt.derived,
        "vector": receipt.vectors,
        "fact derived from it": receipt.derived,
        "index file rewritten": receipt.segments,
    }
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    return f"removed: {', '.join(parts)}"


def _check(console: Console, memory: Memory) -> None:
    _heading(console, "6  Checking")
    console.print()
    report = memory.check()
    state = "everything matches its checksum" if report.ok else "; ".join(report.problems)
    console.print(
        Text.assemble(("✓ " if report.ok else "✗ ", "green"), f"{report.records} records checked: {state}.")
    )
