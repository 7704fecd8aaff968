"""Every error this package raises on purpose.

    LoomError
    ├── InvalidInput (ValueError)      what was asked makes no sense; nothing was changed
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
    ├── UntrustedFolder                files of somebody else, or settings that send texts away; nothing was read
    ├── ForgetPending                  forgotten, but some place could not be cleaned yet
    ├── StoreError                     the file, the folder or the disk under the store
    │   ├── NotAStore                  the file is something else
    │   ├── CorruptStore               damaged content; says which and what to do
    │   ├── UnsupportedStore           written by a newer version, or on a network file system
    │   ├── StoreUnavailable           missing, not readable or not writable
    │   ├── StoreFull                  no room on the disk
    │   └── StoreBusy                  another writer held the file for too long
    ├── SnapshotError                  a snapshot that is damaged, forged or does not belong; nothing was changed
    ├── EmbeddingError                 an embedder failed or is missing
    ├── LanguageModelError             a language model failed, or answered with something unusable
    └── ToolUnavailable                a server of tools cannot be reached

An error says what was asked, what was found and what to do next. Messages never carry stored content.
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
    """The request cannot be carried out as it stands; nothing was changed."""


class TextTooLarge(InvalidInput):
    """One text is larger than a record may be."""


class UnknownFilter(InvalidInput):
    """A filter names a key that does not exist; it is never ignored in silence."""


class NotPermitted(InvalidInput, PermissionError):
    """The policies of a tree do not let this node write there."""


class WrongDimension(InvalidInput):
    """A vector has another length than the store's embedding space."""


class NotFound(LoomError, LookupError):
    """What was asked for is not in the store."""


class Conflict(LoomError):
    """Two wishes that cannot both be true; the store keeps what it had."""


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

    `tokens` is what was asked for and `budget` what there is, where the error is about one request.
    """

    def __init__(self, message: str, *, tokens: int | None = None, budget: int | None = None) -> None:
        super().__init__(message)
        self.tokens = tokens
        self.budget = budget


class BudgetExceeded(OverBudget):
    """What a node of a tree asked for is more than its budget has left; nothing was booked.

    `violation` is the `BudgetViolation` that says what was asked for and what there is.
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
    """A folder holds settings or a memory that may be somebody else's, and the user has not trusted it yet."""


class ForgetPending(LoomError):
    """The records are gone for every reader, but some bytes could not be cleaned yet.

    `holding` names what stands in the way. The cleaning resumes by itself, in any process that has the
    store open for writing.
    """

    def __init__(self, message: str, holding: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.holding = holding

    def __reduce__(self) -> tuple[type[ForgetPending], tuple[str, tuple[str, ...]]]:
        return type(self), (str(self), self.holding)


class StoreError(LoomError):
    """Something about the file, its folder or the disk."""


class NotAStore(StoreError):
    """The file exists and is something else; it was left untouched."""


class CorruptStore(StoreError):
    """Damaged content."""


class UnsupportedStore(StoreError):
    """The store needs something this version or this machine does not offer."""


class StoreUnavailable(StoreError):
    """The file or its folder is missing, or may not be read or written."""


class StoreFull(StoreError):
    """The disk, or the store's size limit, has no room; the write was not made."""


class StoreBusy(StoreError):
    """Another writer held the store for longer than the time limit; the write was not made."""


class SnapshotError(LoomError):
    """A snapshot cannot be used: damaged, forged, unknown, or not the one that belongs here; nothing was changed."""


class EmbeddingError(LoomError):
    """An embedder failed, is missing, or answered with something unusable."""


class LanguageModelError(LoomError):
    """A language model failed, cannot be reached, or answered with something unusable."""


class ToolUnavailable(LoomError):
    """A server whose tools an agent was to use cannot be reached."""
