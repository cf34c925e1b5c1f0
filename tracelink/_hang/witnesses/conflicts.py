"""Sources that contradict each other: dumps, watchdog lines and stacks of the same rank, taken at different times."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from tracelink._hang.model import Stage, Standing
from tracelink._hang.witnesses.stacks import Stacks
from tracelink._model.records import Frame
from tracelink._model.text import group_in_words, name_in_words, ranks_in_words
from tracelink._model.witnesses import Conflict, RankReport, Sign

CALLS = re.compile(
    r"torch/distributed/(?:distributed_c10d|c10d_logger|_functional_collectives|nn/functional)\.py$"
)
"""Files of torch in which a program is while it communicates."""
NATIVE_CALLS = re.compile(r"c10d::|ProcessGroup|^p?nccl[A-Z]|gloo::")
SHOWN_SOURCES = 4


def stack_conflicts(stacks: Stacks, paths: Mapping[int, str], missing: Mapping[int, str]) -> list[Conflict]:
    """Where ranks that did not make a call are in one.

    Args:
        stacks: Stacks of ranks.
        paths: The file from which it is known how far a rank is, by rank.
        missing: By culprit the call that it did not make, as the diagnosis says.
    """
    found = []
    for stack in stacks.folded:
        ranks = tuple(rank for rank in stack.ranks if rank in missing)
        frame = next(filter(is_in_call, stack.frames), None)
        if not ranks or frame is None:
            continue
        its = "their stacks are" if len(ranks) > 1 else "its stack is"
        line = f":{frame.line}" if frame.line else ""
        place = f"{name_in_words(frame.name)} ({name_in_words(frame.filename.rpartition('/')[2])}{line})"
        message = (
            f"{ranks_in_words(ranks)} did not join {missing[ranks[0]]}, and {its} in {place}: what was recorded is "
            "older than the stack, or this is another call."
        )
        sources = [path for rank in ranks for path in (paths.get(rank, ""), stacks.by_rank[rank].source)]
        found.append(Conflict(ranks, message, tuple(dict.fromkeys(filter(None, sources)))[:SHOWN_SOURCES]))
    return found


def is_in_call(frame: Frame) -> bool:
    """Whether a program that has this frame in its stack communicates."""
    return CALLS.search(frame.filename) is not None or NATIVE_CALLS.search(frame.name) is not None


def log_conflicts(
    standings: Sequence[Standing], paths: Mapping[int, str], reports: Sequence[RankReport]
) -> tuple[list[Conflict], bool]:
    """Where watchdog lines and dumps differ in how far ranks got; and whether they are surely of the same run."""
    places = {(standing.group, rank): standing for standing in standings for rank in standing.ranks}
    last = {
        (one.group, one.rank): one
        for one in reports
        if one.sign is Sign.STATUS and one.group and one.enqueued is not None and one.rank in paths
    }
    apart: dict[tuple[str, str, int, int], list[RankReport]] = defaultdict(list)
    agree = False
    for (group, rank), one in last.items():
        place = places.get((group, rank or 0))
        if place is None or place.stage is Stage.UNKNOWN:
            continue
        recorded, enqueued = place.sequence or 0, max(one.enqueued or 0, 0)
        if enqueued == recorded:
            agree = True
        # a dump contains a call from its start, a log counts it from its end
        elif enqueued != recorded - 1 or place.stage is not Stage.WAITING:
            apart[group, place.description, recorded, enqueued].append(one)
    conflicts = [_apart(key, own, paths) for key, own in sorted(apart.items(), key=lambda item: item[0])]
    return conflicts, agree and not conflicts


def _apart(
    key: tuple[str, str, int, int], reports: Sequence[RankReport], paths: Mapping[int, str]
) -> Conflict:
    group, description, recorded, enqueued = key
    ranks = tuple(sorted(one.rank or 0 for one in reports))
    older, newer = ("dump", "log") if enqueued > recorded else ("log", "dump")
    dump, log = ("dumps end", "logs say") if len(ranks) > 1 else ("dump ends", "log says")
    message = (
        f"{ranks_in_words(ranks)}: the {dump} at #{recorded} of {group_in_words(group, description)}, the {log} that "
        f"#{enqueued} was enqueued. The {older} is older than the {newer}, or they are of different runs."
    )
    sources = [path for one in reports for path in (paths[one.rank or 0], one.source)]
    return Conflict(ranks, message, tuple(dict.fromkeys(sources))[:SHOWN_SOURCES])
