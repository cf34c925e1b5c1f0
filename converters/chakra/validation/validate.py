"""Files to a verdict; what no file shows by itself."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra.census import Census, census
from tracelink.converters.chakra.decode import buffered, decode
from tracelink.converters.chakra.schema import SIMULATED, CollectiveType, Variant
from tracelink.converters.chakra.table import unsigned
from tracelink.converters.chakra.validation.check import Checked, JobFiles, Task, check, job_files
from tracelink.converters.chakra.validation.communication_rules import SPLITS, unknown_peers, unmatched
from tracelink.converters.chakra.validation.rules import (
    RULES,
    CheckedFile,
    Found,
    Rule,
    Validation,
    Violation,
)
from tracelink.converters.chakra.validation.trace import EVERYBODY, Collectives, Groups, in_no_group, united
from tracelink.engine import Engine
from tracelink.errors import Finding, Severity, TraceError, UnreadableError, UsageError
from tracelink.io.sources import Paths, Source, Watch, engine_for
from tracelink.model.columns import UNKNOWN, Int64s

# Two sequences side by side, so that one missing item is one difference and not one at each place behind it.


MOST = 50
"""Differences after which two sequences are not of one program, and not worth to be aligned."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two sequences differ; a place is None where the other has something more."""

    left: int | None
    right: int | None


@dataclass(frozen=True, slots=True)
class Alignment:
    """Every difference, or the first one only where there are too many to tell them apart."""

    differences: Sequence[Difference]
    hopeless: bool = False


def aligned(left: Int64s, right: Int64s) -> Alignment:
    """The fewest items that must be left out on either side, so that the rest is the same.

    What is left out on both sides at one place is one item that differs.
    """
    begin = _common(left, right)
    behind = _common(left[begin:][::-1], right[begin:][::-1])
    inner_left = left[begin : len(left) - behind].tolist()
    inner_right = right[begin : len(right) - behind].tolist()
    kept = _kept(inner_left, inner_right)
    if kept is None:
        return Alignment([Difference(begin, begin)], hopeless=True)
    differences = list[Difference]()
    at_left = at_right = 0
    for next_left, next_right in [*kept, (len(inner_left), len(inner_right))]:
        both = min(next_left - at_left, next_right - at_right)
        differences += [Difference(begin + at_left + i, begin + at_right + i) for i in range(both)]
        differences += [Difference(begin + i, None) for i in range(at_left + both, next_left)]
        differences += [Difference(None, begin + i) for i in range(at_right + both, next_right)]
        at_left, at_right = next_left + 1, next_right + 1
    return Alignment(differences)


def _common(left: Int64s, right: Int64s) -> int:
    """How many items both begin with."""
    count = min(len(left), len(right))
    differing = np.flatnonzero(left[:count] != right[:count])
    return int(differing[0]) if len(differing) else count


def _kept(left: Sequence[int], right: Sequence[int]) -> list[tuple[int, int]] | None:
    """Places of what both have, by Myers' greedy search; None beyond `MOST` differences."""
    reached = {1: 0}
    history: list[dict[int, int]] = []
    for steps in range(min(len(left) + len(right), 2 * MOST) + 1):
        history.append(dict(reached))
        for diagonal in range(-steps, steps + 1, 2):
            before = _before(reached, diagonal, steps)
            x = reached[before] + (before < diagonal)
            y = x - diagonal
            while x < len(left) and y < len(right) and left[x] == right[y]:
                x, y = x + 1, y + 1
            reached[diagonal] = x
            if x >= len(left) and y >= len(right):
                return _path(history, len(left), len(right))
    return None


def _before(reached: dict[int, int], diagonal: int, steps: int) -> int:
    """The diagonal from which one more step gets furthest on this one."""
    down = diagonal == -steps or (diagonal != steps and reached[diagonal - 1] < reached[diagonal + 1])
    return diagonal + 1 if down else diagonal - 1


