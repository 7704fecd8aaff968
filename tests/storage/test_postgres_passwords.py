"""TLS and passwords: where libpq finds them, and that loom shows them nowhere."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest

import loom
from loom.cli import main
from loom.errors import InvalidInput, LoomError, StoreUnavailable
from loom.storage import open_store
from tests.postgres_server import Programs, find_programs, running_server

pytest.importorskip("psycopg")

import psycopg

SECRET = "ge/heim:9"
WRONG = "fal/sch:8"


class Guarded(NamedTuple):
    """A server that asks for passwords. With a certificate it accepts TLS only."""

    port: int
    certificate: Path | None

    def url(self, cache: Path, more: str = "", *, password: str | None = None) -> str:
        user = "ana" if password is None else f"ana:{quote(password, safe='')}"
        tls = "" if self.certificate is None else f"&sslmode=verify-full&sslrootcert={self.certificate}"
        return f"postgresql://{user}@127.0.0.1:{self.port}/memory?partitions=1&cache={cache}{tls}{more}"


def programs_with_tls() -> Programs | None:
    """The programs of Debian's package; those of the wheel have no TLS."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True)
    return Programs(places[0].parent) if places and shutil.which("openssl") is not None else None


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    tls = programs_with_tls()
    programs = tls or find_programs()
    if programs is None:
        pytest.skip("no programs of a PostgreSQL server")
    folder = Path(tempfile.mkdtemp(prefix="loom-postgres-tls-"))
    try:
        key, certificate, rules = (folder / name for name in ("key.pem", "certificate.pem", "pg_hba.conf"))
        settings = [f"hba_file={rules}", "listen_addresses=127.0.0.1"]
        if tls is not None:
            made = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
            subprocess.run(
                ["openssl", *made.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True
            )
            settings += ["ssl=on", f"ssl_cert_file={certificate}", f"ssl_key_file={key}"]
        kind = "host" if tls is None else "hostssl"
        rules.write_text(f"local all all trust\n{kind} all all 127.0.0.1/32 scram-sha-256\n")
        for path in (folder, *folder.iterdir()):
            programs.own(path)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        # Options that come later win: the tests' own address is a socket.
        with running_server(programs, settings, port=port) as server:
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute(f"CREATE ROLE ana LOGIN PASSWORD '{SECRET}'".encode())
                connection.execute("CREATE DATABASE memory OWNER ana")
            yield Guarded(port, None if tls is None else certificate)
    finally:
        shutil.rmtree(folder)


def test_tls_is_used_and_required_as_the_url_says(guarded: Guarded, tmp_path: Path) -> None:
    if guarded.certificate is None:
        pytest.skip("a server with TLS needs Debian's postgresql package, and openssl")
    store = open_store(guarded.url(tmp_path, password=SECRET))
    with store.engine.server.lent() as raw:  # type: ignore[attr-defined]
        assert raw.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone() == (True,)
    store.close()
    for mode in ("disable", "verify-full&sslrootcert=/dev/null"):
        with pytest.raises(StoreUnavailable):
            open_store(guarded.url(tmp_path, f"&sslmode={mode}", password=SECRET))


def test_passwords_come_from_the_url_a_password_file_or_a_service(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passwords = tmp_path / "pgpass"
    escaped = SECRET.replace(":", "\\:")
    passwords.write_text(f"127.0.0.1:{guarded.port}:memory:ana:{escaped}\n")
    passwords.chmod(0o600)
    services = tmp_path / "services"
    services.write_text(f"[ours]\nhost=127.0.0.1\nport={guarded.port}\ndbname=memory\nuser=ana\npassword={SECRET}\n")
    with loom.open(guarded.url(tmp_path, password=SECRET), embedder="none") as memory:
        memory.remember("kept", id="x")
    with pytest.raises(StoreUnavailable):
        open_store(guarded.url(tmp_path, "&passfile=/dev/null"))
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    for url in (guarded.url(tmp_path), f"postgresql:///?service=ours&cache={tmp_path}"):
        with loom.open(url, embedder="none") as memory:
            assert memory.get("x") is not None


@pytest.mark.parametrize("place", ["user", "option"])
def test_no_password_is_in_what_loom_shows(
    guarded: Guarded,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    place: str,
) -> None:
    def url(password: str, more: str = "") -> str:
        if place == "user":
            return guarded.url(tmp_path, more, password=password)
        return guarded.url(tmp_path, f"&password={quote(password, safe='')}{more}")

    shown: list[object] = []
    caplog.set_level(logging.DEBUG)
    with loom.open(url(SECRET), embedder="none") as memory:
        memory.remember("text")
        memory.flush()
        store = memory.store
        shown += [memory, store, store.location, store.engine, store.engine.server, memory.get_stats()]  # type: ignore[attr-defined]
    for command in ("stats", "check", "doctor", "namespaces", "flush", "vacuum"):
        main([command, "--store", url(SECRET)])
        main([command, "--store", url(SECRET), "--json"])
        main([command, "--store", url(WRONG)])
    main(["migrate", url(SECRET), str(tmp_path / "copy.loom"), "--json"])
    for broken in (url(WRONG), url(SECRET, "&no_such_option=1"), url(SECRET, "&schema=No"), url(SECRET, "&port=x")):
        with pytest.raises((InvalidInput, LoomError)) as caught:
            open_store(broken)
        shown += [caught.value, caught.value.__cause__ or ""]
    printed = capsys.readouterr()
    everything = "\n".join([*map(repr, shown), *map(str, shown), printed.out, printed.err, caplog.text])
    assert "127.0.0.1" in everything
    for secret in (SECRET, WRONG):
        for form in (secret, quote(secret, safe=""), quote(secret), json.dumps(secret)[1:-1]):
            assert form not in everything
