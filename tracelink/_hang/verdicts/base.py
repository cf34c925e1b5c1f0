"""What all verdicts have: facts of all witnesses as fields, and the texts that are made of them when it is settled.

Each witness sets fields of its own. No text is edited.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

from msgspec import Struct
from msgspec.structs import replace

from tracelink._hang.facts.model import Category, Kind, Problem, Role
from tracelink._model.columns import SECOND
from tracelink._model.errors import printable
from tracelink._model.records import Entry, compiler_frame, line_in_words, own_frames, readable_name
from tracelink._model.text import (
    capitalized,
    collective_in_words,
    count_of_ranks,
    counted,
    duration,
    lowered,
    name_in_words,
    operation_in_words,
    ranks_in_words,
    shortened,
    time_of_day,
)
from tracelink._model.trace import ProcessGroup
from tracelink._model.witnesses import Compiling, Stack

MOST_HOSTS = 4
"""Hosts that advice names."""
NO_STACKS = "These dumps have no stacks; pickled dumps have them unless stack traces were disabled."
WHERE_DUMPS_ARE = (
    "A rank writes its dump on its own host: to the path in TORCH_FR_DUMP_TEMP_FILE followed by the rank, "
    "by default ~/.cache/torch/comm_lib_trace_rank_N."
)


UNDECIDED = "The dumps do not show whether the job hangs or still runs."
LEAST_SHOWN_NS = SECOND
"""Recorders stop with their ranks: a bound below this says when the last rank arrived, not how long it hangs."""


class UnrecordedCalls(Struct, frozen=True):
    """Calls that a backend does not record, in which culprits may wait."""

    backend: str
    operations: str
    """Those that it does not record: `monitored_barrier and new_group`."""
    ranks: tuple[int, ...] = ()
    """Culprits that may wait in one."""
    count: int = 0
    """How many the first of them called before its last call."""
    rank: int = 0
    """Of which rank that is the number."""

    def in_words(self) -> str:
        """What advice adds."""
        if not self.ranks:
            return f"{self.backend} does not record {self.operations}."
        return (
            f"{ranks_in_words(self.ranks)} may also wait in a call that {self.backend} does not record: "
            f"{self.operations}; op_id counts {counted(self.count, 'such operation')} of rank {self.rank} before its "
            "last call."
        )


class Verdict(Problem, frozen=True, kw_only=True):
    """A problem with its facts; `sentence`, `next_step` and `category` of its class make the texts of them."""

    kind: Kind
    message: str = ""
    undumped: tuple[int, ...] = ()
    """Culprits of which there is no dump."""
    damaged: tuple[int, ...] = ()
    """Culprits whose dumps cannot be read to the end."""
    groups: int = 1
    """In how many similar groups it happened, each with its own culprits."""
    late_before: int = 0
    """At how many collectives the culprits were late before, if the others waited for them again and again."""
    busy: tuple[int, ...] = ()
    """Culprits that are in torch's compiler, or were until they joined."""
    joined_by_log: tuple[int, ...] = ()
    """Ranks that are no culprits, because they joined the call according to their logs."""
    shown_by_log: bool = False
    """True if dumps of culprits are missing, and their logs show it."""
    hosts: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Hosts of culprits, else of waiting ranks."""
    unrecorded: UnrecordedCalls | None = None
    file_times: str = ""
    """What the times of files indicate if nothing decides whether the job hangs."""

    usual: ClassVar[Category] = Category.UNKNOWN
    """What went wrong if it is proven."""
    certain: ClassVar[bool] = False
    """True if the category needs no proof."""
    foldable: ClassVar[bool] = False
    """True if several are one if only groups and culprits differ."""
    not_reached: ClassVar[bool] = False
    """True if culprits may be busy before the call."""
    counts_waiting: ClassVar[bool] = True
    """True if its sentence ends with the number of waiting ranks."""

    @classmethod
    def of_call(
        cls,
        group: ProcessGroup = ProcessGroup(""),  # noqa: B008
        sequence: int | None = None,
        operation: str = "",
        *,
        culprits: Collection[int] = (),
        waiting: Collection[int] = (),
        **facts: Any,
    ) -> Self:
        """A verdict on a collective or a message of a group; on none if it is not known which."""
        return cls(
            group=group.name,
            description=group.description,
            sequence=sequence,
            operation=operation,
            culprits=tuple(sorted(culprits)),
            waiting=tuple(sorted(waiting)),
            **facts,
        )

    def with_stacks(self, stacks: Mapping[int, Stack]) -> Self:
        """With the stacks of culprits, which may be in torch's compiler."""
        own = tuple(stacks[rank] for rank in self.culprits if rank in stacks)
        compiles = self.not_reached and not self.compiling
        found = [stack.rank for stack in own if compiles and compiler_frame(stack.frames)]
        return replace(self, stacks=own, busy=tuple(found) or self.busy)

    def with_hosts(self, hosts: Mapping[int, str]) -> Self:
        """With the hosts of culprits, else of waiting ranks."""
        of_host: dict[str, tuple[int, ...]] = {}
        for rank in self.culprits or self.waiting:
            if host := hosts.get(rank):
                of_host[host] = (*of_host.get(host, ()), rank)
        return replace(self, hosts=tuple(of_host.items()))

    # The sentence.

    def claim(self) -> str:
        """What is wrong, without the ranks that wait, and without the full stop."""
        raise NotImplementedError

    def sentence(self) -> str:
        """The problem in a sentence."""
        return f"{self.claim()}{self.waits()}."

    def remarks(self) -> Iterator[str]:
        """What other witnesses show of it."""
        several = len(self.culprits) > 1
        if self.late_before:
            yield f"Before, {'they' if several else 'it'} arrived late at {self.late_before} collectives."
        yield compilations_in_words(self.compiling, self.stacks_in_compiler)
        if self.joined_by_log:
            logs = "their logs" if len(self.joined_by_log) > 1 else "its log"
            yield f"By {logs}, {lowered(ranks_in_words(self.joined_by_log))} had joined #{self.sequence}."
        if self.shown_by_log:
            yield f"The log shows it; {'their dumps are' if several else 'its dump is'} missing."

    def waits(self) -> str:
        """`; 7 ranks wait for at least 4.0 s`."""
        if not self.waiting or not self.counts_waiting:
            return ""
        return f"; {count_of_ranks(self.waiting, 'wait')}{self.at_least}"

    @property
    def at_least(self) -> str:
        """` for at least 4.0 s`."""
        shown = (self.waited_ns or 0) >= LEAST_SHOWN_NS
        return f" for at least {duration(self.waited_ns)}" if self.waited_ns and shown else ""

    @property
    def ranks(self) -> str:
        """The culprits: `Ranks 1 and 5`."""
        return ranks_in_words(self.culprits)

    @property
    def call(self) -> str:
        """`all_reduce #5 of group 0 (default_pg)`, `all_reduce #5 of 4 groups (tp)`."""
        if self.groups > 1:
            return f"{operation_in_words(self.operation)} #{self.sequence} of {self.groups} groups ({self.description})"
        group = ProcessGroup(self.group, self.description)
        return collective_in_words(self.operation, self.sequence or 0, group)

    # The next step.

    def next_step(self) -> str:
        """What to look at next."""
        raise NotImplementedError

    def steps(self) -> str:
        """The next step, and what compilers, hosts and files add to it."""
        step, after = self.advice or self.next_step(), []
        if self.compiling and not self.is_busy:
            step = f"{end_of_compilation(self.compiling[0])} {step}"
        elif self.compiling:
            undecided = self.undumped or self.damaged or self.kind is Kind.IN_FLIGHT
            step = f"{advice_on_compilation(self.compiling[0])}{f' {step}' if undecided else ''}"
        elif self.is_in_compiler:
            after.append(WHERE_COMPILE_LOGS_ARE)
        if self.evidence and not any(entry.frames for shown in self.evidence for entry in shown.entries):
            after.append(NO_STACKS)
        after += [
            _on_hosts(self.hosts),
            self.unrecorded.in_words() if self.unrecorded else "",
            self.file_times,
        ]
        return " ".join(filter(None, [step, *after]))

    @property
    def example(self) -> str:
        """The culprit, or one of several."""
        if not self.culprits:
            return "these ranks"
        return f"rank {self.culprits[0]}{' (for example)' if len(self.culprits) > 1 else ''}"

    def shown(self, role: Role) -> Entry | None:
        """The last call of a culprit, or the call of another rank."""
        return next((shown.entries[-1] for shown in self.evidence if shown.role is role), None)

    @property
    def whereabouts(self) -> str:
        """Where a culprit is by its stack, or was by its profile: `rank 3 is in __next__ (dataloader.py:700)`."""
        for stack in self.stacks:
            own = own_frames(stack.frames)[0]
            return f"rank {stack.rank} is in {name_in_words(own.name)} ({line_in_words(own)})"
        for sighting in self.sightings:
            if sighting.role is Role.CULPRIT and sighting.stretches:
                last = sighting.stretches[-1].running[-1]
                name = name_in_words(readable_name(last.name))
                return f"rank {sighting.rank} was in {name} for {duration(last.duration_ns)}"
        return ""

    @property
    def open_question(self) -> str:
        """`Find out why rank 3 is in __next__ (dataloader.py:700)`; empty if neither a stack nor a profile shows it."""
        return f"Find out why {where}" if (where := self.whereabouts) else ""

    @property
    def own_line(self) -> str:
        """Where a culprit made its last call."""
        return called_at(self.shown(Role.CULPRIT))

    @property
    def other_line(self) -> str:
        """Where the other ranks are."""
        return called_at(self.shown(Role.WAITING))

    @property
    def lines(self) -> str:
        """Both: ` at train.py:65 (step) and train.py:70 (evaluate)`."""
        lines = " and ".join(dict.fromkeys(filter(None, (self.own_line, self.other_line))))
        return f" at {lines}" if lines else ""

    # The category.

    def found_category(self) -> Category:
        """What went wrong, as far as the files show it."""
        if self.is_busy:
            return Category.COMPILING
        if self.proven or self.certain:
            return self.usual
        gone = self.culprits and set(self.culprits) <= set(self.undumped)
        return Category.PROCESS_GONE if gone else Category.UNKNOWN

    @property
    def is_busy(self) -> bool:
        """True if most culprits are late because of torch's compiler."""
        return bool(self.busy) and 2 * len(self.busy) >= len(self.culprits)

    @property
    def is_in_compiler(self) -> bool:
        """True if a stack of a culprit is in torch's compiler."""
        entries = (shown.compiler for shown in self.evidence if shown.role is Role.CULPRIT)
        return any(stack.in_compiler for stack in self.stacks) or any(entries)

    @property
    def stacks_in_compiler(self) -> dict[int, str]:
        """By culprit the line of torch's compiler in its stack, unless compile logs show more."""
        return {
            stack.rank: line_in_words(frame)
            for stack in self.stacks
            if self.not_reached and not self.compiling and (frame := compiler_frame(stack.frames))
        }

    # Several in one.

    def facts(self) -> tuple[Any, ...]:
        """The facts of its kind: equal for problems that are one."""
        return tuple(
            getattr(self, name) for name in self.__struct_fields__ if name not in Verdict.__struct_fields__
        )

    def common_facts(self) -> dict[str, Any]:
        """All other facts: for a verdict of another kind on the same call."""
        return {name: getattr(self, name) for name in Verdict.__struct_fields__}

    def settled(self) -> Problem:
        """The problem with its texts."""
        message = " ".join(filter(None, [self.sentence(), *self.remarks()]))
        texts = {"message": message, "advice": self.steps(), "category": self.found_category()}
        known = {name: getattr(self, name) for name in Problem.__struct_fields__}
        return Problem(**{**known, **texts})


