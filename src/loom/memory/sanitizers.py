"""The content sanitizer, under the name that the design documents give it. It lives in `loom.text.sanitizer`."""

from __future__ import annotations

from loom.text.sanitizer import ContentSanitizer, Finding, SanitizedContent, SensitiveKind

__all__ = ["ContentSanitizer", "Finding", "SanitizedContent", "SensitiveKind"]
