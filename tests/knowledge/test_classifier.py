"""The probability that a statement is worth keeping: the model, its weights, and the data that they were learned
from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.dialogues import checksum, load
from benchmarks.statement_classifier import DEVELOPMENT, examples, judged, learn, threshold, write
from loom.knowledge.classifier import (
    TYPES,
    WEIGHTS_FILE,
    Model,
    TurnContext,
    assess,
    choice_probabilities,
    features,
    in_company,
    is_kept,
    load_model,
    point_probabilities,
    shipped_model,
    type_probabilities,
)
from loom.knowledge.summarizer import Summarizer, Turn
from loom.text.sentences import statements
from loom.text.statements import clauses, cuts


def worths(text: str) -> list[float]:
    return [one.worth for one in assess(statements(text), shipped_model())]


# --- the model ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fact", "chat"),
    [
        (
            "We moved the launch to 14 May because the printer needs nine days.",
            "Well, that is how it goes with launches.",
        ),
        ("The import broke on row 8,112: a date without a year.", "I think we all know that feeling with imports."),
        ("仓库的租约到九月三十号为止，一个月一万二。", "租房子这种事情真是说来话长。"),
        ("把超时改成 30 秒以后就不再报错了。", "你说得太有道理了，哈哈。"),
    ],
)
def test_a_fact_is_worth_more_than_talk_about_the_same(fact: str, chat: str) -> None:
    assert worths(fact)[0] > 0.5 > 0.3 > worths(chat)[0]


def test_the_type_with_the_highest_probability_is_what_the_statement_states() -> None:
    for text, expected in (
        ("We decided to use PostgreSQL for the ledger.", "decision"),
        ("Restarting the worker fixed the import.", "fix"),
        ("审计从5月4日开始。", "date"),
        ("每个进程占 512 MB。", "number"),
    ):
        (one,) = assess(statements(text), shipped_model())
        types = type_probabilities(one, shipped_model())
        assert max(types, key=types.__getitem__) == expected
        assert all(0 <= probability <= one.worth for probability in types.values())


def test_the_point_is_in_the_clause_that_carries_it() -> None:
    (sentence,) = statements("I was out walking the dog, but the rent goes up to 980 euros in May, and that's life.")
    parts = clauses(sentence)
    likely = point_probabilities(features(parts), shipped_model())
    assert "980" in parts[likely.index(max(likely))].text


def test_a_statement_of_one_clause_holds_its_whole_point() -> None:
    assert point_probabilities(features(statements("The rent is 980 euros.")), shipped_model()) == [1.0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("I was out walking the dog, but we decided to take the offer for 980 euros, and that's life.", "980"),
        ("昨天我去遛狗了，我们决定把房租降到980块，哈哈真不错。", "980"),
    ],
)
def test_a_summary_would_choose_the_clause_with_the_decision(text: str, told: str) -> None:
    (sentence,) = assess(statements(text), shipped_model())
    parts = cuts(sentence.statement)
    likely = choice_probabilities(sentence.features, features(parts), shipped_model())
    assert told in parts[likely.index(max(likely))].text
    assert max(likely) > 3 * min(likely)


def test_a_plain_note_is_taken_at_its_word_and_the_same_words_in_talk_are_weighed() -> None:
    note = "Never drink tap water."
    (alone,) = assess(statements(note), shipped_model())
    beside = assess(statements(f"Guess what my aunt used to say? {note} Funny, isn't it?"), shipped_model())[1]
    assert is_kept(alone, shipped_model())
    assert not is_kept(beside, shipped_model())


def test_a_short_note_needs_more_worth_after_another_turn() -> None:
    (note,) = assess(statements("Never drink tap water."), shipped_model())
    doubtful = note._replace(worth=shipped_model().keep_from - 0.05)
    assert is_kept(doubtful, shipped_model())
    assert not is_kept(doubtful, shipped_model(), TurnContext("user", "My aunt had a parrot."))


STORY = "The train stood outside Stockport for forty minutes."


def test_a_statement_is_worth_less_the_more_of_its_turn_is_talk() -> None:
    alone = assess(statements(STORY), shipped_model())
    assert in_company(alone) == alone
    beside_questions = [in_company(alone, others)[0].worth for others in (1, 2, 5)]
    assert all(worth < alone[0].worth for worth in beside_questions)
    assert beside_questions == pytest.approx(sorted(beside_questions, reverse=True))


def test_a_fact_among_facts_keeps_its_worth() -> None:
    told = assess(
        statements("We decided to use PostgreSQL 16 for the ledger. The migration is on 4 May at 22:00."),
        shipped_model(),
    )
    assert [one.worth for one in in_company(told)] == pytest.approx([one.worth for one in told])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.integers(0, 6))
def test_company_never_adds_worth_and_keeps_probabilities(worths: list[float], others: int) -> None:
    (one,) = assess(statements(STORY), shipped_model())
    found = in_company([one._replace(worth=worth) for worth in worths], others)
    assert all(0 <= judged.worth <= worth + 1e-12 for judged, worth in zip(found, worths, strict=True))


@pytest.mark.parametrize(
    ("question", "answer"),
    [("How long do we give him?", "Fourteen days."), ("什么时候交货？", "月底吧。")],
)
def test_a_short_answer_is_worth_more_after_a_question(question: str, answer: str) -> None:
    said = statements(answer)
    after, alone = (
        assess(said, shipped_model(), TurnContext("user", before))[0].worth for before in (question, "Nice.")
    )
    assert after > alone


def test_who_speaks_counts_and_an_unknown_role_is_taken_for_a_user() -> None:
    said = statements("We decided to use 40 trucks.")
    users, unknown, tools = (
        assess(said, shipped_model(), TurnContext(role))[0].worth for role in ("user", None, "tool")
    )
    assert users == unknown
    assert users != tools


def test_what_is_wanted_is_judged_as_among_all_of_them() -> None:
    found = statements("Morning! We moved the importer to Postgres. Did you see it? It takes 40 minutes now.")
    context = TurnContext("user", "What is new?")
    everything = assess(found, shipped_model(), context)
    assert assess(found, shipped_model(), context, [False, True, False, True]) == [everything[1], everything[3]]
    assert assess(found, shipped_model(), context, [False] * 4) == []


@given(st.text(max_size=300))
def test_any_text_can_be_judged_and_always_the_same_way(text: str) -> None:
    found = statements(text)
    first, second = assess(found, shipped_model()), assess(found, shipped_model())
    assert first == second
    assert [one.statement for one in first] == found
    assert all(0 <= one.worth <= 1 for one in first)


@pytest.mark.parametrize("piece", ["a", "1,", "“", "字", "no ", "7 "])
def test_what_is_seen_in_a_statement_without_end_is_bounded(piece: str) -> None:
    assert max(len(seen) for seen in features(statements(piece * 20_000))) < 1_000


def test_weights_are_read_at_first_use_only() -> None:
    code = "import loom, sys; sys.exit('loom.knowledge.classifier' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- the shipped weights ------------------------------------------------------------------------------------


def test_the_shipped_weights_were_learned_from_the_shipped_dialogues() -> None:
    assert shipped_model().data == checksum(DEVELOPMENT)


def test_the_shipped_weights_are_small_and_know_every_type() -> None:
    assert WEIGHTS_FILE.stat().st_size < 300_000
    assert shipped_model().type_weights.keys() == TYPES.keys() == shipped_model().type_bias.keys()
    assert 0.5 < shipped_model().keep_from < 1


def test_every_mark_of_the_development_dialogues_is_in_its_turn() -> None:
    dialogues = load(DEVELOPMENT)
    assert len({dialogue.id for dialogue in dialogues}) == len(dialogues)
    for dialogue in dialogues:
        for turn in dialogue.utterances:
            assert [mark.id for mark in turn.marks if not mark.kept_in(turn.text) or mark.type not in TYPES] == []


# --- learning -----------------------------------------------------------------------------------------------


def test_learning_twice_from_the_same_dialogues_gives_the_same_weights() -> None:
    known = examples(load(DEVELOPMENT)[:6])
    assert learn(known) == learn(known)


def test_what_was_learned_tells_facts_from_talk_in_dialogues_left_out() -> None:
    talk = [dialogue for dialogue in load(DEVELOPMENT) if dialogue.id.startswith("zh_")]
    learned = learn(examples(talk[:12]))
    found = judged(learned, talk[12:16])
    right = np.array([bool(one.example.marks) for one in found])
    worth = np.array([one.worth for one in found])
    assert worth[right].mean() > 2 * worth[~right].mean()
    assert 0 < threshold(found, 0.6) <= threshold(found, 0.9) <= 1


def test_weights_that_are_written_are_read_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "classifier.json"
    of_statements = (-1.5, {"w:rent": 0.25}, {"fix": -2.0}, {"fix": {"w:cured": 1.0}})
    made = Model(*of_statements, 0.5, {"#n1": 0.75}, -0.5, {"w:so": 0.5}, {"w:we": 2.0}, 0.7, "sum")
    write(made, path)
    assert load_model(path) == made


def test_a_summary_leaves_next_to_nothing_of_its_budget() -> None:
    unused = {}
    for dialogue in load(DEVELOPMENT):
        if dialogue.id in ("en_migration", "en_support", "zh_crash", "zh_network", "zh_support"):
            told = [Turn(turn.id, turn.text, turn.speaker, turn.role, turn.at) for turn in dialogue.utterances]
            for budget in (150, 200, 250):
                unused[dialogue.id, budget] = budget - Summarizer().summarize(told, budget=budget).tokens
    assert len(unused) == 15
    assert max(unused.values()) <= 3


def test_a_summary_can_be_made_with_other_weights() -> None:
    told = [Turn("1", "The rent is 980 euros."), Turn("2", "Our dog is called Pepper.")]
    indifferent = Model(-9.0, {}, dict.fromkeys(TYPES, 0.0), {kind: {} for kind in TYPES}, 0, {}, 0, {}, {}, 0.7, "")
    assert Summarizer().summarize(told, budget=50).text
    assert not Summarizer(weights=indifferent).summarize(told, budget=50).text
