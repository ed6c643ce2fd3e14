"""The windows of time of limits: days, weeks and months of a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from remit.kernel.errors import InvalidInputError


def window_at(window: str, time_zone: str, at: float) -> tuple[int, int]:
    """Return the beginning and the end of the window that contains an instant.

    A day begins at midnight by the clocks of the zone, a week on Monday, a month on its first day.
    The end of a window is the beginning of the next. A day in which clocks are changed is longer or
    shorter than 24 hours.

    Args:
        window: ``day``, ``week`` or ``month``; any other text counts as ``day``.
        time_zone: an IANA name, such as ``Europe/Berlin``.
        at: seconds since 1970.

    Returns:
        Both in whole seconds since 1970; the end is exclusive.

    Raises:
        InvalidInputError: this machine does not know the zone.
        ValueError, OverflowError: the instant is outside the years 1 to 9999.
    """
    zone = zone_of(time_zone)
    local = datetime.fromtimestamp(at, UTC).astimezone(zone).replace(tzinfo=None)
    # Clocks that are changed across midnight may show the date of the neighbouring window.
    for days in (0, -1, 1):
        first, after = _dates(window, local + timedelta(days=days))
        begin, end = _seconds(first, zone), _seconds(after, zone)
        if begin <= at < end:
            return begin, end
    raise AssertionError(f"no {window} of {time_zone} contains {at}")


def _dates(window: str, local: datetime) -> tuple[datetime, datetime]:
    """Return the first midnight of the window that contains a local time, and of the next."""
    first = local.replace(hour=0, minute=0, second=0, microsecond=0)
    if window == "month":
        first = first.replace(day=1)
        return first, (first + timedelta(days=32)).replace(day=1)
    if window == "week":
        first -= timedelta(days=first.weekday())
        return first, first + timedelta(days=7)
    return first, first + timedelta(days=1)


def zone_of(name: str) -> ZoneInfo:
    """Return a time zone by its IANA name, such as ``Europe/Berlin``.

    Args:
        name: the name.

    Raises:
        InvalidInputError: this machine does not know the zone, or the name cannot be one.
    """
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError) as error:
        raise InvalidInputError(
            f"Unknown time zone {name!r}.",
            next_step="Give a name such as UTC or Europe/Berlin. If every zone is unknown, "
            "install the package tzdata.",
        ) from error


def _seconds(local: datetime, zone: ZoneInfo) -> int:
    return int(local.replace(tzinfo=zone).timestamp())
