"""Shapes: the combinations of phase and category in a file, and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracelink.converters.kineto.schema import SLICES, kind_of
from tracelink.events import Bools, EventKind, Int64s
from tracelink.strings import StringTable


@dataclass(slots=True)
class Shapes:
    """Phase and category of an element as one small number."""

    table: StringTable = field(default_factory=StringTable)
    known: dict[str, int] = field(default_factory=dict)
    """The same as a plain dict, which is looked up faster: every element is."""
    kinds: list[EventKind] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)

    def of(self, elements: Sequence[Any]) -> Int64s:
        """The shape of each element."""
        known = self.known
        try:
            codes = [known[element.ph + element.cat] for element in elements]
        except KeyError:
            codes = [self.table[element.ph + element.cat] for element in elements]
            self.learn()
        return np.fromiter(codes, np.int64, len(codes))

    def learn(self) -> None:
        """Takes note of combinations seen since."""
        for text in self.table.texts()[len(self.kinds) :]:
            self.kinds.append(kind_of(text[:1], text[1:]))
            self.roles.append(text[:1])
        self.known = dict(self.table)

    def are(self, codes: Int64s, roles: frozenset[str]) -> Bools:
        """Which codes have one of these phases."""
        return np.array([role in roles for role in self.roles], np.bool_)[codes]

    def have_kind(self, codes: Int64s, kinds: frozenset[EventKind]) -> Bools:
        """Which codes are slices of one of these kinds."""
        wanted = [kind in kinds and role in SLICES for kind, role in zip(self.kinds, self.roles, strict=True)]
        return np.array(wanted, np.bool_)[codes]

    def in_category(self, codes: Int64s, categories: frozenset[str]) -> Bools:
        """Which codes are of one of these categories."""
        return np.array([text[1:] in categories for text in self.table.texts()], np.bool_)[codes]
