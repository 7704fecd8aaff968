"""`loom demo`: a conversation in two languages, a killed process, questions, a tool call, a prompt, and forgetting.

The conversation was written for this module. The demonstration runs in a temporary folder with a clock of its own, so
each run shows the same output. It needs rich, which the extra cli installs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
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

from loom.context.orchestrator import Context
from loom.errors import StoreUnavailable
from loom.everyday import Memory, open_memory
from loom.models.embedders import EmbeddingProvider
from loom.recall.hits import Hit
from loom.storage.contract import ForgetReceipt
from loom.terminal import visible

__all__ = ["CONVERSATION", "QUESTIONS", "Question", "Session", "Turn", "run", "store_from_input"]


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
    Question("Which OAuth flow did we choose, and why?", "by its words"),
    Question("What happened to the memory manager?", "an identifier, by its parts"),
    Question("Does anyone have an allergy?", "no word in common"),
    Question("How large is the budget?", 'session_id="lisbon"', (("session_id", "lisbon"),)),
    Question("发票的编号和金额是多少？", "in Chinese"),
    Question("Can I serve coffee at the meeting?", "an English question about a Chinese turn"),
    Question("When does Heron go live?", "it was moved"),
    Question("When does Heron go live?", "as_of 10 March", (("as_of", _day(3, 10)),)),
)

_SECRET = "What is the code of the key box?"
_DESK: list[dict[str, Any]] = [
    {"role": "user", "name": "Ana", "content": "Is there a place left in the sleeper to Madrid on 6 April?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "train_places", "arguments": '{"to": "Madrid", "on": "6 April"}'},
            }
        ],
    },
    {
        "role": "tool",
        "tool_call_id": "call_1",
        "content": "2 places in a double cabin, 129 euros, dinner included",
    },
]
_REQUEST = "Book it if it fits the budget of the Lisbon trip, and order my dinner."
_BUDGET = 400
_NEXT = (
    ('loom remember "..."', "and loom recall: the same from your shell, in a store of your own"),
    ("claude mcp add loom -- loom mcp", "memory for Claude Code; docs/mcp.md has other clients"),
    ("docs/tutorial.md", "ten minutes of Python, from the first memory to a prompt"),
)


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
    with tempfile.TemporaryDirectory(prefix="loom-demo-") as folder:
        path = Path(folder) / "demo.loom"
        text = Text("A memory for LLM agents in one local file. No service, no network, no model.")
        width = min(shown.width, 88)
        shown.print(Panel(text, title="[bold]loom[/]", title_align="left", border_style="cyan", width=width))
        _store_and_kill(shown, path)
        with open_memory(path, embedder=embedder, clock=clock, profile="chat") as memory:
            _restart(shown, memory, clock)
            _heading(shown, "2  Questions, with the best answer and the reasons")
            whole = memory.get_stats()["tokens"]
            for question in QUESTIONS:
                _ask(shown, memory, question, whole)
            _call_a_tool(shown, memory)
            _forget(shown, memory)
            _check(shown, memory)
    _suggest(shown)


def _date(moment: datetime) -> str:
    return f"{moment.day} {moment:%b}"


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold cyan"))


# --- a killed process ----------------------------------------------------------------------------------------


def store_from_input(path: str) -> None:
    """Store the sessions that standard input holds, a line each; then wait to be killed."""
    with open_memory(path, embedder="none", profile="chat", derive=False) as memory:
        for line in sys.stdin:
            session = json.loads(line)
            memory.remember(session["messages"], session_id=session["id"])
            print("stored", flush=True)


def _store_and_kill(console: Console, path: Path) -> None:
    _heading(console, "1  A conversation, a killed process, and a restart")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("session", "day", "begins with"):
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    table.add_column("turns", justify="right")
    code = "import sys; from loom.cli.demo import store_from_input; store_from_input(sys.argv[1])"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        for session in CONVERSATION:
            writer.stdin.write(json.dumps({"id": session.id, "messages": _messages(session)}) + "\n")
            writer.stdin.flush()
            if writer.stdout.readline() != "stored\n":
                raise StoreUnavailable("the process that stores the conversation ended early; its error is above")
            opening = Text(visible(session.turns[0].text))
            opening.truncate(42, overflow="ellipsis")
            table.add_row(session.id, _date(session.began_at), opening, str(len(session.turns)))
        writer.kill()
    console.print(table)
    console.print("A process stored these turns. It was killed after the last acknowledgement.")


def _messages(session: Session) -> list[dict[str, Any]]:
    return [
        {
            "role": turn.role,
            "content": turn.text,
            "created_at": (session.began_at + timedelta(minutes=minute)).isoformat(),
            **({"name": turn.name} if turn.name else {}),
            **({"id": turn.id} if turn.id else {}),
        }
        for minute, turn in enumerate(session.turns)
    ]


def _restart(console: Console, memory: Memory, clock: _Clock) -> None:
    clock.now = _CHANGED_AT
    memory.update("launch-date", _NEW_DATE)
    clock.now = _ASKED_AT
    with console.status("Embedding in the background; the first time, the model is loaded ..."):
        undone = memory.flush()
    stats = memory.get_stats()
    found = f"{stats['records'] - 1} turns found, {stats['tokens']:,} tokens (exact, {memory.counter.name})"
    if memory.embedder is None:
        means = 'words; for meaning too: pip install "loomkeep[embed]"'
    else:
        means = f"words and meaning ({visible(memory.embedder.name.split('/')[0])}, offline)"
    console.print(Text.assemble(("✓ " if undone.complete else "! ", "green"), found, "."))
    console.print(Text.assemble("  Recall is by ", (means, "bold green"), "."))


# --- asking --------------------------------------------------------------------------------------------------


def _ask(console: Console, memory: Memory, question: Question, whole: int) -> None:
    hits = memory.recall(question.text, limit=1, **dict(question.filters))
    console.print()
    console.print(
        Text.assemble(("? ", "bold yellow"), (visible(question.text), "bold"), (f"  {question.shows}", "dim italic"))
    )
    if not hits:
        console.print(Text("  no memory answers that", style="yellow"))
        return
    console.print(Padding(_hits(hits), (0, 0, 0, 2)))
    tokens = sum(hit.tokens for hit in hits)
    console.print(Text(f"       {tokens} tokens instead of {whole:,} for the whole conversation", style="green"))


def _hits(hits: list[Hit]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(justify="right", style="cyan", no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    for hit in hits:
        said = Text(visible(hit.content))
        source = f"{hit.name or hit.role}, {_date(hit.created_at)}"
        if hit.version > 1:
            source += f", version {hit.version}"
        table.add_row(f"{hit.score:.2f}", Group(said, Text(visible(f"{source}: {hit.why}"), style="dim")))
    return table


# --- a tool call and a prompt --------------------------------------------------------------------------------


def _call_a_tool(console: Console, memory: Memory) -> None:
    _heading(console, f"3  A tool call, and the next prompt within {_BUDGET} tokens")
    memory.remember(_DESK, session_id="desk")
    context = memory.context(_REQUEST, session_id="desk", budget=_BUDGET, system="You arrange journeys.")
    console.print()
    console.print(_prompt(context))
    left_out = len({one.id for one in context.dropped} - {item.id for item in context.items})
    figures = f"{context.tokens} of {context.budget} tokens: {len(context.items)} memories in, {left_out} left out"
    console.print(Text(figures, style="green"))


def _prompt(context: Context) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    for message in context.to_openai():
        called: Sequence[dict[str, Any]] = message.get("tool_calls") or ()
        text = str(message.get("content") or "").strip()
        text += "".join(f"{one['function']['name']}({one['function']['arguments']})" for one in called)
        table.add_row(str(message["role"]), Text("\n".join(map(visible, text.splitlines()))))
    return table


# --- forgetting ----------------------------------------------------------------------------------------------


def _forget(console: Console, memory: Memory) -> None:
    _heading(console, "4  Forgetting for good")
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
    counts = (
        (receipt.records - receipt.derived, "record", "records"),
        (receipt.vectors, "vector", "vectors"),
        (receipt.derived, "fact derived from it", "facts derived from it"),
        (receipt.segments, "index file rewritten", "index files rewritten"),
    )
    parts = [f"{count} {one if count == 1 else many}" for count, one, many in counts if count]
    return f"removed: {', '.join(parts)}"


def _check(console: Console, memory: Memory) -> None:
    console.print()
    report = memory.check()
    state = "everything matches its checksum" if report.ok else "; ".join(report.problems)
    console.print(
        Text.assemble(("✓ " if report.ok else "✗ ", "green"), f"{report.records} records checked: {state}.")
    )


def _suggest(console: Console) -> None:
    _heading(console, "Three things to try next")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    for what, why in _NEXT:
        table.add_row(what, why)
    console.print()
    console.print(table)
