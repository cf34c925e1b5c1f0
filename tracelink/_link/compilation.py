"""*compiles*: a phase of torch.compile, and what ran the code that it made; *same*: a phase that a profile has, too."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cached_property

import msgspec
import numpy as np

from tracelink._model.columns import (
    LOWEST,
    NO_TIME,
    SECOND,
    UNKNOWN,
    Bools,
    Int64s,
    StringTable,
    lookup,
    scatter,
    values_at,
)
from tracelink._model.events import Edges, EventKind, Key, KeyColumn, Relation
from tracelink._model.graph import LinkReport, Links, nonzero
from tracelink._model.trace import RankTrace, payloads_near, scoped, scoped_pair

# Files with generated code that events name in their arguments: in stacks of the recorder, and as files of kernels.

FOLDERS = re.compile(r".*[/\\]")
"""Of a path: files with generated code are named by their content, so folders do not matter."""
_GENERATED = re.compile(r"c[a-z2-7]{40,60}\.py")


class _Frame(msgspec.Struct, frozen=True):
    name: str = ""
    filename: str = ""


class _Entry(msgspec.Struct, frozen=True):
    frames: Sequence[_Frame] = ()


class _Attribute(msgspec.Struct, frozen=True):
    name: str = ""
    value: object = None


class _Kernel(msgspec.Struct, frozen=True):
    """Arguments of an operator (Kineto), or of a node (`attrs`)."""

    kernel_file: str = ""
    kernel_hash: str = ""
    attrs: Sequence[_Attribute] = ()


_entries = msgspec.json.Decoder(_Entry)
_kernels = msgspec.json.Decoder(_Kernel)


def calling_files(trace: RankTrace, rows: Int64s) -> dict[int, str]:
    """For recorder entries the innermost generated file of the stack; entries without one are missing."""
    found = ((row, _calling_file(text)) for row, text in _arguments(trace, rows))
    return {row: file for row, file in found if file}


def kernel_files(trace: RankTrace, rows: Int64s) -> dict[int, str]:
    """For launches of generated kernels the file of the kernel, without folders; other events are missing."""
    found = ((row, _kernel_file(text)) for row, text in _arguments(trace, rows))
    return {row: file for row, file in found if file}


def _calling_file(text: bytes) -> str:
    try:
        frames = _entries.decode(text).frames
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    names = (FOLDERS.sub("", frame.filename) for frame in frames if frame.name == "call")
    return next((name for name in names if _GENERATED.fullmatch(name)), "")


def _kernel_file(text: bytes) -> str:
    """Without a path the hash is the name of the file."""
    try:
        kernel = _kernels.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    stated = (one.value for one in kernel.attrs if one.name == "kernel_file" and isinstance(one.value, str))
    path = kernel.kernel_file or next(stated, "")
    return FOLDERS.sub("", path) if path else (f"{kernel.kernel_hash}.py" if kernel.kernel_hash else "")


def _arguments(trace: RankTrace, rows: Int64s) -> Iterator[tuple[int, bytes]]:
    """The recorded arguments of these events."""
    of_source = trace.events.source[rows]
    for source, payloads in enumerate(trace.payloads):
        own = rows[of_source == source]
        row_of = dict(zip(trace.events.payload[own].tolist(), own.tolist(), strict=True))
        wanted = np.array(sorted(number for number in row_of if number >= 0), np.int64)
        for first, texts in payloads_near(payloads, wanted):
            low, high = np.searchsorted(wanted, [first, first + len(texts)]).tolist()
            for number in wanted[low:high].tolist():
                yield row_of[number], bytes(texts[number - first])


# Names of phases, and of what runs compiled code.

BACKWARD_PHASE = "entire_backward_compile"
"""The outermost phase of a backward graph that is compiled when it first runs."""
GRAPH_PHASE = "inductor_compile"
"""The phase that compiles one graph, and generates its code."""
WORKER_PHASE = "compile_file"
"""The phase that compiles one file, often on a thread of its own, which profilers do not record."""
LATENESS = SECOND
"""The longest time by which an operator ends after its phase: the process can be interrupted between the two."""


class Ran(IntEnum):
    """The kind of an event that ran compiled code."""

    NOTHING = 0
    REGION = 1
    """`Torch-Compiled Region: 1/5`"""
    GRAPH = 2
    """`## Call CompiledFxGraph f5gi… ##`"""
    FORWARD = 3
    """`CompiledFunction`, the forward pass of a graph with gradients."""
    BACKWARD = 4
    """`CompiledFunctionBackward`"""
    KERNEL = 5
    """A kernel that the compiler generated."""
    CODE = 6
    """A Python function of a file that the compiler generated."""
    TIMED = 7
    """A phase of the compiler: `compile_fx_inner (dynamo_timed)`"""


_NAMES = (
    (Ran.REGION, re.compile(r"Torch-Compiled Region: (\S+)")),
    (Ran.GRAPH, re.compile(r"## Call CompiledFxGraph (\S+) ##")),
    (Ran.FORWARD, re.compile(r"(CompiledFunction)")),
    (Ran.BACKWARD, re.compile(r"(CompiledFunctionBackward)")),
    (
        Ran.KERNEL,
        re.compile(r"((?:graph_\d+_)?cpp_fused_.*|triton_(?:poi|red|per|tem|for|mix|unk|mm|bmm)_.*)"),
    ),
    (Ran.CODE, re.compile(r"(?:.*[/\\])?(c[a-z2-7]{40,60}\.py)\(\d+\): call")),
    (Ran.TIMED, re.compile(r"(.+) \(dynamo_timed\)")),
)
"""Names of events; the group is what identifies the code: an id, a key, a file, a phase."""
_KINDS = (EventKind.OPERATOR, EventKind.ANNOTATION, EventKind.PYTHON, EventKind.NODE, EventKind.KERNEL)
"""Kinds of what runs code: phases only make it, and annotations on the device are copies."""
_GRAPH_NUMBER = re.compile(r"graph_\d+_")


def link_compilation(trace: RankTrace, edges: Edges) -> list[Links]:
    """Phases of the compile logs to what the profile, the execution trace and the recorder have of their code.

    `edges` are those that are known so far: *calls*, *launches*, and *same*.
    """
    compiled = CompiledCode(trace, edges)
    return [
        _link_phases(compiled),
        _link_regions(compiled),
        _link_backwards(compiled),
        _link_graphs(compiled),
        _link_kernels(compiled),
        _link_code(compiled),
        _link_recorder(compiled),
    ]


class CompiledCode:
    """The phases of a rank by compilation, and the events that ran compiled code."""

    def __init__(self, trace: RankTrace, edges: Edges) -> None:
        self.trace, self.events = trace, trace.events
        self.texts = StringTable()
        """Ids, keys, files and names of phases, by codes of their own."""
        self.edges = edges
        self.phases = np.flatnonzero(self.events.of_kind(EventKind.COMPILATION))
        processes = StringTable()
        of_track = [processes[track.process] for track in trace.tracks]
        self.process = np.array(of_track, np.int64)[self.events.track]
        self.logged = np.unique(self.process[self.phases])
        """Processes with a compile log."""
        if len(self.logged) == 1 and "" in processes:
            self.process[self.process == processes[""]] = self.logged[0]
        self.ran, self.code = self._classified()

    def _classified(self) -> tuple[Int64s, Int64s]:
        """The kind of what each event ran, and the code of what identifies it."""
        names = self.trace.strings.texts()
        ran, code = np.zeros(len(names), np.int64), np.full(len(names), UNKNOWN, np.int64)
        for number, name in enumerate(names):
            for what, pattern in _NAMES:
                if match := pattern.fullmatch(name):
                    ran[number], code[number] = what, self.texts[match[1]]
                    break
        if not len(names):
            return np.zeros(len(self.events), np.int64), np.full(len(self.events), UNKNOWN, np.int64)
        of_event = ran[self.events.name]
        of_event[~self.events.of_kind(*_KINDS)] = Ran.NOTHING
        of_event[self.edges.where(Relation.SAME).source] = Ran.NOTHING  # their operators are linked
        of_event[(of_event == Ran.TIMED) & ~self.events.timed] = Ran.NOTHING
        return of_event, code[self.events.name]

    def rows(self, what: Ran) -> Int64s:
        """The events that are such a thing."""
        return np.flatnonzero(self.ran == what)

    def text_key(self, key: Key, *, file: bool = False) -> tuple[Int64s, Int64s]:
        """The rows of phases with this key, and the codes of its texts: of files, their names without folders."""
        column = self.trace.key(key)
        names = self.trace.strings.texts()
        distinct, index = np.unique(column.values, return_inverse=True)
        words = [names[value] for value in distinct.tolist()]
        codes = np.array([self.texts[FOLDERS.sub("", word) if file else word] for word in words], np.int64)
        return column.rows, codes[index] if len(codes) else np.empty(0, np.int64)

    @cached_property
    def id_of_phase(self) -> Int64s:
        """For each event the code of the compilation that it is a phase of, or UNKNOWN."""
        rows, codes = self.text_key(Key.COMPILE_ID)
        return scatter(len(self.events), rows, codes)

    @cached_property
    def outermost(self) -> Int64s:
        """The outermost phases of each compilation."""
        rows = self.phases[self.id_of_phase[self.phases] != UNKNOWN]
        group = self.pair(self.process[rows], self.id_of_phase[rows])
        order = np.lexsort((-self.events.end[rows], self.events.start[rows], group))
        rows, group = rows[order], group[order]
        end = self.events.end[rows]
        found, last_group, last_end = [], None, LOWEST
        for row, of, start, until in zip(
            rows.tolist(), group.tolist(), self.events.start[rows].tolist(), end.tolist(), strict=True
        ):
            if of != last_group or start >= last_end:
                found.append(row)
                last_end = until if of != last_group else max(last_end, until)
            last_group = of
        return np.array(found, np.int64)

    @cached_property
    def backward_phases(self) -> Bools:
        """The outermost phases that are of a backward graph."""
        name = self.trace.strings.find(BACKWARD_PHASE)
        return np.asarray(self.events.name[self.outermost] == name)

    @cached_property
    def caller(self) -> Int64s:
        """The caller of each event, or UNKNOWN; for device work the call that launched it, for a node its parent."""
        callers = np.full(len(self.events), UNKNOWN, np.int64)
        nodes, parents = self.trace.key(Key.NODE_ID), self.trace.key(Key.NODE_PARENT)
        identity, wanted = scoped_pair(self.trace, nodes, parents)
        callers[parents.rows] = values_at(nodes.rows, lookup(identity, wanted))
        callers[callers == np.arange(len(callers))] = UNKNOWN
        for relation in (Relation.LAUNCHES, Relation.CALLS):
            found = self.edges.where(relation)
            callers[found.target] = found.source
        return callers

    def around(self, rows: Int64s, *what: Ran) -> Int64s:
        """The nearest event around each row that is one of these things, or UNKNOWN."""
        wanted = np.append(np.isin(self.ran, what), True)
        found = self.caller[rows]
        while len(rest := np.flatnonzero(~wanted[found])):
            found[rest] = self.caller[found[rest]]
        return found

    @cached_property
    def forward_of(self) -> Int64s:
        """For each `CompiledFunctionBackward` the `CompiledFunction` with its sequence number, else UNKNOWN."""
        column = self.trace.key(Key.SEQUENCE)
        number = scatter(len(self.events), column.rows, scoped(self.trace, column))
        forward, backward = self.rows(Ran.FORWARD), self.rows(Ran.BACKWARD)
        forward, backward = forward[number[forward] >= 0], backward[number[backward] >= 0]
        start = self.events.start
        found = latest(number[forward], start[forward], number[backward], start[backward])
        return scatter(len(self.events), backward, values_at(forward, found))

    @cached_property
    def id_of_run(self) -> tuple[Int64s, Bools]:
        """For each event that ran compiled code the code of its compilation, or UNKNOWN; and whether it ran backward.

        A region states it. Others have that of the nearest region around them, or of the forward pass of the
        `CompiledFunctionBackward` around them.
        """
        ids = np.where(self.ran == Ran.REGION, self.code, UNKNOWN)
        backward = self.ran == Ran.BACKWARD
        for what in (Ran.FORWARD, Ran.BACKWARD, Ran.GRAPH, Ran.KERNEL, Ran.CODE):
            rows = self.rows(what)
            if what == Ran.BACKWARD:
                ids[rows] = values_at(ids, self.forward_of[rows])
                continue
            nearest = self.around(rows, Ran.REGION, Ran.BACKWARD)
            ids[rows] = values_at(ids, nearest)
            backward[rows] = values_at(self.ran, nearest) == Ran.BACKWARD
        return ids, backward

    def phase_of(self, rows: Int64s) -> Int64s:
        """The outermost phase of the compilation that made what each event ran, or UNKNOWN."""
        ids, backward = self.id_of_run
        found = np.full(len(rows), UNKNOWN, np.int64)
        for of_backward in (False, True):
            phases = self.outermost[self.backward_phases == of_backward]
            which = self.latest_phase(phases, self.id_of_phase[phases], rows, ids[rows])
            # a backward graph that is compiled together with its forward graph has no phase of its own
            wanted = (which != UNKNOWN) & (backward[rows] | (not of_backward))
            found[wanted] = which[wanted]
        return found

    def only_graph_in(self, phases: Int64s) -> Int64s:
        """The phase that compiles the only graph in each outermost phase; that phase itself, if it has several."""
        named = self.events.name[self.phases] == self.trace.strings.find(GRAPH_PHASE)
        graphs = self.phases[named & (self.id_of_phase[self.phases] != UNKNOWN)]
        around = self.latest_phase(
            self.outermost, self.id_of_phase[self.outermost], graphs, self.id_of_phase[graphs]
        )
        count = np.bincount(around[around != UNKNOWN], minlength=len(self.events))
        only = scatter(len(self.events), around[around != UNKNOWN], graphs[around != UNKNOWN])
        only[count != 1] = UNKNOWN
        return _or_self(values_at(only, phases), phases)

    def latest_phase(self, phases: Int64s, codes: Int64s, rows: Int64s, wanted: Int64s) -> Int64s:
        """The last of `phases` with the wanted code in its process that begins before each event, or UNKNOWN."""
        time = self.events.start[rows]
        time = np.where(time == NO_TIME, np.iinfo(np.int64).max, time)
        found = latest(
            self.pair(self.process[phases], codes),
            self.events.start[phases],
            self.pair(self.process[rows], wanted),
            time,
        )
        return np.where(wanted == UNKNOWN, UNKNOWN, values_at(phases, found))

    def pair(self, first: Int64s, second: Int64s) -> Int64s:
        """One number for two codes of which the second is of a text."""
        return first * (len(self.texts) + 1) + second + 1

    def why_not(self, rows: Int64s, unknown: str) -> dict[str, int]:
        """The reasons why events have no phase: `unknown` where their compilation is unknown."""
        ids, _ = self.id_of_run
        logged = np.isin(self.process[rows], self.logged)
        known = np.isin(
            self.pair(self.process[rows], ids[rows]),
            self.pair(self.process[self.outermost], self.id_of_phase[self.outermost]),
        )
        return nonzero(
            {
                "there is no compile log of its process": int(np.count_nonzero(~logged)),
                unknown: int(np.count_nonzero(logged & (ids[rows] == UNKNOWN))),
                "its compilation is not in the log": int(
                    np.count_nonzero(logged & (ids[rows] != UNKNOWN) & ~known)
                ),
                "it ran before its compilation began": int(np.count_nonzero(logged & known)),
            }
        )


# Phases that a profile has, too: each calls record functions.


def _link_phases(compiled: CompiledCode) -> Links:
    """A phase is the same as the operator of its name (torch 2.13), else as the one of its function (before).

    The operator is the first to begin within the phase, and ends with it.
    """
    events, phases = compiled.events, compiled.phases
    own, of_function = _phase_names(compiled)
    profiled = events.of_kind(EventKind.OPERATOR, EventKind.ANNOTATION) & events.timed
    profiled &= np.isin(compiled.process, compiled.logged)
    by_name = np.flatnonzero(profiled & (own != UNKNOWN))
    by_function = np.flatnonzero(profiled & (compiled.ran == Ran.TIMED))
    operators = np.concatenate([by_name, by_function])
    if not len(operators):
        return Links(Edges.empty(), LinkReport("same.compile_kineto", 0, 0))
    operator = _first_within(compiled, phases, own[phases], by_name, own[by_name])
    rest = np.flatnonzero(operator == UNKNOWN)
    operator[rest] = _first_within(
        compiled, phases[rest], of_function[phases[rest]], by_function, compiled.code[by_function]
    )
    source, target = phases[operator != UNKNOWN], operator[operator != UNKNOWN]
    begin, end = int(events.start[operators].min()), int(events.end[operators].max())
    inside = (events.start[phases] >= begin) & (events.start[phases] <= end)
    inside &= np.isin(compiled.process[phases], compiled.process[operators])
    candidates = int(np.count_nonzero(inside | (operator != UNKNOWN)))
    by_worker = events.name[phases] == compiled.trace.strings.find(WORKER_PHASE)
    of_workers = int(np.count_nonzero(by_worker & inside & (operator == UNKNOWN)))
    missing = {
        f"{WORKER_PHASE} of a worker thread, which was not profiled": of_workers,
        "no operator of its name ran then": candidates - len(source) - of_workers,
    }
    notes = {"phases outside the profiled time": len(phases) - candidates}
    report = LinkReport("same.compile_kineto", len(source), candidates, nonzero(missing), nonzero(notes))
    return Links(Edges.of_relation(Relation.SAME, source, target), report)


def _first_within(
    compiled: CompiledCode, phases: Int64s, names: Int64s, operators: Int64s, of_operators: Int64s
) -> Int64s:
    """For each phase the first operator of its name that begins within it, and ends at most `LATENESS` after it."""
    events = compiled.events
    found = compiled.latest_phase(phases, names, operators, of_operators)
    linked = (found != UNKNOWN) & (values_at(events.end, found) + LATENESS >= events.end[operators])
    operators, found = operators[linked], found[linked]
    order = np.argsort(events.start[operators], kind="stable")[::-1]
    first = scatter(len(events), found[order], operators[order])
    return first[phases]


def _phase_names(compiled: CompiledCode) -> tuple[Int64s, Int64s]:
    """For each event the code of its name if phases have it; for each phase that of its function, else of its name."""
    names, events = compiled.trace.strings.texts(), compiled.events
    codes = np.full(len(names) + 1, UNKNOWN, np.int64)
    for name in np.unique(events.name[compiled.phases]).tolist():
        codes[name] = compiled.texts[names[name]]
    own = codes[events.name]
    of_function = own.copy()
    rows, functions = compiled.text_key(Key.COMPILED_FUNCTION)
    of_function[rows] = functions
    return own, of_function


# Phases and what ran.


def _link_regions(compiled: CompiledCode) -> Links:
    """A region names its compilation."""
    rows = compiled.rows(Ran.REGION)
    links = _linked(compiled, "compiles.region", rows, compiled.phase_of(rows), "it names no compilation")
    ids = np.unique(compiled.code[links.edges.target])
    compilations = len(np.unique(compiled.id_of_phase[compiled.outermost]))
    notes = {
        "compilations that ran": len(ids),
        "compilations that did not run in the recorded time": (compilations - len(ids)) if len(rows) else 0,
    }
    return _with_notes(links, notes)


def _link_backwards(compiled: CompiledCode) -> Links:
    """A backward pass is of the compilation of its forward pass, which has the same sequence number."""
    rows = compiled.rows(Ran.BACKWARD)
    return _linked(
        compiled,
        "compiles.backward",
        rows,
        compiled.phase_of(rows),
        "its forward pass is not in the recording",
    )


def _link_graphs(compiled: CompiledCode) -> Links:
    """A call of a graph has the key by which a cache has it; several compilations can share one."""
    rows = compiled.rows(Ran.GRAPH)
    phases, by_key, by_region = _phases_of_graphs(compiled, rows)
    unknown = "its key is not in the log, and no region is around it"
    return _with_notes(
        _linked(compiled, "compiles.graph", rows, phases, unknown),
        {"linked by cache key": by_key, "linked by the region around it": by_region},
    )


def _phases_of_graphs(compiled: CompiledCode, rows: Int64s) -> tuple[Int64s, int, int]:
    """The phase that compiled each graph, or UNKNOWN: by id and key, else by id, else by a key of one compilation."""
    ids, _ = compiled.id_of_run
    phases, keys = _keys(compiled)
    many = len(compiled.texts) + 1
    wanted = compiled.code[rows]
    both = compiled.latest_phase(
        phases, _in_one(compiled.id_of_phase[phases], keys, many), rows, _in_one(ids[rows], wanted, many)
    )
    only = compiled.latest_phase(
        phases,
        keys,
        rows,
        np.where(np.isin(wanted, _of_one(keys, compiled.id_of_phase[phases])), wanted, UNKNOWN),
    )
    by_key = np.where(ids[rows] == UNKNOWN, only, both)
    found = np.where(by_key == UNKNOWN, compiled.only_graph_in(compiled.phase_of(rows)), by_key)
    count = int(np.count_nonzero(by_key != UNKNOWN))
    return found, count, int(np.count_nonzero(found != UNKNOWN)) - count


def _keys(compiled: CompiledCode) -> tuple[Int64s, Int64s]:
    """The phases that compiled graphs with a key, and the codes of their keys."""
    phases, keys = compiled.text_key(Key.CACHE_KEY)
    kept = compiled.events.kind[phases] == EventKind.COMPILATION
    return phases[kept], keys[kept]


def _in_one(first: Int64s, second: Int64s, many: int) -> Int64s:
    """Two codes as one; UNKNOWN if either is."""
    return np.where((first == UNKNOWN) | (second == UNKNOWN), UNKNOWN, first * many + second)


def _of_one(keys: Int64s, ids: Int64s) -> Int64s:
    """The keys of only one compilation."""
    pairs = np.unique(np.stack([keys, ids]), axis=1)
    found, count = np.unique(pairs[0], return_counts=True)
    return np.asarray(found[count == 1], np.int64)


def _link_kernels(compiled: CompiledCode) -> Links:
    """A generated kernel is of the graph that calls it."""
    rows = compiled.rows(Ran.KERNEL)
    graphs = compiled.rows(Ran.GRAPH)
    around = compiled.around(rows, Ran.GRAPH)
    of_graph = scatter(len(compiled.events), graphs, _phases_of_graphs(compiled, graphs)[0])
    phases = values_at(of_graph, around)
    phases = np.where(phases == UNKNOWN, compiled.phase_of(rows), phases)
    phases, by_file, by_name = _phases_of_kernels(compiled, rows, phases)
    unknown = "no compiled graph is around it, and no single compilation generated its file or its name"
    links = _linked(compiled, "compiles.kernel", rows, phases, unknown)
    # a compilation that takes all its code from a cache has no key, and the lines of the one that stored it
    stored = compiled.latest_phase(*_keys(compiled), graphs, compiled.code[graphs])
    of_stored = values_at(scatter(len(compiled.events), graphs, stored), around)
    lines = _or_self(_lines(compiled, rows, phases), _lines(compiled, rows, of_stored))
    known = lines != UNKNOWN
    if known.any():
        compiled.trace.keys[Key.SOURCE_LINES] = KeyColumn(rows[known], lines[known])
    notes = {
        "linked by the file of the kernel": by_file,
        "linked by the name of the kernel": by_name,
        "with the lines of the program that they compute": int(np.count_nonzero(known)),
    }
    return _with_notes(links, notes)


def _phases_of_kernels(compiled: CompiledCode, rows: Int64s, phases: Int64s) -> tuple[Int64s, int, int]:
    """The phases, where unknown those that generated the file of the kernel or, if no file is stated, its name.

    What runs on the device has the file of the operator around it. A file of several compilations decides nothing.
    """
    generated, texts = compiled.text_key(Key.KERNEL_FILES)
    missing = np.flatnonzero(phases == UNKNOWN)
    if not len(generated) or not len(missing):
        return phases, 0, 0
    launching = _or_self(compiled.around(rows[missing], Ran.KERNEL), rows[missing])
    own = kernel_files(compiled.trace, np.unique(np.concatenate([launching, rows[missing]])))
    stated, files = _coded(compiled, own)
    file_of = scatter(len(compiled.events), stated, files)
    file = _or_self(file_of[rows[missing]], file_of[launching])
    names = compiled.texts.texts()
    split = [names[code].partition(": ") for code in texts.tolist()]
    kernels, in_files = (np.array([compiled.texts[one[part]] for one in split], np.int64) for part in (0, 2))
    ids = compiled.id_of_phase[generated]
    found = phases.copy()
    counts = []
    for keys, wanted in (
        (in_files, file),
        (kernels, np.where(file == UNKNOWN, compiled.code[rows[missing]], UNKNOWN)),
    ):
        only = np.where(np.isin(wanted, _of_one(keys, ids)), wanted, UNKNOWN)
        of_phase = compiled.latest_phase(generated, keys, rows[missing], only)
        found[missing] = _or_self(found[missing], of_phase)
        counts.append(int(np.count_nonzero(of_phase != UNKNOWN)))
    return found, counts[0], counts[1]


def _lines(compiled: CompiledCode, rows: Int64s, phases: Int64s) -> Int64s:
    """The code of the lines of the program that each kernel computes, as its phase states them, or UNKNOWN."""
    trace = compiled.trace
    column, names = trace.key(Key.KERNEL_SOURCES), trace.strings.texts()
    sources = [names[value].partition(": ") for value in column.values.tolist()]
    kernels = np.array([compiled.texts[kernel] for kernel, _, _ in sources], np.int64)
    lines = np.array([trace.strings[text] for _, _, text in sources], np.int64)
    own, index = np.unique(trace.events.name[rows], return_inverse=True)
    wanted = np.array([compiled.texts[_GRAPH_NUMBER.sub("", names[name])] for name in own.tolist()], np.int64)
    many = len(compiled.texts) + 1
    found = lookup(_in_one(column.rows, kernels, many), _in_one(phases, values_at(wanted, index), many))
    return values_at(lines, found)


def _link_code(compiled: CompiledCode) -> Links:
    """A call of a Python function is of the phase that generated its file."""
    rows = compiled.rows(Ran.CODE)
    ids, _ = compiled.id_of_run
    phases = _phases_of_files(compiled, rows, compiled.code[rows], ids[rows])
    missing = int(np.count_nonzero(phases == UNKNOWN))
    return _edges("compiles.code", rows, phases, nonzero({"its file is not in the log": missing}))


def _phases_of_files(compiled: CompiledCode, rows: Int64s, files: Int64s, ids: Int64s) -> Int64s:
    """The phase that generated each file, of the compilation `ids` if it did, else the last one before the event."""
    phases, generated = compiled.text_key(Key.OUTPUT_CODE, file=True)
    many = len(compiled.texts) + 1
    own = compiled.latest_phase(
        phases,
        _in_one(compiled.id_of_phase[phases], generated, many),
        rows,
        _in_one(ids, files, many),
    )
    return np.where(own == UNKNOWN, compiled.latest_phase(phases, generated, rows, files), own)


# Entries of the flight recorder: their stacks contain the generated code that called them.


def _link_recorder(compiled: CompiledCode) -> Links:
    """An entry is of the phase that generated the innermost file of its stack."""
    report = LinkReport("compiles.recorder", 0, 0)
    records = compiled.events.of_kind(EventKind.RECORD)
    if not records.any() or not len(compiled.trace.key(Key.OUTPUT_CODE)):
        return Links(Edges.empty(), report)
    rows, files = _coded(compiled, calling_files(compiled.trace, np.flatnonzero(records)))
    # a dump does not name its process
    if len(compiled.logged) == 1:
        compiled.process[rows] = compiled.logged[0]
    same = compiled.edges.where(Relation.SAME)
    operator = scatter(len(compiled.events), same.source, same.target)
    ids, _ = compiled.id_of_run
    around = compiled.around(_or_self(operator[rows], rows), Ran.REGION, Ran.BACKWARD)
    phases = _phases_of_files(compiled, rows, files, values_at(ids, around))
    missing = int(np.count_nonzero(phases == UNKNOWN))
    return _edges(
        "compiles.recorder", rows, phases, nonzero({"the code that called it is not in the log": missing})
    )


# Reports.


def _linked(compiled: CompiledCode, relation: str, rows: Int64s, phases: Int64s, unknown: str) -> Links:
    return _edges(relation, rows, phases, compiled.why_not(rows[phases == UNKNOWN], unknown))


def _edges(relation: str, rows: Int64s, phases: Int64s, unlinked: dict[str, int]) -> Links:
    linked = phases != UNKNOWN
    edges = Edges.of_relation(Relation.COMPILES, phases[linked], rows[linked])
    return Links(edges, LinkReport(relation, len(edges), len(rows), unlinked))


def _with_notes(links: Links, notes: dict[str, int]) -> Links:
    report = links.report
    return Links(
        links.edges,
        LinkReport(report.relation, report.linked, report.candidates, report.unlinked, nonzero(notes)),
    )


def _coded(compiled: CompiledCode, files: Mapping[int, str]) -> tuple[Int64s, Int64s]:
    """Rows, and the codes of their files."""
    rows = np.array(list(files), np.int64)
    return rows, np.array([compiled.texts[file] for file in files.values()], np.int64)


# Columns.


def latest(groups: Int64s, times: Int64s, wanted: Int64s, before: Int64s) -> Int64s:
    """For each wanted group and time the index of the last row of the group that is not later, or UNKNOWN."""
    count = len(groups)
    both = np.concatenate([groups, wanted])
    order = np.lexsort((np.arange(len(both)) >= count, np.concatenate([times, before]), both))
    last = np.maximum.accumulate(np.where(order < count, np.arange(len(order)), UNKNOWN))
    asked = order >= count
    index = values_at(order, last[asked])
    index = np.where(values_at(both, index) == both[order[asked]], index, UNKNOWN)
    return scatter(len(wanted), order[asked] - count, index)


def _or_self(rows: Int64s, others: Int64s) -> Int64s:
    return np.where(rows == UNKNOWN, others, rows)
