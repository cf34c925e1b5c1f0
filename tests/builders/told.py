"""What ranks recorded, as words; and a diagnosis in one line for each problem.

    diagnosed({0: "a1 a2!", 1: "a1"}, a=[0, 1])

Ranks 0 and 1 finished collective 1 of group a; rank 0 waits in collective 2: that is what `!` says. `~` is retired, on
a backend that tells no more; `^` is started, `?` given up. Before it `:8` says how many elements, `=broadcast` another
operation, `.Int` another type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from builders.journal import journal
from builders.recorder import CREATED, collective, dump, process_group
from tracelink.analysis.diagnosing import diagnosis_of
from tracelink.diagnosis import Diagnosis
from tracelink.journal import Journal

MS = 1_000_000
WORD = re.compile(
    r"(?P<group>[a-z])(?P<number>\d+)"
    r"(?::(?P<size>\d+))?(?:=(?P<operation>[a-z_]+))?(?:\.(?P<type>\w+))?(?P<mark>[!~^?]?)"
)
STATES: dict[str, dict[str, Any]] = {
    "": {"state": "completed", "retired": True},
    "!": {"state": "scheduled", "retired": False},
    "^": {"state": "started", "retired": False},
    "?": {"state": "scheduled", "retired": True},
    "~": {"state": "scheduled", "retired": True},
}


def journal_told(
    ranks: Mapping[int, str],
    *,
    descriptions: Mapping[str, str] | None = None,
    forgotten: Mapping[int, int] | None = None,
    **groups: Sequence[int],
) -> Journal:
    """The journal of ranks that recorded these words; `forgotten` entries came before a rank's first."""
    named = {name: (name, (descriptions or {}).get(name, "")) for name in groups}
    described = {
        name: group
        for name, members in groups.items()
        for group in process_group(name, list(members), named[name][1]).values()
    }
    return journal(
        {
            rank: dump(
                *_entries(words, named, (forgotten or {}).get(rank, 0)),
                pg_config={name: described[name] for name in groups if rank in groups[name]},
            )
            for rank, words in ranks.items()
        }
    )


def diagnosed(ranks: Mapping[int, str], **how: Any) -> Diagnosis:
    """The diagnosis of what these ranks recorded."""
    return diagnosis_of(journal_told(ranks, **how))


def problems(ranks: Mapping[int, str], **how: Any) -> list[str]:
    """Each problem as `never_joined a2 by 3, for 0 1 2`."""
    return [
        f"{one.kind} {one.group}{one.sequence} by {_ranks(one.culprits)}{' (tie)' * one.tie}, "
        f"for {_ranks(one.waiting)}"
        for one in diagnosed(ranks, **how).problems
    ]


def _ranks(ranks: Sequence[int]) -> str:
    return " ".join(map(str, ranks)) or "nobody"


def _entries(words: str, named: Mapping[str, tuple[str, str]], forgotten: int) -> list[dict[str, Any]]:
    backend = "gloo" if "~" in words else "nccl"
    return [_entry(word, place + forgotten, backend, named) for place, word in enumerate(words.split())]


def _entry(word: str, place: int, backend: str, named: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    told = WORD.fullmatch(word)
    assert told, word
    size, kind = [[int(told["size"] or 1024)]], [told["type"] or "Float"]
    created = CREATED + place * MS
    state = STATES[told["mark"]]
    return collective(
        f"{backend}:{told['operation'] or 'all_reduce'}",
        int(told["number"]),
        group=named[told["group"]],
        created=created,
        record_id=place,
        pg_id=list(named).index(told["group"]),
        input_sizes=size,
        output_sizes=size,
        input_dtypes=kind,
        output_dtypes=kind,
        time_discovered_completed_ns=created + MS if state["state"] == "completed" else None,
        **state,
    )
