"""Every error this package raises on purpose.

    LoomError
    ├── InvalidInput (ValueError)      the request is not valid; nothing was changed
    │   ├── TextTooLarge               over the 16 MB of one text
    │   ├── UnknownFilter              a filter key that does not exist
    │   ├── NotPermitted (PermissionError)   a scope that this node may not write
    │   └── WrongDimension             a vector of another length than the store's
    ├── NotFound (LookupError)         no such record, entry or blob
    ├── Conflict
    │   ├── IdConflict                 an id that already names another text
    │   ├── VersionConflictError       compare-and-set lost: another writer was first
    │   └── SettingsConflict           other budgets, counter or embedder than the file's
    ├── OverBudget                     more tokens than the budget has
    │   └── BudgetExceeded             a node of a tree may not spend, or grow, any further
    ├── Closed                         used after close()
    ├── ReadOnly                       a write on a store that was opened read-only
    ├── UntrustedFolder                files of another user, or settings that send texts away; nothing was read
    ├── ForgetPending                  forgotten, but some copies could not be removed yet
    ├── StoreError                     the file, the folder or the disk under the store
    │   ├── NotAStore                  a file of another kind
    │   ├── CorruptStore               damaged content; names it and says what to do
    │   ├── UnsupportedStore           written by a newer version, or on a network file system
    │   ├── StoreUnavailable           missing, not readable or not writable
    │   ├── StoreFull                  no space on the disk
    │   └── StoreBusy                  another writer held the file for too long
    ├── SnapshotError                  a snapshot that is damaged, forged or does not belong; nothing was changed
    ├── EmbeddingError                 an embedder failed or is missing
    ├── LanguageModelError             a language model failed, or answered with something unusable
    └── ToolUnavailable                a server of tools cannot be reached

A message states the request, the cause and what to do next. It never contains stored content.
"""

from __future__ import annotations

__all__ = [
    "BudgetExceeded",
    "Closed",
    "Conflict",
    "CorruptStore",
    "EmbeddingError",
    "ForgetPending",
    "IdConflict",
    "InvalidInput",
    "LanguageModelError",
    "LoomError",
    "NotAStore",
    "NotFound",
    "NotPermitted",
    "OverBudget",
    "ReadOnly",
    "SettingsConflict",
    "SnapshotError",
    "StoreBusy",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "TextTooLarge",
    "ToolUnavailable",
    "UnknownFilter",
    "UnsupportedStore",
    "UntrustedFolder",
    "VersionConflictError",
    "WrongDimension",
]


class LoomError(Exception):
    """The base of every error in this package."""


class InvalidInput(LoomError, ValueError):
    """The request is not valid; nothing was changed."""


class TextTooLarge(InvalidInput):
    """A text is larger than a record may be."""


class UnknownFilter(InvalidInput):
    """A filter names a key that does not exist. Such a key is never ignored."""


class NotPermitted(InvalidInput, PermissionError):
    """The policies of a tree do not permit this node to write there."""


class WrongDimension(InvalidInput):
    """A vector has another length than the store's embedding space."""


class NotFound(LoomError, LookupError):
    """The store has no such record, entry or blob."""


class Conflict(LoomError):
    """The request contradicts stored data, which is unchanged."""


class IdConflict(Conflict):
    """The id already names another text."""


class VersionConflictError(Conflict):
    """Compare-and-set found another version than the caller expected.

    `actual` is 0 where the key does not exist.
    """

    def __init__(self, key: str, expected: int, actual: int) -> None:
        super().__init__(
            f"{key!r} is at version {actual}, not {expected}: another writer was first. "
            "Read it again, apply the change to what you find, and write with that version."
        )
        self.key = key
        self.expected = expected
        self.actual = actual

    def __reduce__(self) -> tuple[type[VersionConflictError], tuple[str, int, int]]:
        return type(self), (self.key, self.expected, self.actual)


class SettingsConflict(Conflict):
    """A setting that every process must share differs from the one in the file."""


class OverBudget(LoomError):
    """More tokens than the budget has; nothing was changed.

    `tokens` and `budget` are the requested and the available tokens, if the error concerns one request.
    """

    def __init__(self, message: str, *, tokens: int | None = None, budget: int | None = None) -> None:
        super().__init__(message)
        self.tokens = tokens
        self.budget = budget


class BudgetExceeded(OverBudget):
    """A node of a tree requested more than its budget has left; nothing was booked.

    `violation` is the `BudgetViolation` with the requested and the available amount.
    """

    def __init__(self, violation: object) -> None:
        super().__init__(str(violation))
        self.violation = violation

    def __reduce__(self) -> tuple[type[BudgetExceeded], tuple[object]]:
        return type(self), (self.violation,)


class Closed(LoomError):
    """Used after `close()`."""


class ReadOnly(LoomError):
    """A write on a store that was opened read-only."""


class UntrustedFolder(LoomError):
    """A folder contains settings or a memory of another user, and has not been trusted yet."""


class ForgetPending(LoomError):
    """The records are gone for every reader, but some copies could not be removed yet.

    `holding` names the obstacles. The removal resumes automatically in any process that has the store open for
    writing.
    """

    def __init__(self, message: str, holding: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.holding = holding

    def __reduce__(self) -> tuple[type[ForgetPending], tuple[str, tuple[str, ...]]]:
        return type(self), (str(self), self.holding)


class StoreError(LoomError):
    """A problem of the file, its folder or the disk."""


class NotAStore(StoreError):
    """The file exists and is not a store; it was not changed."""


class CorruptStore(StoreError):
    """Damaged content."""


class UnsupportedStore(StoreError):
    """The store needs a feature that this version or this machine does not have."""


class StoreUnavailable(StoreError):
    """The file or its folder is missing, or may not be read or written."""


class StoreFull(StoreError):
    """The disk is full, or the size limit of the store is reached; nothing was written."""


class StoreBusy(StoreError):
    """Another writer held the store for longer than the time limit; nothing was written."""


class SnapshotError(LoomError):
    """A snapshot cannot be used: it is damaged, forged, unknown or of another store; nothing was changed."""


class EmbeddingError(LoomError):
    """An embedder failed, is missing, or answered with something unusable."""


class LanguageModelError(LoomError):
    """A language model failed, cannot be reached, or answered with something unusable.

    `sent` is False if no model has seen the request: there was no connection, or the server refused it.
    """

    sent: bool = True


class ToolUnavailable(LoomError):
    """A server whose tools an agent was to use cannot be reached."""
