"""The folders that the user trusts.

A folder that was cloned, unpacked or shared may contain a `loom.toml` and a memory of another user. Files of another
owner, and settings that send texts over the network, are used only after the user has trusted the folder. The list is
`loom/trusted.json` in the user's configuration folder, with each folder and the digest of its `loom.toml`.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from loom.errors import InvalidInput, UntrustedFolder

__all__ = [
    "SETTINGS_FILE",
    "TRUSTED_VARIABLE",
    "check_store",
    "config_folder",
    "digest",
    "doubts_about",
    "is_trusted",
    "read_with_doubts",
    "trust_folder",
    "withdraw_trust",
]

SETTINGS_FILE: Final = "loom.toml"
TRUSTED_VARIABLE: Final = "LOOM_TRUSTED_FOLDERS"
"""Folders, separated as in PATH, that are trusted with any content: for containers, which keep no list."""

_LARGEST_FILE: Final = 1024 * 1024


def trust_folder(folder: str | os.PathLike[str] = ".", *, environ: Mapping[str, str] | None = None) -> str:
    """Trust the memories in a folder, of any owner, and its current `loom.toml`. Return the real path of the folder.

    A `loom.toml` that changes or appears later must be trusted again. Read it first.
    """
    place = os.path.realpath(folder)
    if not os.path.isdir(place):
        raise InvalidInput(f"{place} is not a folder; trust the folder that holds the {SETTINGS_FILE} or the memory")
    try:
        content, _ = read_with_doubts(os.path.join(place, SETTINGS_FILE))
    except FileNotFoundError:
        content = b""
    except OSError as error:
        raise InvalidInput(f"{os.path.join(place, SETTINGS_FILE)} cannot be read: {error.strerror}") from error
    environment = os.environ if environ is None else environ
    _write(environment, {**_listed(environment), place: digest(content)})
    return place


def withdraw_trust(folder: str | os.PathLike[str] = ".", *, environ: Mapping[str, str] | None = None) -> bool:
    """Undo `trust_folder`. Return False if the folder was not trusted."""
    environment = os.environ if environ is None else environ
    listed = _listed(environment)
    if listed.pop(os.path.realpath(folder), None) is None:
        return False
    _write(environment, listed)
    return True


def is_trusted(folder: str, content: bytes | None, environ: Mapping[str, str]) -> bool:
    """Whether the user trusts a folder, and its settings file if `content` (its bytes) is given."""
    place = os.path.realpath(folder)
    named = environ.get(TRUSTED_VARIABLE, "").split(os.pathsep)
    if any(os.path.isabs(name) and os.path.realpath(name) == place for name in named):
        return True
    noted = _listed(environ).get(place)
    return noted is not None and (content is None or noted == digest(content))


def check_store(path: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> None:
    """Raise `UntrustedFolder` for a memory file of another owner, unless its folder is trusted."""
    name = os.fspath(path)
    try:
        owner = _other_owner(os.lstat(name), environ) or _other_owner(os.stat(name), environ)
    except OSError:  # missing or unreachable: opening it raises the error
        return
    environment = os.environ if environ is None else environ
    folder = os.path.dirname(os.path.realpath(name))
    if owner and not is_trusted(folder, None, environment):
        raise UntrustedFolder(
            f"the memory {name} {owner}, who may have written its content. If you trust it, run "
            f"`loom trust {folder}` once, or name the folder in {TRUSTED_VARIABLE}."
        )


def read_with_doubts(path: str, environ: Mapping[str, str] | None = None) -> tuple[bytes, str]:
    """Return the content of a small file, and why it may not be the user's own; empty if it is."""
    with open(path, "rb") as file:
        doubts = doubts_about(path, os.fstat(file.fileno()), environ)
        content = file.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise InvalidInput(f"the settings file {path} is larger than {_LARGEST_FILE:,} bytes")
    return content, doubts


def doubts_about(path: str, state: os.stat_result, environ: Mapping[str, str] | None = None) -> str:
    """Return why the file at `path`, with this `stat` result, may be the work of another user; empty if it is not."""
    if owner := _other_owner(state, environ) or _other_owner(os.lstat(path), environ):
        return owner
    if stat.S_IMODE(state.st_mode) & stat.S_IWOTH:
        return "can be written by everybody"
    folder = os.path.dirname(os.path.abspath(path))
    if stat.S_IMODE(os.stat(folder).st_mode) & stat.S_IWOTH:
        return f"is in {folder}, in which everybody can write"
    return ""


def _other_owner(state: os.stat_result, environ: Mapping[str, str] | None) -> str:
    if not hasattr(os, "geteuid"):
        return ""
    own = {os.geteuid(), 0}
    environment = os.environ if environ is None else environ
    if os.geteuid() == 0 and environment.get("SUDO_UID", "").isdecimal():
        own.add(int(environment["SUDO_UID"]))
    return "" if state.st_uid in own else f"belongs to another user (uid {state.st_uid})"


def digest(content: bytes) -> str:
    """Return the digest that identifies a settings file."""
    return hashlib.sha256(content).hexdigest()


def config_folder(environ: Mapping[str, str]) -> str | None:
    """Return the user's configuration folder for loom; None if the environment names no home."""
    folder = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(folder):  # the XDG specification ignores relative paths
        folder = os.path.join(environ["HOME"], ".config") if environ.get("HOME") else ""
    return os.path.join(folder, "loom") if folder else None


# --- the list ------------------------------------------------------------------------------------------------

_LIST: Final = "trusted.json"


def _listed(environ: Mapping[str, str]) -> dict[str, str]:
    """Read the digests by folder. A damaged list, or one that other users could have written, is ignored."""
    folder = config_folder(environ)
    if folder is None:
        return {}
    try:
        with open(os.path.join(folder, _LIST), "rb") as file:
            state = os.fstat(file.fileno())
            if _other_owner(state, environ) or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return {}
            found: Any = json.loads(file.read(_LARGEST_FILE))
    except (OSError, ValueError, RecursionError):
        return {}
    folders = found.get("folders") if isinstance(found, dict) else None
    if not isinstance(folders, dict):
        return {}
    return {place: noted for place, noted in folders.items() if isinstance(noted, str)}


def _write(environ: Mapping[str, str], folders: Mapping[str, str]) -> None:
    """Replace the list in one step, readable by the user alone."""
    import tempfile

    folder = config_folder(environ)
    if folder is None:
        raise InvalidInput(f"there is no HOME to keep the list of trusted folders in; use {TRUSTED_VARIABLE}")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{_LIST}.")  # 0600
        try:
            with open(handle, "w", encoding="utf-8") as file:
                json.dump({"version": 1, "folders": dict(sorted(folders.items()))}, file, indent=1)
            os.replace(name, os.path.join(folder, _LIST))
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise InvalidInput(f"the list of trusted folders in {folder} cannot be written: {error.strerror}") from error
