"""Sources that contradict each other: dumps, watchdog lines and stacks of the same rank, taken at different times."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from tracelink.diagnosis.model import Stage, Standing
from tracelink.diagnosis.witnesses.stacks import Stacks
from tracelink.model.records import Frame
from tracelink.model.text import group_in_words, name_in_words, operation_in_words, ranks_in_words
from tracelink.model.witnesses import Conflict, FoldedStack, RankReport, Sign

CALLS = re.compile(
    r"torch/distributed/(?:distributed_c10d|c10d_logger|_functional_collectives|nn/functional)\.py$"
)
"""Files of torch in which a program is while it communicates."""
NATIVE_CALLS = re.compile(r"c10d::|ProcessGroup|^p?nccl[A-Z]|gloo::")
WAITS = re.compile(
    r"[sS]ynchronize|^(?:item|wait|cpu|tolist|nonzero|_engine_run_backward|_local_scalar_dense)$|\bcu\w*Sync"
)
"""Functions in which a program waits for its device, or for threads that communicate."""
SHOWN_SOURCES = 4
_Files = Mapping[int, tuple[str, str]]
"""By rank the file that was recorded, and that with its stack."""


def stack_conflicts(
    stacks: Stacks,
    standings: Sequence[Standing],
    paths: Mapping[int, str],
    missing: Mapping[int, str],
) -> list[Conflict]:
    """Where programs are elsewhere than what was recorded says.

    Args:
        stacks: Stacks of ranks.
        standings: How far each rank is in each group, by dumps, or by logs if there are none.
        paths: The file from which that is known, by rank.
        missing: By culprit the call that it did not make, as the diagnosis says.
    """
    files = {rank: (paths.get(rank, ""), stack.source) for rank, stack in stacks.by_rank.items()}
    return [*_in_calls(stacks.folded, missing, files), *_out_of_calls(stacks.folded, standings, files)]


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


def _in_calls(stacks: Sequence[FoldedStack], missing: Mapping[int, str], files: _Files) -> list[Conflict]:
    """Ranks that did not make a call, and are in one."""
    found = []
    for stack in stacks:
        ranks = tuple(rank for rank in stack.ranks if rank in missing)
        frame = _call_in(stack.frames)
        if not ranks or frame is None:
            continue
        its = "their stacks are" if len(ranks) > 1 else "its stack is"
        message = (
            f"{ranks_in_words(ranks)} did not join {missing[ranks[0]]}, and {its} in {_place(frame)}: what was "
            "recorded is older than the stack, or this is another call."
        )
        found.append(Conflict(ranks, message, _sources(ranks, files)))
    return found


def _out_of_calls(
    stacks: Sequence[FoldedStack], standings: Sequence[Standing], files: _Files
) -> list[Conflict]:
    """Ranks that wait in a call, as was recorded, and whose program is elsewhere."""
    waiting = {
        rank: standing for standing in standings if standing.stage is Stage.WAITING for rank in standing.ranks
    }
    found = []
    for stack in stacks:
        if not stack.frames or any(_is_in_call(frame) or WAITS.search(frame.name) for frame in stack.frames):
            continue
        by_place: dict[Standing, list[int]] = defaultdict(list)
        for rank in stack.ranks:
            if rank in waiting and files[rank][0]:
                by_place[waiting[rank]].append(rank)
        found += [_elsewhere(place, ranks, stack, files) for place, ranks in by_place.items()]
    return found


def _elsewhere(place: Standing, ranks: Sequence[int], stack: FoldedStack, files: _Files) -> Conflict:
    operation = f"{operation_in_words(place.operation)} " if place.operation else ""
    call = f"{operation}#{place.sequence} of {group_in_words(place.group, place.description)}"
    its = "their stacks are" if len(ranks) > 1 else "its stack is"
    where = _place(_innermost(stack.frames))
    message = (
        f"{ranks_in_words(ranks)} joined {call} and did not finish it, but {its} in {where}: "
        "what was recorded is older than the stack, or the call runs on a device while the program goes on."
    )
    return Conflict(tuple(ranks), message, _sources(ranks, files))


def _call_in(frames: Sequence[Frame]) -> Frame | None:
    return next((frame for frame in frames if _is_in_call(frame)), None)


def _is_in_call(frame: Frame) -> bool:
    return CALLS.search(frame.filename) is not None or NATIVE_CALLS.search(frame.name) is not None


def _innermost(frames: Sequence[Frame]) -> Frame:
    """The innermost frame of Python: native ones have no line."""
    return next((frame for frame in frames if frame.line), frames[0])


def _place(frame: Frame) -> str:
    file = frame.filename.rpartition("/")[2]
    line = f":{frame.line}" if frame.line else ""
    return f"{name_in_words(frame.name)} ({name_in_words(file)}{line})"


def _sources(ranks: Sequence[int], files: _Files) -> tuple[str, ...]:
    """The files of the first of these ranks: what was recorded, and the stack."""
    named = (path for rank in ranks for path in files[rank] if path)
    return tuple(dict.fromkeys(named))[:SHOWN_SOURCES]
