"""The value of a built prompt: its evidence, the share of it that the provider has cached, and its cost.

    python -m benchmarks.context [evidence prefix cost] [--data PATH/locomo10.json] [--records 100000] [--save]
    python -m benchmarks.context --plot docs/context.svg

`evidence` needs LoCoMo (github.com/snap-research/locomo, CC BY-NC 4.0: bring your own copy) and compares prompts of
1,000 to 8,000 tokens with plain recall of as many tokens of bare text: the share of the turns with the answer that
are there. `prefix` holds a conversation of 400 turns over a memory of thousands; every second turn asks for an old
one. For each prompt of 16,000 tokens it measures the share of tokens that is an identical beginning of the previous
prompt, and whether the evidence is in it, compared with the stateless builder and a naive one in the same run. Facts
are not derived here: they could not be attributed to a turn by its id. `cost` compares the CPU of `context` with that
of `recall` of as many hits as the prompt is chosen from. No LLM is involved.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import figures
from benchmarks.measuring import best_by_query, long_turns, messages, percentile, questions
from loom.context import Context, PinnedSource
from loom.context.budget_chart import budget_chart, budget_parts
from loom.everyday import Memory, open_memory
from loom.text.tokens import TiktokenCounter

__all__ = ["main"]

BUDGETS = (1_000, 2_000, 4_000, 8_000)
PROMPT = 16_000
WARM_UP = 100
SYSTEM = (
    "You are the assistant of a small team. Answer from what you know of the conversation and from memory, in the "
    "language of the question. Keep answers short, name dates where they matter, and say so when you do not know."
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and the ids of the memories that answer it."""

    text: str
    evidence: frozenset[str]


# --- LoCoMo ----------------------------------------------------------------------------------------------


