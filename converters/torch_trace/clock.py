"""The clock of a compile log: times of records are local and have no year; times of events show both."""

from __future__ import annotations

from bisect import bisect_right
from calendar import isleap
from datetime import UTC, datetime
from functools import lru_cache

from msgspec import Struct, field

from tracelink._io.sources import Source
from tracelink._model.columns import SECOND

QUARTER_HOUR = 900 * SECOND
"""Time zones differ by multiples of it."""
DAY = 86400 * SECOND
YEAR = 365 * DAY
"""Days are counted without the leap day: the last one of a year is always the 365th."""
_DAYS_BEFORE = (0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
"""Days of a year before each month, without the leap day."""
TOLERANCE = SECOND
"""How much earlier or later than the events around it a record can be."""


@lru_cache(maxsize=16)
def local_seconds(date_time: bytes) -> int:
    """`1118 06:08:23` since the last day before a year; a month that is none has no days before it."""
    month, day, hour, minute, second = (int(date_time[at : at + 2]) for at in (0, 2, 5, 8, 11))
    days = _DAYS_BEFORE[month] + day if 1 <= month <= 12 else 0
    return ((days * 24 + hour) * 60 + minute) * 60 + second


class _Stretch(Struct):
    """Records of a log between which the zone did not change."""

    before: int
    """The number of records at the last event of the stretch before; those between may be of either."""
    position: int
    """The number of records at its first event."""
    offset: int
    """What to add to local times."""
    first_ns: int
    """Since 1970, of its first event."""
    last_ns: int
    events: int = 1


class LogClock(Struct):
    """Collects local times and events in the order of the log."""

    stretches: list[_Stretch] = field(default_factory=list)
    years: int = 0
    """How often a year ended within the log."""
    latest: int = 0
    """The latest local time since the zone changed."""
    _last: int = 0
    _position: int = 0
    """The number of records at the last event."""

    def continued(self, local: int) -> int:
        """The local time of the next record, counted on over the end of a year."""
        local += self.years * YEAR
        if self._last - local > 300 * DAY:
            self.years += 1
            local += YEAR
        self._last = local
        self.latest = max(self.latest, local)
        return local

    def add_event(self, local: int, event_ns: int, position: int) -> None:
        """An event that was logged when it happened; `position` records with a time were before it."""
        offset = round((event_ns - local) / QUARTER_HOUR) * QUARTER_HOUR
        if self.stretches and self.stretches[-1].offset == offset:
            self.stretches[-1].events += 1
            self.stretches[-1].last_ns = event_ns
        else:
            self.stretches.append(_Stretch(self._position, position, offset, event_ns, event_ns))
            self.latest = local
        self._position = position

    def settle(self, source: Source) -> bool:
        """Decides what the stretches are; false if no event shows the time zone and the year."""
        self.stretches = _without_delays(self.stretches)
        if self.stretches:
            return True
        written = source.modified_ns // 10**9 if source.is_whole else 0
        start = _new_year(datetime.fromtimestamp(written, UTC).year - self.years)
        self.stretches = [_Stretch(0, 0, start, 0, 0)]
        return False

    def since_1970(self, local: int, position: int) -> int:
        """The time of the record with this number, after `settle`."""
        index = max(bisect_right(self.stretches, position, key=lambda one: one.position) - 1, 0)
        time = local + self.stretches[index].offset
        if index + 1 < len(self.stretches) and position >= self.stretches[index + 1].before:
            after = self.stretches[index + 1]
            begin, end = self.stretches[index].last_ns - TOLERANCE, after.first_ns + TOLERANCE
            changed = local + after.offset
            if begin <= changed <= end and not begin <= time <= end:
                return changed
        return time

    @property
    def behind_utc(self) -> int:
        """What to add to local times with their year for times since 1970, at the first event; after `settle`."""
        first = self.stretches[0]
        begun = datetime.fromtimestamp(first.first_ns / SECOND, UTC)
        leap_day = DAY if isleap(begun.year) and begun.month > 2 else 0
        starts = (_new_year(begun.year + years) for years in (-1, 0, 1))
        return min((first.offset - leap_day - start for start in starts), key=abs)

    @property
    def end_ns(self) -> int:
        """The time of the last record, after `settle`."""
        return self.latest + self.stretches[-1].offset


def _without_delays(stretches: list[_Stretch]) -> list[_Stretch]:
    """Without single events that were logged minutes late, and the stretches around them joined."""
    kept: list[_Stretch] = []
    for one in stretches:
        if one.events == 1 and len(stretches) > 1:
            continue
        if kept and kept[-1].offset == one.offset:
            kept[-1].last_ns = one.last_ns
            kept[-1].events += one.events
        else:
            kept.append(one)
    return kept or stretches[:1]


def _new_year(year: int) -> int:
    """The last day of the year before, from which days are counted."""
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * SECOND - DAY
