"""Masks keys and other secrets in imported messages, in all texts: also in parts, calls and results.

Mail addresses and telephone numbers stay, because people ask a memory for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from loom.errors import InvalidInput
from loom.text.sanitizer import ContentSanitizer, SensitiveKind

__all__ = ["MASKED_KINDS", "SecretMask"]

MASKED_KINDS: Final = frozenset({SensitiveKind.API_KEY, SensitiveKind.SECRET, SensitiveKind.CREDIT_CARD})

_DEEPEST = 100


class SecretMask:
    """Masks secrets in the texts of an object, at any depth that is stored."""

    def __init__(self) -> None:
        self._sanitizer = ContentSanitizer(kinds=MASKED_KINDS)
        self._found = 0

    def masked(self, found: Mapping[str, Any]) -> tuple[Mapping[str, Any], int]:
        """Return an object with masked secrets, and their number. Texts without secrets are unchanged.

        Raises `InvalidInput` for a value that is nested too deeply to search.
        """
        self._found = 0
        clean = self._value(found, 0)
        return (clean, self._found) if self._found else (found, 0)

    def _value(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if depth > _DEEPEST:
            raise InvalidInput(f"it is nested deeper than {_DEEPEST} levels")
        if isinstance(value, Mapping):
            return {key: self._value(one, depth + 1) for key, one in value.items()}
        return [self._value(one, depth + 1) for one in value] if isinstance(value, list) else value

    def _text(self, text: str) -> str:
        if not _MAY_HOLD_ONE.search(text):
            return text
        found = self._sanitizer.inspect(text)
        if not found.findings:
            return text
        self._found += len(found.findings)
        return found.text


# A secret has a digit, or follows its name.
_MAY_HOLD_ONE = re.compile(
    r"[0-9]|pass|pwd|key|secret|token|://|PRIVATE|密|口令|令牌|金[钥鑰]|[权權]杖|通行", re.IGNORECASE
)