def _path(history: Sequence[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    """What was passed together on the way to the end, first to last."""
    kept = []
    for steps in range(len(history) - 1, -1, -1):
        reached = history[steps]
        diagonal = x - y
        before = _before(reached, diagonal, steps)
        from_x, from_y = reached[before], reached[before] - before
        while x > from_x and y > from_y:
            x, y = x - 1, y - 1
            kept.append((x, y))
        x, y = from_x, from_y
    return kept[::-1]


# X2: the members of a group run the same collectives, in the same order.


@dataclass(frozen=True, slots=True)
class Side:
    """A member of a group, what it runs in it, and the same as one number each."""

    rank: int
    path: str
    collectives: Collectives
    tokens: Int64s

    @property
    def known(self) -> bool:
        """Whether each says its type and its size."""
        return not bool(np.any((self.collectives.type == UNKNOWN) | (self.collectives.size == UNKNOWN)))

    def unknown(self, place: int) -> bool:
        """Whether one does not say its type or its size: that is another rule's."""
        return UNKNOWN in (self.collectives.type[place], self.collectives.size[place])


def disagreements(
    group: int, members: Mapping[int, tuple[str, Collectives]], astray: Mapping[int, Collectives]
) -> Iterator[Violation]:
    """How members differ from what most of them run; `astray` are collectives whose group nobody knows."""
    sides = _sides(group, members)
    if len({side.tokens.tobytes() for side in sides}) < 2:
        return
    model = _model(sides)
    for side in sides:
        if not np.array_equal(side.tokens, model.tokens):
            lost = _lost(astray.get(side.rank))
            yield from _of_side(group, model, side, lost)


def _sides(group: int, members: Mapping[int, tuple[str, Collectives]]) -> list[Side]:
    own = {rank: collectives.of(group) for rank, (_, collectives) in members.items()}
    bounds = np.cumsum([0, *map(len, own.values())])
    _, types = np.unique(np.concatenate([one.type for one in own.values()]), return_inverse=True)
    sizes, size = np.unique(np.concatenate([one.size for one in own.values()]), return_inverse=True)
    tokens = types * len(sizes) + size
    return [
        Side(rank, members[rank][0], one, tokens[bounds[place] : bounds[place + 1]])
        for place, (rank, one) in enumerate(own.items())
    ]


def _model(sides: Sequence[Side]) -> Side:
    """A member that runs what most do; of equally many the one that says and runs more."""
    times = Counter(side.tokens.tobytes() for side in sides)
    return max(
        sides, key=lambda side: (times[side.tokens.tobytes()], side.known, len(side.tokens), -side.rank)
    )


def _lost(astray: Collectives | None) -> Counter[tuple[int, int]]:
    if astray is None:
        return Counter()
    return Counter(zip(astray.type.tolist(), astray.size.tolist(), strict=True))


def _of_side(group: int, model: Side, side: Side, lost: Counter[tuple[int, int]]) -> Iterator[Violation]:
    where = "among all ranks" if not group else f"in group {group}"
    if not len(side.tokens):
        if lost.total() < len(model.tokens):
            yield _none(where, model, side)
        return
    alignment = aligned(model.tokens, side.tokens)
    if alignment.hopeless:
        same_types = np.array_equal(model.collectives.type, side.collectives.type)
        yield _sizes_differ(where, model, side) if same_types else _unlike(where, model, side, alignment)
        return
    for one in alignment.differences:
        if one.left is not None and one.right is None:
            key = int(model.collectives.type[one.left]), int(model.collectives.size[one.left])
            if lost[key]:
                lost[key] -= 1
                continue
        if violation := _difference(where, model, side, one):
            yield violation


def _difference(where: str, model: Side, side: Side, one: Difference) -> Violation | None:
    if one.left is not None and one.right is not None:
        if model.unknown(one.left) or side.unknown(one.right):
            return None
        text = (
            f"{_node(side, one.right)} is {side.collectives.called(one.right)}, the {_nth(one.right)} collective"
            f" {where}, where {_node(model, one.left)} is {model.collectives.called(one.left)}"
        )
        node = unsigned(side.collectives.node[one.right])
        return Violation(Rule.COLLECTIVE_DIFFERS, side.rank, node, text, side.path)
    if one.left is not None:
        text = (
            f"rank {side.rank} lacks {model.collectives.called(one.left)}, the {_nth(one.left)} collective"
            f" {where}, which is {_node(model, one.left)}"
        )
        return Violation(Rule.COLLECTIVE_MISSING, side.rank, None, text, side.path)
    assert one.right is not None
    text = (
        f"{_node(side, one.right)} is {side.collectives.called(one.right)}, the {_nth(one.right)} collective"
        f" {where}, which rank {model.rank} lacks"
    )
    node = unsigned(side.collectives.node[one.right])
    return Violation(Rule.COLLECTIVE_MISSING, side.rank, node, text, side.path)


def _none(where: str, model: Side, side: Side) -> Violation:
    count = len(model.tokens)
    text = f"rank {side.rank} runs none of the {count:,} collectives {where} that rank {model.rank} runs"
    return Violation(Rule.COLLECTIVE_MISSING, side.rank, None, text, side.path)


def _sizes_differ(where: str, model: Side, side: Side) -> Violation:
    differing = np.flatnonzero(model.tokens != side.tokens)
    text = (
        f"{len(differing):,} of the {len(side.tokens):,} collectives {where} are of other sizes on ranks"
        f" {model.rank} and {side.rank}"
    )
    return _from(int(differing[0]), text, side)


def _unlike(where: str, model: Side, side: Side, alignment: Alignment) -> Violation:
    text = (
        f"ranks {model.rank} and {side.rank} run {len(model.tokens):,} and {len(side.tokens):,} collectives"
        f" {where} that are not of one program"
    )
    return _from(alignment.differences[0].right or 0, text, side)


def _from(first: int, text: str, side: Side) -> Violation:
    place = min(first, len(side.tokens) - 1)
    node = unsigned(side.collectives.node[place])
    message = f"{text}, from {_node(side, place)} on, the {_nth(place)}"
    return Violation(Rule.COLLECTIVE_DIFFERS, side.rank, node, message, side.path)


def _node(side: Side, place: int) -> str:
    return f"node {unsigned(side.collectives.node[place])} of rank {side.rank}"


def _nth(place: int) -> str:
    number = place + 1
    if number % 100 in (11, 12, 13):
        return f"{number:,}th"
    return f"{number:,}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


# By which numbers ASTRA-sim knows the collectives of all ranks, and whether the ranks count alike.


COUNTED = sorted(SIMULATED - {CollectiveType.BROADCAST})


def miscounted(ranks: Mapping[int, tuple[str, Collectives]], world: int) -> Iterator[Violation]:
    """Ranks that count otherwise than the first one; where something does not say what it is nobody can count."""
    if not all(_known(collectives) for _, collectives in ranks.values()):
        return
    counted = {rank: _counted(collectives, world) for rank, (_, collectives) in ranks.items()}
    first = min(counted, default=0)
    for rank, (runs, before) in counted.items():
        expected = counted[first][1]
        if np.array_equal(before, expected):
            continue
        place = int(np.flatnonzero(before != expected)[0])
        node = unsigned(runs.node[place])
        text = (
            f"node {node} is {runs.called(place)} among all ranks, before which ranks {first} and {rank} run other"
            " collectives in groups"
        )
        yield Violation(Rule.MISCOUNTED, rank, node, text, ranks[rank][0])


def _known(runs: Collectives) -> bool:
    return bool(((runs.type >= 0) & (runs.size >= 0) & (runs.group != UNKNOWN)).all())


def _counted(collectives: Collectives, world: int) -> tuple[Collectives, Int64s]:
    """The collectives of all ranks, and how many parts of any were begun before each."""
    runs = collectives.where(np.isin(collectives.type, COUNTED))
    parts = _parts(runs, world)
    among_all = runs.group == EVERYBODY
    return runs.where(among_all), (np.cumsum(parts) - parts)[among_all]


def _parts(runs: Collectives, world: int) -> Int64s:
    """Into how many parts each is cut; small ones are enlarged, but for those that gather."""
    part = runs.size // SPLITS
    enlarged = (part < world) & (runs.type != CollectiveType.ALL_GATHER)
    part = np.where(enlarged, 1, np.maximum(part, 1))
    return np.where(enlarged, SPLITS, -(-runs.size // part))


# What no file shows by itself: ranks that are missing, and ranks that do not fit together.


Ranks = Mapping[int, Checked]

UNLIKE = frozenset({Rule.COLLECTIVE_MISSING, Rule.COLLECTIVE_DIFFERS})
NO_FILE = "empty"
"""In a path, by which ASTRA-sim is told that there are no groups."""


def found_together(job: JobFiles, checked: Sequence[Checked], limit: int | None) -> list[Found]:
    """Everything that is wrong with the files of a job taken together."""
    groups = job.groups or united([one.groups for one in checked])
    ranks: dict[int, Checked] = {}
    for one in checked:
        ranks.setdefault(one.file.rank, one)
    known = {rank: one for rank, one in ranks.items() if one.complete}
    world = max(*(one.world - 1 for one in checked), *job.beside, *ranks, groups.largest) + 1
    alone = [
        *_group_problems(job, checked, groups),
        *_names(job, checked, ranks),
        *_not_compared(ranks, known),
        *_collectives(known, groups, world),
        *_messages(known, world),
    ]
    alike = not any(one.rule in UNLIKE for one in alone)
    return [
        *_missing_ranks(job, ranks, world, limit),
        *_by_rule_and_rank(alone, limit),
        *(_miscounted(known, world) if alike else ()),
        *_lone(checked, groups, limit),
        *_ignored_groups(job, checked),
    ]


def _missing_ranks(job: JobFiles, ranks: Ranks, world: int, limit: int | None) -> list[Found]:
    """X1: there is a file for every rank that was written, and every rank was."""
    expected = np.arange(world)
    written = np.logical_or.reduce([one.written.mark(expected) for one in ranks.values()])
    told = bool(written.any())
    present = np.isin(expected, [*ranks, *job.beside])
    prefix = job.prefix or "PREFIX"
    missing = expected[written & ~present] if told else expected[~present]
    left_out = expected[~written & ~present] if told else expected[:0]
    return [
        *_of_ranks(Rule.MISSING_RANK, missing, lambda rank: f"there is no file {prefix}.{rank}.et", limit),
        *_of_ranks(
            Rule.RANK_LEFT_OUT,
            left_out,
            lambda rank: f"rank {rank} is of the job, and was not among those that were written",
            limit,
        ),
    ]


def _of_ranks(rule: Rule, ranks: Int64s, says: Callable[[int], str], limit: int | None) -> list[Found]:
    listed = [Violation(rule, rank, None, says(rank)) for rank in ranks[:limit].tolist()]
    return [Found(rule, RULES[rule].warns, len(ranks), listed)] if listed else []


def _names(job: JobFiles, checked: Sequence[Checked], ranks: Ranks) -> Iterator[Violation]:
    """X1: each rank has one file, whose name says whose it is."""
    for one in checked:
        file = one.file
        first = ranks[file.rank]
        if first is not one:
            text = f"{first.file.path} and {file.path} are both of rank {file.rank}"
            yield Violation(Rule.DUPLICATE_RANK, file.rank, None, text, file.path)
        if one.named_rank is None:
            text = f"{file.path} is taken for rank {file.rank}, and its name does not say so"
            yield Violation(Rule.FILE_NAME, file.rank, None, text, file.path)
        elif one.told_rank not in (None, one.named_rank):
            text = f"{file.path} says that it is of rank {one.told_rank}, and its name says {one.named_rank}"
            yield Violation(Rule.RANK_MISMATCH, file.rank, None, text, file.path)


def _group_problems(job: JobFiles, checked: Sequence[Checked], groups: Groups) -> Iterator[Violation]:
    """M12: groups can be read, and are the same on all ranks."""
    for text in groups.problems:
        yield Violation(Rule.BAD_GROUPS, None, None, text, groups.source)
    if job.groups is None:
        for one in checked:
            for text in one.groups.problems:
                yield Violation(Rule.BAD_GROUPS, one.file.rank, None, text, one.file.path)


def _ignored_groups(job: JobFiles, checked: Sequence[Checked]) -> list[Found]:
    """M12: ASTRA-sim takes some names for the word that stands for no file."""
    if not job.groups or not job.groups.members or NO_FILE not in job.groups.source:
        return []
    source = job.groups.source
    text = f"the path {source} has the word {NO_FILE!r}, by which ASTRA-sim knows that there are no groups"
    warns = all(one.file.variant is Variant.FULL for one in checked)
    return [Found(Rule.IGNORED_GROUPS, warns, 1, [Violation(Rule.IGNORED_GROUPS, None, None, text, source)])]


def _miscounted(known: Ranks, world: int) -> Iterator[Found]:
    """X2, as ASTRA-sim counts."""
    warns = all(one.file.variant is Variant.FULL for one in known.values())
    runs = {rank: (one.file.path, one.collectives) for rank, one in known.items()}
    for one in miscounted(runs, world):
        yield Found(Rule.MISCOUNTED, warns, 1, [one])


def _lone(checked: Sequence[Checked], groups: Groups, limit: int | None) -> Iterator[Found]:
    """What a rank runs by itself. That there is no other must be said: it may only not have been named."""
    lone = {number for number, ranks in groups.members.items() if len(ranks) == 1}
    for one in checked:
        numbers = lone | {EVERYBODY} if one.world == 1 else lone
        if found := _run_alone(one, numbers, limit):
            yield Found(Rule.LONE_COLLECTIVE, one.file.variant is Variant.FULL, *found)


def _run_alone(one: Checked, groups: set[int], limit: int | None) -> tuple[int, list[Violation]] | None:
    """How many collectives these groups run, and which; a broadcast is replayed and ends by itself."""
    runs = one.collectives
    inside = np.isin(runs.group, np.array(sorted(groups), np.int64))
    alone = runs.where(inside & np.isin(runs.type, sorted(SIMULATED - {CollectiveType.BROADCAST})))
    listed = [
        Violation(
            Rule.LONE_COLLECTIVE,
            one.file.rank,
            unsigned(alone.node[place]),
            f"node {unsigned(alone.node[place])} is {alone.called(place)} of one rank"
            f" {f'in group {alone.group[place]}' if alone.group[place] != EVERYBODY else 'in a job of one rank'}",
            one.file.path,
        )
        for place in range(len(alone))[:limit]
    ]
    return (len(alone), listed) if listed else None


def _not_compared(ranks: Ranks, known: Ranks) -> Iterator[Violation]:
    if len(ranks) < 2:
        return
    for rank, one in ranks.items():
        if rank not in known:
            text = (
                f"{one.file.path} is incomplete: its collectives and messages were not compared with others'"
            )
            yield Violation(Rule.NOT_COMPARED, rank, None, text, one.file.path)


def _collectives(known: Ranks, groups: Groups, world: int) -> Iterator[Violation]:
    astray = {rank: in_no_group(one.collectives) for rank, one in known.items()}
    for group in (EVERYBODY, *groups.members):
        members = {
            rank: (known[rank].file.path, known[rank].collectives)
            for rank in groups.of(group, world)
            if rank in known
        }
        if len(members) > 1:
            yield from disagreements(group, members, astray)


def _messages(known: Ranks, world: int) -> Iterator[Violation]:
    for rank, one in known.items():
        yield from unknown_peers(rank, one.file.path, one.messages, world)
    messages = {rank: one.messages for rank, one in known.items()}
    yield from unmatched(messages, {rank: one.file.path for rank, one in known.items()})


def _by_rule_and_rank(violations: Iterable[Violation], limit: int | None) -> list[Found]:
    alike: dict[tuple[Rule, int | None], list[Violation]] = {}
    for one in violations:
        alike.setdefault((one.rule, one.rank), []).append(one)
    return [found for one in alike.values() for found in Found.of(one, limit)]


# Files to a verdict: each file by itself, and all of them together.


SHOWN = 100
"""Violations of one rule by one rank that are kept, unless the user says how many."""


def validate(
    paths: Paths,
    *,
    groups: str | os.PathLike[str] | None = None,
    variant: str | None = None,
    limit: int | None = SHOWN,
    jobs: int | None = None,
    watch: Watch | None = None,
) -> Validation:
    """Says whether every consumer takes these `.et` files, and what is wrong with them otherwise.

    `groups` is the file of communicator groups; without it the one beside the traces, or what they say, is used.
    `variant` is what they are checked as, unless they say it themselves. Of each rule and rank at most `limit`
    violations are listed, all with None; all are counted.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"at most {limit} violations", advice="Give at least 1, or None for all.")
    wanted = _variant(variant) if variant else None
    engine = engine_for(jobs, watch)
    files: list[CheckedFile] = []
    jobs_found, unreadable = job_files(paths, os.fspath(groups) if groups is not None else None)
    found: list[Found] = Found.of(unreadable, limit)
    for job in jobs_found:
        checked = _checked(job, wanted, limit, engine)
        files += [one.file for one in checked]
        found += [one for part in checked for one in part.found]
        found += found_together(job, checked, limit)
    unread = {one.file: one.message for part in found if part.rule is Rule.UNREADABLE for one in part.listed}
    if all(file.path in unread for file in files):
        raise UnreadableError(next(iter(unread.values())), advice=RULES[Rule.UNREADABLE].advice)
    return Validation.of(files, found)


def _checked(job: JobFiles, variant: Variant | None, limit: int | None, engine: Engine) -> list[Checked]:
    """The files of a job, in the order of ranks."""
    tasks = [Task(named, order, job.groups, variant, limit) for order, named in enumerate(job.traces)]

    def checked(task: Task) -> Checked:
        result = check(task)
        engine.meter.add(task.named.source.bytes)
        return result

    return sorted(engine.map(checked, tasks), key=lambda one: one.file.rank)


def _variant(name: str) -> Variant:
    if name not in list(Variant):
        raise UsageError(f"there is no variant {name!r}", advice=f"There are: {', '.join(Variant)}.")
    return Variant(name)


# Files of ranks to what `tracelink inspect` says of them: a census of each, and what consumers would complain of.


@dataclass(frozen=True, slots=True)
class Censuses:
    """What is in the files, by path, and what is wrong with them."""

    censuses: Mapping[str, Census]
    findings: Sequence[Finding] = ()


def inspect_traces(sources: Sequence[Source], engine: Engine) -> Censuses:
    """Counts the nodes of every `.et` file, and checks all of them together."""
    censuses = engine.map(_census_of, sources)
    by_path = {source.path: one for source, one in zip(sources, censuses, strict=True)}
    return Censuses(by_path, _problems(sources, engine))


def _census_of(source: Source) -> Census:
    with buffered(source) as (stream, _):
        return census(decode(stream).nodes)


def _problems(sources: Sequence[Source], engine: Engine) -> list[Finding]:
    """What `tracelink validate` says of the same files, a finding for each rule and file."""
    paths = [source.path for source in sources if source.local]
    found = list[Finding]()
    if len(paths) < len(sources):
        message = (
            "traces within archives and from standard input are not checked: tracelink validate does that."
        )
        found.append(Finding(Severity.INFO, "not_checked", message, len(sources) - len(paths)))
    if not paths:
        return found
    try:
        validation = validate(paths, limit=1, jobs=engine.jobs)
    except TraceError as error:
        return [*found, Finding(Severity.WARNING, "not_checked", f"the traces are not checked: {error}")]
    counts = {**validation.counts, **validation.warning_counts}
    listed = [*validation.violations, *validation.warnings]
    examples = {violation.rule: violation for violation in reversed(listed)}
    return found + [_problem(examples[rule], count) for rule, count in counts.items()]


def _problem(example: Violation, count: int) -> Finding:
    text = RULES[example.rule]
    severity = Severity.INFO if text.warns else Severity.WARNING
    message = f"{example.rule.value}: {text.breaks}; `tracelink validate` lists all."
    return Finding(severity, f"invalid.{example.rule.value}", message, count, example.file, example.message)
