"""Times as stores keep them: whole microseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from loom.errors import InvalidInput

__all__ = ["from_micros", "to_micros"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970; refuses a datetime without a time zone."""
    if moment.tzinfo is None:
        raise InvalidInput(
            f"{moment.isoformat()} has no time zone; pass an aware datetime, e.g. datetime.now(timezone.utc)"
        )
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The time this many microseconds after the beginning of 1970, as an aware datetime in UTC."""
    return _EPOCH + timedelta(0, 0, micros)