def read_locomo(path: Path) -> Iterator[tuple[list[dict[str, Any]], list[Asked]]]:
    """The turns and the questions of each conversation; questions without an answer are left out."""
    for number, sample in enumerate(json.loads(path.read_text(encoding="utf-8"))):
        talk = sample["conversation"]
        turns: list[dict[str, Any]] = []
        for key in sorted((k for k in talk if re.fullmatch(r"session_\d+", k)), key=lambda k: int(k[8:])):
            began = datetime.strptime(talk[f"{key}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
            for minute, turn in enumerate(talk[key]):
                caption = f" [{turn['blip_caption']}]" if turn.get("blip_caption") else ""
                turns.append(
                    {
                        "id": f"{number}/{turn['dia_id']}",
                        "role": "user",
                        "name": turn["speaker"],
                        "content": turn["text"] + caption,
                        "session_id": f"{number}/{key}",
                        "created_at": began + timedelta(minutes=minute),
                    }
                )
        known = {turn["id"] for turn in turns}
        asked = []
        for entry in sample["qa"]:
            named = re.findall(r"D\d+:\d+", " ".join(entry.get("evidence", [])))
            evidence = frozenset(f"{number}/{name}" for name in named) & known
            if entry["category"] != 5 and evidence:
                asked.append(Asked(str(entry["question"]), evidence))
        yield turns, asked


def evidence(path: Path, embedder: str) -> list[list[str]]:
    """Print the share of the evidence in prompts and in plain recall. Returns the rows of a table."""
    print("evidence in the prompt, LoCoMo, share of the turns with the answer")
    plain: dict[int, list[float]] = {budget: [] for budget in BUDGETS}
    built: dict[int, list[float]] = {budget: [] for budget in BUDGETS}
    for turns, asked in read_locomo(path):
        with open_memory(embedder=embedder, derive=False) as memory:
            memory.remember(turns)
            memory.flush()
            for one in asked:
                hits = memory.recall(one.text, limit=BUDGETS[-1] // 20)
                for budget in BUDGETS:
                    left, got = budget, set()
                    for hit in hits:
                        if hit.tokens <= left:
                            left -= hit.tokens
                            got.add(hit.id)
                    plain[budget].append(len(one.evidence & got) / len(one.evidence))
                    prompt = memory.context(one.text, budget=budget)
                    within(memory, prompt, budget)
                    there = {item.id for item in prompt.items}
                    built[budget].append(len(one.evidence & there) / len(one.evidence))
        print(f"  {len(plain[BUDGETS[0]])} questions", flush=True)
    table = [["budget", "recall", "context"]]
    print(f"  {'budget':<10}{'recall':>8}{'context':>9}{'difference':>12}")
    for budget in BUDGETS:
        bare, ours = (100 * float(np.mean(scores[budget])) for scores in (plain, built))
        print(f"  {budget:<10,}{bare:>8.1f}{ours:>9.1f}{ours - bare:>+12.1f}")
        table.append([f"{budget:,}", f"{bare:.1f} %", f"{ours:.1f} %"])
    return table


def within(memory: Memory, prompt: Sequence[dict[str, Any]], budget: int) -> None:
    tokens = memory.counter.count_messages(prompt)
    if tokens > budget:
        raise SystemExit(f"a prompt of {tokens:,} tokens under a budget of {budget:,}")


# --- a long conversation ---------------------------------------------------------------------------------


def own_memories(count: int) -> tuple[list[dict[str, Any]], list[Asked]]:
    """Messages of our own, and questions after some of them: their own words, in another order and with gaps."""
    random = np.random.default_rng(7)
    began = datetime(2026, 1, 5, 9, tzinfo=UTC)
    told: list[dict[str, Any]] = []
    for number, text in enumerate(messages(count)):
        told.append(
            {
                "id": f"old-{number}",
                "role": "user" if number % 2 == 0 else "assistant",
                "content": text,
                "session_id": f"past-{number // 40}",
                "created_at": began + timedelta(minutes=7 * number),
            }
        )
    asked = []
    for number in random.permutation(count)[:400]:
        text = told[number]["content"]
        if text.isascii():
            words = [word.strip(",.") for word in text.split()[3:] if len(word) > 3]
            chosen = " ".join(words[at] for at in random.permutation(len(words))[:6])
            asked.append(Asked(f"What was it about {chosen}?", frozenset({f"old-{number}"})))
        else:
            clauses = [clause for clause in re.split("[，。]", text) if clause]
            chosen = "，".join(clauses[at] for at in random.permutation(len(clauses))[:2])
            asked.append(Asked(f"{chosen}，这件事后来怎么样了？", frozenset({f"old-{number}"})))
    return told, asked


SMALL_TALK = (
    "Thanks, that helps.",
    "Let me think about it for a moment and come back to you with the next point.",
    "好的，我先看一下，稍后再说。",
    "Could you put that into two sentences for the weekly note?",
    "Fine. I will be in a meeting until three.",
    "明白了，继续吧。",
)
ANSWER = (
    "Here is what I found about it, as far as the records go: it was settled at the time, nobody has objected since, "
    "and the details are in the note from that week."
)


def conversation(asked: Sequence[Asked], turns: int) -> list[Asked]:
    """The user's text in each turn; every second one needs an old memory."""
    said = []
    for number in range(turns):
        if number % 2:
            said.append(asked[number // 2 % len(asked)])
        else:
            said.append(Asked(f"{SMALL_TALK[number // 2 % len(SMALL_TALK)]} ({number})", frozenset()))
    return said


def naive(memory: Memory, question: str) -> tuple[list[dict[str, Any]], set[str]]:
    """Rules, recalled memories, the last turns, and the question; memories and turns get half of the room each."""
    count = memory.counter.count
    left = PROMPT // 2
    lines, got = [], set()
    for hit in memory.recall(question, limit=PROMPT // 2 // 40):
        if hit.tokens + 4 <= left:
            left -= hit.tokens + 4
            lines.append(hit.content)
            got.add(hit.id)
    left += PROMPT // 2 - 200
    talk: list[dict[str, Any]] = []
    for record in memory.list(session_id="now", limit=400).records:
        if record.tokens + 4 > left:
            break
        left -= record.tokens + 4
        talk.insert(0, {"role": record.role, "content": record.content})
        got.add(record.id)
    memories = {"role": "system", "content": f"{SYSTEM}\nMemories:\n" + "\n".join(lines)}
    prompt = [memories, *talk, {"role": "user", "content": question}]
    if count(memories["content"]) > PROMPT:
        raise SystemExit("the naive prompt is over its budget")
    return prompt, got


def same_beginning(before: list[int], now: list[int]) -> float:
    """The share of a prompt's tokens that is an identical beginning of the previous prompt."""
    shared = next(
        (at for at, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now))
    )
    return shared / len(now)


def prefix(
    name: str, told: Sequence[dict[str, Any]], asked: Sequence[Asked], turns: int, embedder: str
) -> dict[str, dict[str, float]]:
    """Hold a conversation over these memories. Returns the mean identical beginning, evidence and tokens of each
    builder."""
    print(f"{name}: a conversation of {turns} turns over {len(told):,} memories, prompts of {PROMPT:,} tokens")
    encode = TiktokenCounter().encode
    shares: dict[str, list[float]] = {"continued": [], "stateless": [], "naive": []}
    found: dict[str, list[float]] = {name: [] for name in shares}
    sizes: dict[str, list[int]] = {name: [] for name in shares}
    before: dict[str, list[int]] = {name: [] for name in shares}
    rewrites = 0
    with open_memory(embedder=embedder, l1_token_budget=16_000, derive=False) as memory:
        memory.remember(list(told))
        memory.flush()
        now = datetime(2026, 6, 1, 9, tzinfo=UTC)
        for number, one in enumerate(conversation(asked, turns)):
            ours = memory.context(one.text, budget=PROMPT, session_id="now", system=SYSTEM)
            within(memory, ours, PROMPT)
            rewrites += ours.prefix == 0
            sides: dict[str, tuple[list[dict[str, Any]], set[str]]] = {}
            if number >= WARM_UP - 1:
                alone = memory.context(one.text, budget=PROMPT, system=SYSTEM)
                sides["continued"] = (ours.messages, {item.id for item in ours.items})
                sides["stateless"] = (alone.messages, {item.id for item in alone.items})
                sides["naive"] = naive(memory, one.text)
            for name, (prompt, ids) in sides.items():
                tokens = encode("\n".join(f"{message['role']}\n{message['content']}" for message in prompt))
                if number >= WARM_UP:
                    shares[name].append(same_beginning(before[name], tokens))
                    sizes[name].append(len(tokens))
                    if one.evidence:
                        found[name].append(len(one.evidence & ids) / len(one.evidence))
                before[name] = tokens
            at = now + timedelta(minutes=3 * number)
            memory.remember({"role": "user", "content": one.text}, session_id="now", created_at=at)
            memory.remember(
                {"role": "assistant", "content": ANSWER}, session_id="now", created_at=at + timedelta(minutes=1)
            )
    print(f"  {'builder':<12}{'same beginning':>15}{'evidence':>10}{'tokens':>8}   (turns {WARM_UP} to {turns})")
    for name in shares:
        print(
            f"  {name:<12}{100 * np.mean(shares[name]):>13.1f} %{100 * np.mean(found[name]):>8.1f} %"
            f"{np.mean(sizes[name]):>8,.0f}"
        )
    print(f"  {rewrites} rewrites in {turns} prompts")
    means = {
        name: {
            "same": float(np.mean(shares[name])),
            "evidence": float(np.mean(found[name])),
            "tokens": float(np.mean(sizes[name])),
        }
        for name in shares
    }
    return {**means, "all": {"memories": len(told), "rewrites": rewrites, "prompts": turns}}


# --- cost ------------------------------------------------------------------------------------------------


def _recall(memory: Memory, asked: Sequence[str], limits: Sequence[int], number: int) -> object:
    return memory.recall(asked[number], limit=limits[number])


def _recalled(memory: Memory, question: str, budget: int) -> int:
    """The number of hits from which a prompt is chosen. Its CPU is compared with a recall of as many."""
    sources = memory.context(question, budget=budget).sources
    return max(1, next(source.offered for source in sources if source.name == "recall"))


def _build(memory: Memory, asked: Sequence[str], budget: int, number: int) -> object:
    return memory.context(asked[number], budget=budget)


def _fill(memory: Memory, records: int, is_long: bool = False) -> None:
    """Fill a memory up to this many records. One that has them from an earlier run is used unchanged."""
    there = memory.get_stats()["records"]
    batch: list[str] = []
    for number, text in enumerate((long_turns if is_long else messages)(records)):
        if number < there:
            continue
        batch.append(text)
        if len(batch) == 5_000 or number == records - 1:
            memory.remember(batch, session_id=f"s{number // 5_000}")
            batch = []
    memory.flush()


def cost(records: int, rounds: int, store: Path | None, derive: bool, is_long: bool = False) -> list[list[str]]:
    """Print the cost of a prompt compared with a recall, and return the rows of a table."""
    table = [["budget", "recall p50", "p95", "context p50", "p95", "1.5 x recall + 5: p50", "p95"]]
    asked = questions(60)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_memory(store or Path(folder) / "cost.loom", embedder="none", derive=derive) as memory,
    ):
        _fill(memory, records, is_long)
        facts = len(memory.facts(limit=records))
        print(f"CPU of a prompt over {records:,} memories and {facts:,} facts drawn from them, milliseconds")
        print(f"  {'budget':<10}{'recall p50':>11}{'p95':>8}{'context p50':>13}{'p95':>8}{'bound p50':>11}{'p95':>8}")
        for budget in (2_000, 8_192):
            limits = [_recalled(memory, one, budget) for one in asked]
            recall = functools.partial(_recall, memory, asked, limits)
            build = functools.partial(_build, memory, asked, budget)
            runs = best_by_query([recall, build], len(asked), rounds)
            values = [percentile(times, at) for times in runs for at in (50, 95)]
            bounds = [1.5 * value + 5 for value in values[:2]]
            print(
                f"  {budget:<10,}{values[0]:>11.2f}{values[1]:>8.2f}{values[2]:>13.2f}{values[3]:>8.2f}"
                f"{bounds[0]:>11.2f}{bounds[1]:>8.2f}"
            )
            table.append([f"{budget:,}", *(f"{value:.1f}" for value in (*values, *bounds))])
    return table


# --- a picture -------------------------------------------------------------------------------------------


def plot(path: Path) -> None:
    """Draw the use of the budget of a prompt in a conversation over an older memory, as SVG and PNG."""
    told, _ = own_memories(1_500)
    with open_memory(embedder="none") as memory:
        memory.remember(told)
        memory.remember("My address is 3 Elbe Street, Berlin. " + "It rained. " * 400, name="Ana", role="user")
        for number in range(40):
            memory.remember({"role": "user", "content": f"Answers about invoice {number} are short."}, importance=0.9)
        for number in range(12):
            memory.remember({"role": "user", "content": f"{SMALL_TALK[number % 6]} ({number})"}, session_id="now")
            memory.remember({"role": "assistant", "content": ANSWER}, session_id="now")
        memory.flush()
        context = memory.context(
            "What was decided about the server and the invoice in Berlin, and what is the address of Ana?",
            session_id="now",
            budget=4_000,
            system=SYSTEM,
            sources=[PinnedSource("step 3 of 5: compare the invoices", label="TASK", name="task state")],
        )
    path.with_suffix(".svg").write_text(budget_chart(context, TITLE), encoding="utf-8")
    drawn = _png(context, path.with_suffix(".png"))
    print(f"{path.with_suffix('.svg')}{drawn}")
    print(f"  {context.tokens:,} of {context.budget:,} tokens, {len(context.items)} items")


TITLE = "A prompt in a conversation"


def _png(context: Context, path: Path) -> str:
    """The same picture by matplotlib, if it is installed. Returns a line about it."""
    if importlib.util.find_spec("matplotlib") is None:
        return " (no PNG: matplotlib is not installed, pip install 'loomkeep[bench]')"
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    parts = budget_parts(context)
    figure, axes = pyplot.subplots(figsize=(7.2, 2.8), dpi=150)
    left = 0
    for part in parts:
        axes.barh(0, part.tokens, left=left, color=part.colour, label=part.label(context.budget))
        left += part.tokens
    axes.set_title(f"{TITLE}: {context.tokens:,} of {context.budget:,} tokens", loc="left", fontsize=10)
    axes.set_xlim(0, context.budget)
    axes.set_ylim(-0.5, 0.5)
    axes.axis("off")
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.0), fontsize=8, frameon=False)
    figure.savefig(path, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(figure)
    return f" and {path.name}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.context", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="evidence, prefix, cost; all by default")
    parser.add_argument("--data", type=Path, help="a copy of LoCoMo's locomo10.json")
    parser.add_argument("--embedder", default="auto")
    parser.add_argument("--turns", type=int, default=400)
    parser.add_argument("--memories", type=int, default=5_000, help="of our own, for the conversation")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--store", type=Path, help="a file for the memories of `cost`, kept for the next run")
    parser.add_argument("--derive", action="store_true", help="draw facts from the memories of `cost` first; slow")
    parser.add_argument("--long", action="store_true", help="turns of 500 to 2,000 tokens as the memories of `cost`")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="only draw a prompt, into this file and a .png")
    options = parser.parse_args(arguments)
    if options.plot is not None:
        plot(options.plot)
        return
    parts = options.parts or ["evidence", "prefix", "cost"]
    unknown = sorted(set(parts) - {"evidence", "prefix", "cost"})
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are evidence, prefix and cost")
    kept: dict[str, dict[str, Any]] = {}
    if "evidence" in parts:
        if options.data is None:
            print("evidence: needs --data (github.com/snap-research/locomo, data/locomo10.json)")
        else:
            kept["context-evidence"] = {"table": evidence(options.data, options.embedder)}
    if "prefix" in parts:
        kept["context-prefix"] = prefixes(options.memories, options.data, options.turns, options.embedder)
    if "cost" in parts:
        name = f"context{'-long' if options.long else ''}{'-facts' if options.derive else ''}"
        table = cost(options.records, options.rounds, options.store, options.derive, options.long)
        kept[name] = {"cost": table}
    for name, found in kept.items() if options.save else ():
        figures.save(name, sys.argv[1:] if arguments is None else arguments, found)


def prefixes(memories: int, data: Path | None, turns: int, embedder: str) -> dict[str, Any]:
    """Conversations over our own memories and, if there is data, over all of it and over its longest part."""
    found = {"own": prefix("our own", *own_memories(memories), turns, embedder)}
    rows = [("own", "our own")]
    if data is not None:
        conversations = list(read_locomo(data))
        longest = max(conversations, key=lambda one: len(one[0]))
        together = (
            [turn for told, _ in conversations for turn in told],
            [one for _, a in conversations for one in a],
        )
        rows += [("together", f"{len(conversations)} of LoCoMo in one memory"), ("longest", "the longest of LoCoMo")]
        for (key, name), (told, several) in zip(rows[1:], (together, longest), strict=True):
            order = np.random.default_rng(3).permutation(len(several))
            found[key] = prefix(name, told, [several[at] for at in order], turns, embedder)
    table = [["conversation over", "builder", "identical beginning", "evidence", "tokens"]]
    for key, name in rows:
        for builder in ("continued", "stateless", "naive"):
            of = found[key][builder]
            over = f"{name}, {found[key]['all']['memories']:,} memories" if builder == "continued" else ""
            table.append(
                [over, builder, f"{100 * of['same']:.1f} %", f"{100 * of['evidence']:.1f} %", f"{of['tokens']:,.0f}"]
            )
    return {**found, "table": table}


if __name__ == "__main__":
    main()
