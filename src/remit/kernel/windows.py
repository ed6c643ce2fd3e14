"""The windows of time that a limit can hold for: days, weeks and months of a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from remit.kernel.errors import InvalidInputError

__all__ = ["window_at", "zone_of"]


def window_at(window: str, time_zone: str, at: float) -> tuple[int, int]:
    """Beginning and end of the window that an instant is in, in seconds since 1970.

    A day begins at midnight by the clocks of the zone, a week on Monday, a month on its first;
    the end is the next one's beginning. So a day in which clocks are changed has 23 or 25 hours.

    Args:
        window: ``day``, ``week`` or ``month``.
        time_zone: a name of the IANA's, such as ``Europe/Berlin``.
        at: seconds since 1970.

    Raises:
        InvalidInputError: this machine does not know the zone.
    """
    zone = zone_of(time_zone)
    first = datetime.fromtimestamp(at, UTC).astimezone(zone).replace(tzinfo=None)
    first = first.replace(hour=0, minute=0, second=0, microsecond=0)
    if window == "month":
        first = first.replace(day=1)
        after = (first + timedelta(days=32)).replace(day=1)
    elif window == "week":
        first -= timedelta(days=first.weekday())
        after = first + timedelta(days=7)
    else:
        after = first + timedelta(days=1)
    return _seconds(first, zone), _seconds(after, zone)


def zone_of(name: str) -> ZoneInfo:
    """A time zone by name.

    Raises:
        InvalidInputError: this machine does not know it.
    """
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError) as error:
        raise InvalidInputError(
            f"{name!r} is no time zone that this machine knows.",
            next_step="Give a name such as UTC or Europe/Berlin; without any zones at all, install "
            "the package tzdata.",
        ) from error


def _seconds(local: datetime, zone: ZoneInfo) -> int:
    return int(local.replace(tzinfo=zone).timestamp())
