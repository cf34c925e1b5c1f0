"""Dumps of one job among those of several: by how their names begin, which also says where the rank stands."""

from __future__ import annotations

import re
from dataclasses import replace

from tracelink.errors import UsageError
from tracelink.findings import Finding, Severity
from tracelink.ranks import SUFFIXES
from tracelink.sources import Discovery, Source

RANK = re.compile(r"\d{1,6}", re.ASCII)
SHOWN = 3
MAYBE_DUMPS = frozenset({"", "flight-recorder"})
"""What users say of sources that can be dumps: nothing, or that they are."""


def only_with_prefix(discovery: Discovery, prefix: str) -> Discovery:
    """The sources whose names begin so; a number that is all that follows is the rank.

    What is said to be something else than a dump stays whatever its name.
    """
    dumps = [source for source in discovery.sources if source.format in MAYBE_DUMPS]
    kept = [_ranked(source, prefix) for source in dumps if source.name.startswith(prefix)]
    others = [source.path for source in dumps if not source.name.startswith(prefix)]
    if not kept:
        seen = ", ".join(others[:SHOWN]) + (", …" if len(others) > SHOWN else "")
        raise UsageError(
            f"--prefix: no file's name begins with {prefix!r}",
            advice=f"There are: {seen}." if seen else "There is no file at all.",
        )
    kept += [source for source in discovery.sources if source.format not in MAYBE_DUMPS]
    if not others:
        return Discovery(kept, discovery.findings)
    message = f"{len(others)} files were passed over: their names do not begin with {prefix!r}."
    passed = Finding(Severity.INFO, "other_prefix", message, len(others), example=others[0])
    return Discovery(kept, [*discovery.findings, passed])


def _ranked(source: Source, prefix: str) -> Source:
    rest = SUFFIXES.sub("", source.name.removeprefix(prefix))
    return replace(source, rank=int(rest)) if source.rank is None and RANK.fullmatch(rest) else source
