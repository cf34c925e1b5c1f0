"""Interned text: a column holds small numbers, the table holds each text once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt


class StringTable(dict[str, int]):
    """Text to number, in order of first appearance; `table[text]` adds what is new."""

    def __missing__(self, text: str) -> int:
        code = self[text] = len(self)
        return code

    @classmethod
    def of(cls, texts: Iterable[str]) -> StringTable:
        """A table that holds `texts`."""
        table = cls()
        for text in texts:
            table[text]
        return table

    def texts(self) -> list[str]:
        """Every text, so that `texts()[code]` is the text of `code`."""
        return list(self)

    def encode(self, texts: Iterable[str]) -> npt.NDArray[np.int32]:
        """The codes of many texts."""
        return np.array(list(map(self.__getitem__, texts)), dtype=np.int32)

    def absorb(self, texts: Sequence[str]) -> npt.NDArray[np.int32]:
        """Adds another table's texts; returns, for each of its codes, the code here."""
        return self.encode(texts)

    def find(self, text: str) -> int:
        """The code of `text`, or -1 where the table does not hold it."""
        return self.get(text, -1)
