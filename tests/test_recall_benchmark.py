"""The recall benchmark measures what it says, and its own sets are sound."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.recall.__main__ import verdict
from benchmarks.recall.data import (
    OWN_SETS,
    SETS_OF_STORES,
    Dialogue,
    Question,
    load,
    load_own,
    load_stores,
    parse,
    some_of,
)
from benchmarks.recall.measures import MEASURES, Outcome, measure
from benchmarks.recall.quoting import Passages, passages_of
from benchmarks.recall.report import figures_of, save_figures
from benchmarks.recall.sides import SharedEmbedder, baselines, fill, outcomes, plain_bm25, recall_side


def test_what_was_not_found_counts_nowhere_however_short_the_answer() -> None:
    values = dict(zip(MEASURES, measure("k", ["a"], [10], ["b"]).values, strict=True))
    assert {value for name, value in values.items() if not name.startswith("quoted")} == {0.0}


def test_a_budget_ends_before_the_record_that_no_longer_fits() -> None:
    values = dict(zip(MEASURES, measure("k", ["a", "b", "c"], [900, 200, 50], ["a", "b"]).values, strict=True))
    assert (values["evidence 1K"], values["all 1K"]) == (0.5, 0.0)
    assert (values["evidence 2K"], values["all 2K"]) == (1.0, 1.0)
    assert (values["recall@5"], values["MRR"]) == (1.0, 1.0)


LOCOMO = [
    {
        "sample_id": "c1",
        "conversation": {
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [{"dia_id": "D1:1", "speaker": "Ana", "text": "The boat is blue."}],
        },
        "qa": [{"question": "Which colour?", "evidence": ["D1:1"], "category": 4}],
    }
]
COMMON = [
    {
        "id": "chat",
        "items": [
            {"id": "1", "session": "a", "time": "2024-03-15T00:00:00", "text": "Paint the boat.", "role": "user"},
            {"id": "2", "session": "a", "time": "2024-03-15T00:01:00", "text": "Blue?", "role": "assistant"},
        ],
        "questions": [
            {"question": "What to paint?", "evidence": ["1"], "category": "event_ordering"},
            {"question": "Which colour?", "evidence": ["2"], "category": "2"},
            {"question": "Who?", "evidence": ["9"], "category": "2"},
        ],
    }
]


def test_the_form_of_a_file_is_recognised(tmp_path: Path) -> None:
    for name, samples in {"ours.json": LOCOMO, "talks_dev.json": COMMON}.items():
        (tmp_path / name).write_text(json.dumps(samples))
    name, (conversation,) = load(tmp_path / "ours.json")
    assert (name, conversation.turns[0].name, conversation.questions[0].kind) == ("locomo", "Ana", "single-hop")
    name, (chat,) = load(tmp_path / "talks_dev.json")
    assert (name, [turn.role for turn in chat.turns]) == ("talks", ["user", "assistant"])
    assert [question.kind for question in chat.questions] == ["event ordering", "temporal"]
    (tmp_path / "other.json").write_text("[{}]")
    with pytest.raises(ValueError, match="common form"):
        load(tmp_path / "other.json")


def test_a_part_of_a_set_has_questions_of_every_kind(tmp_path: Path) -> None:
    (tmp_path / "talks.json").write_text(json.dumps(COMMON * 3))
    _, chats = load(tmp_path / "talks.json")
    kinds = Counter(question.kind for chat in some_of(chats, 2) for question in chat.questions)
    assert kinds == {"event ordering": 2, "temporal": 2}


def test_a_turn_counts_when_the_passage_that_the_question_needs_is_quoted() -> None:
    weather, boat = ("It rained again. " * 50).strip(), ("The boat is blue and new. " * 35).strip()
    (turn,) = parse("x", "# 2024-01-01 10:00\nuser: x\n").turns
    long = replace(turn, text=f"{weather}\n\n{boat}")
    dialogue = Dialogue("x", (long,), (Question("Is the boat blue?", "k", ("1.1",)),))
    assert passages_of(long.text) == [weather, boat]
    passages = Passages(dialogue)
    found, share = passages.quoted("Is the boat blue?", "1.1", [f"[...] {boat}"])
    assert found
    assert 0.4 < share < 0.6
    assert passages.quoted("Is the boat blue?", "1.1", [weather])[0] is False
    assert passages.quoted("Is the boat blue?", "1.1", [long.text]) == (True, 1.0)
    assert passages.quoted("Was it worth it?", "1.1", [boat])[0] is False  # no word chooses: the whole is needed


def test_embeddings_are_kept_for_the_next_run(tmp_path: Path) -> None:
    counting = Counting()
    for _ in range(2):
        assert SharedEmbedder(counting, tmp_path).embed_batch(["one", "two"]).shape == (2, 2)
    assert counting.asked == ["one", "two"]


def test_plain_bm25_ranks_by_the_words_alone() -> None:
    dialogue = parse("x", "# 2024-01-01 10:00\nAna: The boat.\nBen: The boat, the pier.\n== k\nThe pier? = 1.2\n")
    with fill(dialogue, "none") as memory:
        assert plain_bm25(memory)("Which boat is at the pier?") == ["1.2", "1.1"]


@pytest.mark.parametrize("name", OWN_SETS)
def test_our_own_sets_ask_questions_of_both_kinds(name: str) -> None:
    dialogue = load_own(name)
    assert len(dialogue.turns) > 100
    assert len(dialogue.questions) >= 40
    assert {question.kind for question in dialogue.questions} == {"lexical", "paraphrased"}


def test_evidence_that_names_no_turn_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"1\.2"):
        parse("x", "# 2024-01-01 10:00\nAna: hello\n== lexical\nWho? = 1.2\n")


def test_a_turn_may_have_several_lines() -> None:
    text = "# 2024-01-01 10:00\ntool: def f():\n|     return 1\n|\n| | a | b |\nuser: thanks\n== tool\nWhat? = 1.1\n"
    dialogue = parse("x", text)
    assert [turn.text for turn in dialogue.turns] == ["def f():\n    return 1\n\n| a | b |", "thanks"]
    assert [turn.role for turn in dialogue.turns] == ["tool", "user"]


KINDS_OF_QUESTIONS = [
    "facts",
    "information",
    "tool",
    "instructions",
    "preferences",
    "updates",
    "temporal",
    "several",
    "order",
    "summary",
    "contradictions",
    "paraphrase",
    "English",
]


def test_the_sets_of_several_stores_are_what_was_committed() -> None:
    assert SETS_OF_STORES == ("chinese-assistant", "agents")
    for name in SETS_OF_STORES:
        questions = [question for dialogue in load_stores(name) for question in dialogue.questions]
        assert min(Counter(question.kind for question in questions).values()) >= 20
        assert len({question.text for question in questions}) == len(questions)


def test_the_set_of_conversations_with_an_assistant_is_what_was_committed() -> None:
    dialogues = load_stores("chinese-assistant")
    asked = [question for dialogue in dialogues for question in dialogue.questions]
    kinds = Counter(question.kind for question in asked)
    assert list(kinds) == KINDS_OF_QUESTIONS
    turns = [turn for dialogue in dialogues for turn in dialogue.turns]
    assert 500 <= len(turns) <= 700
    assert {turn.role for turn in turns} == {"user", "assistant", "tool"}
    assert len(max((turn.text for turn in turns), key=len)) > 1000


def test_a_set_that_was_changed_after_it_was_committed_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  a.txt\n")
    (folder / "a.txt").write_text("# 2024-01-01 10:00\nuser: hello\n")
    with pytest.raises(ValueError, match="SHA256SUMS"):
        load_stores("x", tmp_path)


def test_recall_beats_plain_full_text_search_on_our_own_chinese_set() -> None:
    dialogue = load_own("chinese")
    with fill(dialogue, "none") as memory:
        ours, theirs = (
            sum(one.values[0] for one in outcomes(memory, dialogue, rank))
            for rank in (recall_side(memory), baselines(memory, dialogue, None)["plain FTS5"])
        )
    assert ours > theirs + 5


class Counting:
    """An embedder that counts its questions."""

    name = "counting"
    dimensions = 2

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, text: str) -> npt.NDArray[np.float32]:
        return np.asarray(self.embed_batch([text])[0])

    def embed_batch(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self.asked += texts
        return np.array([[1.0, 0.0]] * len(texts), dtype=np.float32)


def test_every_text_and_question_is_embedded_once_for_all_sides() -> None:
    dialogue = parse("x", "# 2024-01-01 10:00\nAna: The boat.\nBen: The pier.\n== lexical\nWhich boat? = 1.1\n")
    counting = Counting()
    shared = SharedEmbedder(counting)
    for _ in range(2):
        with fill(dialogue, shared) as memory:
            for rank in (recall_side(memory), *baselines(memory, dialogue, shared).values()):
                outcomes(memory, dialogue, rank)
    assert sorted(counting.asked) == ["Ana: The boat.", "Ben: The pier.", "Which boat?"]


def test_the_verdict_names_where_fusing_is_worse_than_a_part_of_it() -> None:
    found, missed = (measure("lexical", ids, [10] * len(ids), ["a"]) for ids in (["a"], ["b"]))
    assert verdict({"recall": [found], "plain FTS5": [missed]}) == "never worse than a part of it"
    told = verdict({"recall": [missed], "plain FTS5": [found]})
    assert "recall@5 by 100.0 (plain FTS5)" in told


def test_a_run_of_one_set_keeps_the_saved_figures_of_the_others(tmp_path: Path) -> None:
    def outcome(kind: str, at_ten: float) -> Outcome:
        return Outcome(kind, tuple(at_ten for _ in MEASURES))

    own = {
        "recall": [outcome("facts", 1.0), outcome("order", 0.5)],
        "plain BM25": [outcome("facts", 0.5), outcome("order", 0.5)],
        "recall by words": [outcome("facts", 0.5), outcome("order", 0.5)],
    }
    ablated = {"recall": own["recall"], "without words": own["plain BM25"]}
    figures = figures_of(own, ablated, own["recall"], [(0.9, True), (0.3, False)])
    save_figures({"agent": {"auto": figures}}, ["--sets", "agent", "--save"], folder=tmp_path)
    save_figures({"beam": {"auto": figures}}, ["--sets", "beam", "--save"], folder=tmp_path)
    saved = json.loads((tmp_path / "recall.json").read_text(encoding="utf-8"))
    assert saved["command"] == "python -m benchmarks.recall --embedder auto --sets beam agent"
    tables = saved["figures"]["tables"]
    assert tables["reached"][:2] == [["", "BEAM", "agent"], ["recall, with the embedder", "75.0", "75.0"]]
    assert ["words", "-25.0", "-25.0"] in tables["signals"]
    assert tables["kinds_beam"][1] == ["facts", "100.0", "50.0", "", "100.0"]
    assert tables["embedders"][1][0] == "with the embedder"
