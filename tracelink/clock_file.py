"""Clocks that are given in a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec

from tracelink.clock import Clock, Clocks
from tracelink.errors import UsageError
from tracelink.ranks import LARGEST_RANK

_Nanoseconds = Annotated[int, msgspec.Meta(ge=-(10**18), le=10**18)]
"""Thirty years are more than clocks differ."""
_Time = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
_RankNumber = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_RANK)]


class _RankInFile(msgspec.Struct):
    rank: _RankNumber
    offset_ns: _Nanoseconds
    host: str = ""
    drift_ppm: Annotated[float, msgspec.Meta(ge=-10_000, le=10_000)] = 0.0
    low_ns: _Time | None = None
    high_ns: _Time | None = None
    constraints: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0


class _ClockFile(msgspec.Struct):
    ranks: list[_RankInFile]
    reference_ns: _Time | None = None


def read_clocks(path: str | os.PathLike[str]) -> Clocks:
    """Clocks as `tracelink clocks --json` writes them, or a plain object of ranks and offsets in ns."""
    source = os.fspath(path)
    try:
        said = msgspec.json.decode(Path(path).read_bytes())
        if isinstance(said, dict) and "ranks" in said:
            return _stated(msgspec.convert(said, _ClockFile), source)
        offsets = msgspec.convert(said, dict[_RankNumber, _Nanoseconds], strict=False)
    except OSError as error:
        raise UsageError(
            f"cannot be read: {error.strerror}",
            source=source,
            advice="Give none, host, collectives, or a file with clocks.",
        ) from error
    except msgspec.DecodeError as error:
        raise UsageError(f"is no file of clocks: {error}", source=source, advice=_HOW_TO) from error
    return Clocks({rank: Clock(rank, offset_ns=offset) for rank, offset in offsets.items()})


_HOW_TO = (
    'Write it with: tracelink clocks --json; or as {"0": 0, "1": -1500}, the offset in ns for each rank.'
)


def _stated(file: _ClockFile, source: str) -> Clocks:
    clocks: dict[int, Clock] = {}
    for said in file.ranks:
        if said.rank in clocks:
            raise UsageError(f"has rank {said.rank} twice", source=source, advice="Keep one of the two.")
        if said.low_ns is not None and said.high_ns is not None and said.low_ns > said.high_ns:
            raise UsageError(f"has low_ns above high_ns for rank {said.rank}", source=source, advice=_HOW_TO)
        if said.drift_ppm and file.reference_ns is None:
            raise UsageError(
                f"has a drift for rank {said.rank}, but no reference_ns",
                source=source,
                advice="Say at which time (ns since 1970) the offsets hold, or leave the drifts out.",
            )
        clocks[said.rank] = Clock(**msgspec.structs.asdict(said), reference_ns=file.reference_ns or 0)
    return Clocks(clocks)
