"""Commands on a memory that is on a server: a URL in the place of a path."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime

import pytest

from loom.cli import main
from loom.discovery import as_place, is_server
from loom.storage import open_store
from loom.storage.contract import Draft, Filter


def test_commands_take_the_url_of_a_server(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    def say(*arguments: str) -> str:
        assert main([*arguments, "--store", postgres_url]) == 0, capsys.readouterr()
        return capsys.readouterr().out

    say("remember", "We chose the authorization-code flow.", "--id", "flow")
    assert "authorization-code" in say("recall", "Which flow?")
    assert "1 record, ok" in say("check")
    assert "records" in say("stats")
    assert "server" in say("doctor")
    say("forget", "flow", "--yes")
    assert "authorization-code" not in say("recall", "Which flow?")


def test_doctor_says_what_waits_for_vacuum_in_every_namespace(
    postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for namespace in ("red", "blue"):
        with closing(open_store(postgres_url, namespace=namespace)) as store:
            with store.transaction() as transaction:
                transaction.append([Draft("x", "a text", datetime(2026, 2, 3, tzinfo=UTC))])
            store.flush()
            # The worker vacuums at most once a minute, and has just done so.
            store.engine.tidy()  # type: ignore[attr-defined]
            store.forget(Filter(ids=["x"]))
    assert main(["doctor", "--store", postgres_url]) == 0
    assert "after 2 times of forgetting" in capsys.readouterr().out


def test_a_place_that_is_a_url_shows_no_password() -> None:
    url = "postgresql://ana:secret@host/memory?schema=x"
    place = as_place(url)
    assert is_server(place)
    assert place.__fspath__() == url
    assert str(place) == "postgresql://ana@host/memory?schema=x"
    assert place.exists()
    assert not is_server(as_place("a/postgresql/b.loom"))
