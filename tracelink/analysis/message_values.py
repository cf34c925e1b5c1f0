"""What the two ends of a message say of it, and which of two different sayings was to be expected."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracelink.analysis.alike import like_groups
from tracelink.analysis.channels import Matching
from tracelink.analysis.comparing import Aspect
from tracelink.analysis.ends import Ends
from tracelink.analysis.programs import habits
from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Int64s
from tracelink.journal import Journal


@dataclass(frozen=True)
class Sayings:
    """How much is sent and received, and of which type."""

    journal: Journal
    ends: Ends
    matching: Matching

    @cached_property
    def sizes(self) -> Int64s:
        """How many numbers, for each end; UNKNOWN where it does not say."""
        return self._of("elements_in", "elements_out")

    @cached_property
    def types(self) -> Int64s:
        """Codes of texts, for each end."""
        return self._of("type_in", "type_out")

    def of(self, aspect: Aspect) -> Int64s:
        """What each end says of the type, or of the size."""
        return self.types if aspect is Aspect.DTYPE else self.sizes

    def _of(self, given: str, gotten: str) -> Int64s:
        requests = self.journal.requests
        first, second = (
            getattr(requests, name)[self.ends.request].astype(np.int64) for name in (given, gotten)
        )
        sent = np.where(first != UNKNOWN, first, second)
        received = np.where(second != UNKNOWN, second, first)
        said: Int64s = np.where(self.ends.sends, sent, received)
        return said

    def differing(self, aspect: Aspect) -> Bools:
        """Whether the other end of each one's message says something else; what is unknown differs from nothing."""
        said = self.of(aspect)
        other = np.append(said, UNKNOWN)[self.matching.partner]
        differs: Bools = (said != UNKNOWN) & (other != UNKNOWN) & (said != other)
        return differs

    def expected(self, end: int, aspect: Aspect) -> int | None:
        """What an end and its counterpart were to say; None where nothing tells.

        As the channel did before, as the same channel of like groups does, or as at least somebody does.
        """
        said = self.of(aspect)
        own, other = int(said[end]), int(said[self.matching.partner[end]])
        for votes in (self._before(end, aspect), self._alike(end, aspect), self._anywhere(end, aspect)):
            ones, others = int(np.count_nonzero(votes == own)), int(np.count_nonzero(votes == other))
            if ones != others:
                return own if ones > others else other
        return None

    def _before(self, end: int, aspect: Aspect) -> Int64s:
        """What followed on the channel where the same went before."""
        place = self._place(end)
        begin = int(self.matching.channels.sends[self.matching.channel[end]])
        rows = self.matching.order[begin : begin + place]
        said = self.of(aspect)[rows]
        return np.array(habits(said[self.matching.partner[rows] != UNKNOWN]), np.int64)

    def _place(self, end: int) -> int:
        """Which of the sends of its channel the message is."""
        send = end if self.ends.sends[end] else int(self.matching.partner[end])
        channels = self.matching.channels
        own = self.matching.order[int(channels.sends[self.matching.channel[end]]) :]
        return int(np.flatnonzero(own == send)[0])

    def _alike(self, end: int, aspect: Aspect) -> Int64s:
        """What the same message is in groups like this one, as far as these have forgotten nothing."""
        chosen = self._of_like_groups(end) & (self.ends.group != self.ends.group[end])
        requests, request = self.journal.requests, self.ends.request
        for name in ("source", "target"):
            column = getattr(requests, name)
            chosen &= column[request] == column[request[end]]
        channel = np.unique(self.matching.channel[chosen])
        channels = self.matching.channels
        channel = channel[channels.certain[channel] & channels.certain[self.matching.channel[end]]]
        first = channels.sends[channel] + self._place(end)
        inside = first < channels.receives[channel]
        found: Int64s = self.of(aspect)[self.matching.order[first[inside]]]
        return found

    def _anywhere(self, end: int, aspect: Aspect) -> Int64s:
        """What all other messages of like groups are."""
        chosen = self._of_like_groups(end)
        chosen[[end, int(self.matching.partner[end])]] = False
        found: Int64s = np.unique(self.of(aspect)[chosen])
        return found

    def _of_like_groups(self, end: int) -> Bools:
        chosen: Bools = np.isin(
            self.ends.group, like_groups(self.journal.groups, int(self.ends.group[end]))
        ) & (self.matching.channel != UNKNOWN)
        return chosen