def facts_of_all(verdicts: Sequence[Problem], culprits: Collection[int]) -> dict[str, Any]:
    """How many collectives show verdicts that are one, the longest wait, and entries of the first and of culprits."""
    return {
        "count": sum(verdict.count for verdict in verdicts),
        "waited_ns": max((verdict.waited_ns or 0 for verdict in verdicts), default=0) or None,
        "rows": {
            rank: row
            for number, verdict in enumerate(verdicts)
            for rank, row in verdict.rows.items()
            if not number or rank in culprits
        },
    }


def called_at(entry: Entry | None) -> str:
    """`train.py:65 (step)`; empty without a stack."""
    return f"{line_in_words(entry.frames[0])} ({entry.frames[0].name})" if entry and entry.frames else ""


def _on_hosts(hosts: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    """`Rank 3 is on node0.`, if a host is known."""
    shown = [
        f"{lowered(ranks_in_words(ranks))} {'is' if len(ranks) == 1 else 'are'} on {printable(host)}"
        for host, ranks in hosts[:MOST_HOSTS]
    ]
    if (rest := len(hosts) - len(shown)) > 0:
        shown.append(f"others are on {counted(rest, 'more host')}")
    return f"{capitalized(', '.join(shown))}." if shown else ""


LONGEST_FUNCTION = 80
LONGEST_GUARD = 120
MOST_SENTENCES = 2
"""Different compilations that a message names."""
WHERE_COMPILE_LOGS_ARE = (
    "Its stack is in torch's compiler: run the job with TORCH_TRACE=DIR in the environment, and give DIR to tracelink "
    "diagnose together with the dumps. Its logs show what is compiled, since when, and whether for the first time."
)
_MISMATCH = re.compile(r"^tensor '|\bmismatch\b")
"""Guards whose texts say that they failed."""


def compilations_in_words(compiling: Sequence[Compiling], lines: Mapping[int, str]) -> str:
    """Sentences about culprits in the compiler: those of most ranks first."""
    alike: dict[tuple[str, str, str, bool], list[Compiling]] = {}
    for one in compiling:
        alike.setdefault((one.function, one.id, one.phases[-1], one.open), []).append(one)
    sentences = [
        f"{ranks_in_words([one.rank for one in same])} {_compiled(same)}."
        for same in sorted(alike.values(), key=len, reverse=True)[:MOST_SENTENCES]
    ]
    if lines:
        are, show = ("are", "their stacks show") if len(lines) > 1 else ("is", "its stack shows")
        where = next(iter(lines.values()))
        sentences.append(f"{ranks_in_words(list(lines))} {are} in torch's compiler ({where}), as {show}.")
    return " ".join(sentences)


def _compiled(alike: Sequence[Compiling]) -> str:
    """`has been compiling train_step [3/2] (async_compile.wait) for at least 6 min 34 s`."""
    longest = max(alike, key=lambda one: one.duration_ns)
    several = len(alike) > 1
    what = _name_of(longest)
    guards = {_failed_guard(one) for one in alike if one.cold is False}
    again = f" (again, because {guard})" if len(guards) == 1 and (guard := guards.pop()) else ""
    if longest.open:
        verb = "have" if several else "has"
        return f"{verb} been compiling {what} for at least {duration(longest.duration_ns)}{again}"
    return f"{'were' if several else 'was'} compiling {what} for {duration(longest.duration_ns)} meanwhile{again}"


def _name_of(compiling: Compiling) -> str:
    """`train_step [3/2] (async_compile.wait)`."""
    function = shortened(compiling.function, LONGEST_FUNCTION)
    named = [function, f"[{compiling.id}]" if compiling.id else "", f"({compiling.phases[-1]})"]
    return " ".join(filter(None, named))


def _failed_guard(compiling: Compiling) -> str:
    """`s.i == 0 failed at train.py:31`; empty if unknown."""
    if not compiling.guard:
        return ""
    guard = shortened(compiling.guard, LONGEST_GUARD)
    failed = "" if _MISMATCH.search(compiling.guard) else " failed"
    return f"{guard}{failed}{f' at {line_in_words(compiling.guard_frame)}' if compiling.guard_frame else ''}"


def advice_on_compilation(one: Compiling) -> str:
    """How to get rid of the wait: another timeout or a warm cache the first time, fewer compilations after that."""
    rank, what = f"rank {one.rank}", shortened(one.function, LONGEST_FUNCTION) or "this function"
    ended = " If the compilation does not end, run py-spy dump --pid PID on its host." if one.open else ""
    if one.cold is False:
        why = _failed_guard(one)
        return (
            f"{capitalized(rank)} had compiled {what} before (warm): "
            f"{f'{why}. Mark' if why else 'mark'} sizes that change as dynamic (torch._dynamo.mark_dynamic), and keep "
            f"other values that guards check constant. tracelink compile {one.sources[0]} shows every guard that "
            f"failed.{ended}"
        )
    first = f"compiles {what} for the first time (cold)" if one.cold else "is in the compiler"
    return (
        f"{capitalized(rank)} {first}: use a longer timeout for the first steps, compile before the first collective, "
        "or start with warm caches (FX graph cache in TORCHINDUCTOR_CACHE_DIR, on storage that outlives the job). "
        f"tracelink compile {one.sources[0]} shows what it compiled.{ended}"
    )


def end_of_compilation(one: Compiling) -> str:
    """What follows from a compilation that ended, if the rank has not joined."""
    if one.open:
        return f"Rank {one.rank} is compiling; other culprits are not."
    return (
        f"Rank {one.rank} finished compiling at {time_of_day(one.since_ns + one.duration_ns, digits=3)} UTC: "
        "if the dumps were written later, it is stuck after that."
    )
