"""Ranks that compiled something else: at the first record that differs, compared by content."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

import msgspec
from msgspec.structs import replace

from tracelink._compile.model import Divergence, PartialHit, lasting
from tracelink._io.sources import Source
from tracelink._model.text import shortened
from tracelink._model.witnesses import Artifact, Compilation, CompileLog

Logs = Mapping[int, Sequence[CompileLog]]
"""The logs of each rank, in the order of time."""

SCHEDULE = "inductor_collective_schedule"
EXECUTION = "graph_execution"
ESTIMATES = "inductor_runtime_and_tensor_meta"
GRAPHS, CODE, TENSORS, ORDER = "graphs", "generated code", "tensors", "execution order"
CONTENT = {GRAPHS: "dynamo_output_graph", CODE: "inductor_output_code", TENSORS: ESTIMATES}
"""Artifacts that are compared by their content, where ranks compiled the same function under the same id."""
LONGEST_COMPARED = 4 << 20
"""Bytes of an artifact in which the first line that differs is looked for."""
NOTHING = "nothing"
FREED = re.compile(r";\s+\w+ = (?:\w+ = )*None\b.*")
"""What printed graphs free at the end of a line."""
LONGEST, LONGEST_LINE = 200, 80
OPERATION = re.compile(r"^torch\.ops\.(?:_c10d_functional\.|_?c10d\.)?|\.default$")
NUMBER = re.compile(r"\d+")
EXPECTED = re.compile(r"\bexpected\b.*")
"""Sizes of a rank's data, which can differ on each rank."""

Step = tuple[str, tuple[str, ...]]
"""A compile id, and what a rank has there."""


def divergences_of(logs: Logs) -> list[Divergence]:
    """What ranks compiled, and what their graphs contain, where a rank differs from most others."""
    found = []
    for what, steps_of in STEPS.items():
        found += _divergences_in(what, {rank: tuple(steps_of(of_rank)) for rank, of_rank in logs.items()})
    found += _in_content("recompilations", {rank: _guards(of_rank) for rank, of_rank in logs.items()})
    graphs = _in_content(
        GRAPHS, {rank: _contents(of_rank, CONTENT[GRAPHS]) for rank, of_rank in logs.items()}
    )
    known = {one.outliers for one in graphs}
    code = _in_content(CODE, {rank: _contents(of_rank, CONTENT[CODE]) for rank, of_rank in logs.items()})
    tensors = _in_content(
        TENSORS, {rank: _contents(of_rank, CONTENT[TENSORS]) for rank, of_rank in logs.items()}
    )
    found += [*graphs, *(one for one in code if one.outliers not in known), *tensors]
    return found + _in_order(logs)


def _in_order(logs: Logs) -> list[Divergence]:
    """Where the order of execution differs; long ones are compared as text before they are taken apart."""
    texts = {
        rank: [one.text for log in of_rank for one in log.artifacts if one.name == EXECUTION]
        for rank, of_rank in logs.items()
    }
    if len({tuple(text) for text in texts.values() if text}) < 2:
        return []
    return _divergences_in(
        ORDER, {rank: tuple(_executed(logs[rank])) for rank, text in texts.items() if text}
    )


def _executed(logs: Sequence[CompileLog]) -> Iterator[Step]:
    """The graphs that ran, in order."""
    names = {one.compile_id: one.function for log in logs for one in log.compilations if one.function}
    number = 0
    for log in logs:
        for artifact in log.artifacts:
            for id_ in artifact.text.split() if artifact.name == EXECUTION else ():
                number += 1
                yield id_, (f"{names.get(id_, 'graph')} (number {number})",)


# Records in their order: compilations, and the collectives of graphs.


def _compile_steps(logs: Sequence[CompileLog]) -> list[Step]:
    return [
        (
            one.compile_id,
            (f"{'backward of ' if one.backward else ''}{one.function or one.compile_id}: {_outcome(one)}",),
        )
        for log in logs
        for one in log.compilations
    ]


def _outcome(one: Compilation) -> str:
    if one.fail_type:
        return f"failed ({one.fail_type})"
    return "graph break" if one.restarts else "compiled"


def _collective_steps(logs: Sequence[CompileLog]) -> list[Step]:
    return [
        (artifact.compile_id, tuple(_names(artifact.text)))
        for log in logs
        for artifact in log.artifacts
        if artifact.name == SCHEDULE
    ]


def _names(text: str) -> list[str]:
    try:
        return msgspec.json.decode(text, type=list[str])
    except msgspec.DecodeError:
        return [text]


STEPS: Mapping[str, Callable[[Sequence[CompileLog]], list[Step]]] = {
    "compile": _compile_steps,
    "collectives": _collective_steps,
}


def _divergences_in(what: str, steps: Mapping[int, tuple[Step, ...]]) -> list[Divergence]:
    return [
        Divergence(outliers, what, *_first_difference(what, own, common), tie)
        for outliers, own, common, tie in _outliers(steps)
    ]


def _outliers(
    had: Mapping[int, tuple[Step, ...]],
) -> Iterator[tuple[tuple[int, ...], tuple[Step, ...], tuple[Step, ...], bool]]:
    """Ranks that have something else than most; their own, that of the others, and whether there is no majority."""
    if len(set(had.values())) < 2:
        return
    (common, most), *others = Counter(had.values()).most_common()
    tie = bool(others) and others[0][1] == most
    groups: dict[tuple[Step, ...], list[int]] = defaultdict(list)
    for rank, sequence in had.items():
        groups[sequence].append(rank)
    for sequence, ranks in groups.items():
        if sequence != common:
            yield tuple(sorted([*ranks, *(groups[common] if tie else ())])), sequence, common, tie


def _first_difference(what: str, own: Sequence[Step], common: Sequence[Step]) -> tuple[str, str, str]:
    mine, theirs = next(pair for pair in zip_longest(own, common) if pair[0] != pair[1])
    id_ = (mine or theirs)[0]
    if mine and theirs and mine[0] == theirs[0] and what != "compile":
        number, pair = next(
            (number, pair)
            for number, pair in enumerate(zip_longest(mine[1], theirs[1]))
            if pair[0] != pair[1]
        )
        found, expected = (
            _operation_in_words(one, number, step[1]) for one, step in zip(pair, (mine, theirs), strict=True)
        )
        return id_, f"{id_} {found}", f"{id_} {expected}"
    return id_, _step_in_words(mine), _step_in_words(theirs)


def _operation_in_words(operation: str | None, number: int, operations: Sequence[str]) -> str:
    """`all_reduce (4 of 6)`, or the last one of a rank that has no more."""
    if operation is None:
        return (
            f"nothing after {short(operations[-1])} ({number} of {number})" if operations else "no collective"
        )
    return f"{short(operation)} ({number + 1} of {len(operations)})"


def short(operation: str) -> str:
    """`all_reduce_` of `torch.ops._c10d_functional.all_reduce_.default`."""
    return shortened(OPERATION.sub("", operation), LONGEST)


def _step_in_words(step: Step | None) -> str:
    if step is None:
        return NOTHING
    id_, content = step
    return shortened(f"{id_} {', '.join(map(short, content)) or 'no collective'}", LONGEST)


# What ranks have at the same place: guards that failed, graphs and generated code of one function under one id.


Contents = Mapping[tuple[str, str], tuple[str, ...]]
"""By compile id and function."""


def _guards(logs: Sequence[CompileLog]) -> Contents:
    return {
        (one.compile_id, one.function): (EXPECTED.sub("", lasting(_guard(one.recompile_reason))),)
        for log in logs
        for one in log.compilations
        if one.recompile_reason
    }


def _guard(reason: str) -> str:
    return reason.strip().partition("\n")[0].partition("  #")[0].rstrip()


def _contents(logs: Sequence[CompileLog], name: str) -> Contents:
    """Of a rank that was started again the last ones."""
    contents: dict[tuple[str, str], tuple[str, ...]] = {}
    for log in logs:
        functions = {one.compile_id: one.function for one in log.compilations if not one.backward}
        digests: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for artifact in log.artifacts:
            if artifact.name == name and artifact.content and artifact.compile_id in functions:
                digests[artifact.compile_id, functions[artifact.compile_id]].append(artifact.content)
        contents |= {key: tuple(many) for key, many in digests.items()}
    return contents


def _in_content(what: str, contents: Mapping[int, Contents]) -> list[Divergence]:
    """Where ranks that have something under the same key have something else; each set of ranks once."""
    found: dict[tuple[int, ...], Divergence] = {}
    for key in dict.fromkeys(key for of_rank in contents.values() for key in of_rank):
        id_, function = key
        had = {rank: ((id_, of_rank[key]),) for rank, of_rank in contents.items() if key in of_rank}
        for outliers, ((_, own),), ((_, common),), tie in _outliers(had):
            words = (
                f"{id_} {shortened(' '.join(own), LONGEST)}",
                f"{id_} {shortened(' '.join(common), LONGEST)}",
            )
            if what in CONTENT:
                words = (f"{id_} {function}", f"{id_} {function}")
            found.setdefault(outliers, Divergence(outliers, what, id_, *words, tie))
    return list(found.values())


def explained(
    divergences: Iterable[Divergence], logs_of_run: Mapping[int, Logs], sources: Mapping[str, Source]
) -> list[Divergence]:
    """Divergences of graphs, tensors and generated code with the first line that differs, which is read again."""
    found = (
        _explained(one, logs_of_run[one.run], sources) if one.what in CONTENT else one for one in divergences
    )
    return [one for one in found if one is not None]


def _explained(one: Divergence, logs: Logs, sources: Mapping[str, Source]) -> Divergence | None:
    """None if only comments differ."""
    outlier = one.outliers[-1]
    others = [rank for rank in logs if rank not in one.outliers] or [one.outliers[0]]
    mine = _artifacts(logs[outlier], one)
    theirs = next((found for rank in others if (found := _artifacts(logs[rank], one))), [])
    for (log, artifact), (other_log, other) in zip(mine, theirs, strict=False):
        if artifact.content != other.content:
            mine_in_lines, theirs_in_lines = (
                _lines(sources[path], found)
                for path, found in ((log.source.path, artifact), (other_log.source.path, other))
            )
            if one.what == TENSORS:
                mine_in_lines, theirs_in_lines = _operations(mine_in_lines), _operations(theirs_in_lines)
            if _code(mine_in_lines) == _code(theirs_in_lines) and mine_in_lines != theirs_in_lines:
                return None
            own, common = _first_lines(mine_in_lines, theirs_in_lines)
            return replace(one, found=f"{one.id} {own}", expected=f"{one.id} {common}")
    return one


def _artifacts(logs: Sequence[CompileLog], one: Divergence) -> list[tuple[CompileLog, Artifact]]:
    return [
        (log, artifact)
        for log in logs
        for artifact in log.artifacts
        if artifact.compile_id == one.id and artifact.name == CONTENT[one.what] and artifact.content
    ]


def _lines(source: Source, artifact: Artifact) -> list[str]:
    ((_, payload),) = payloads_of(source, [artifact], LONGEST_COMPARED)
    return payload.decode("utf-8", "replace").splitlines()


class _Tensor(msgspec.Struct):
    shape: msgspec.Raw = msgspec.Raw()
    stride: msgspec.Raw = msgspec.Raw()
    dtype: str | None = None

    def __str__(self) -> str:
        shape, stride = (b"".join(bytes(one).split()).decode() for one in (self.shape, self.stride))
        return f"{self.dtype}{shape}" + (f", stride {stride}" if stride != "[]" else "")


class _Operation(msgspec.Struct):
    name: str = ""
    outputs: list[_Tensor] = []


class _Operations(msgspec.Struct):
    ops: list[_Operation] = []


def _operations(lines: Sequence[str]) -> list[str]:
    """`op3 makes float32[8, 32]`, a line for each operation of a graph; as it is, if it cannot be decoded."""
    try:
        found = msgspec.json.decode("\n".join(lines), type=_Operations)
    except msgspec.DecodeError:
        return list(lines)
    return [
        f"{short(one.name)} makes {', '.join(str(each) for each in one.outputs if each.dtype) or 'nothing'}"
        for one in found.ops
    ]


def _code(lines: Sequence[str]) -> list[str]:
    """Lines without those that are comments."""
    return [line for line in lines if line.strip() and line.strip()[0] != "#"]


def _first_lines(own: Sequence[str], common: Sequence[str]) -> tuple[str, str]:
    """The first lines that differ in more than numbers; else in numbers."""
    texts = [_code(lines) for lines in (own, common)]
    pairs = [pair for pair in zip_longest(*texts, fillvalue="") if pair[0] != pair[1]]
    words = (pair for pair in pairs if NUMBER.sub("", pair[0]) != NUMBER.sub("", pair[1]))
    found, expected = next(words, (pairs or [("other ends of lines", "")])[0])
    own_line, common_line = (
        shortened(FREED.sub("", line.strip()) or NOTHING, LONGEST_LINE) for line in (found, expected)
    )
    return own_line, common_line


def payloads_of(
    source: Source, artifacts: Iterable[Artifact], most: int | None = None
) -> Iterator[tuple[Artifact, bytes]]:
    """The payloads in the order of the log, without their indent, and of each at most so many stored bytes."""
    position = 0
    with source.open() as stream:
        for artifact in sorted(artifacts, key=lambda one: one.offset):
            stream.skip(artifact.offset - position)
            count = artifact.bytes if most is None else min(artifact.bytes, most)
            stored = stream.read(count)
            position = artifact.offset + count
            yield artifact, stored.removeprefix(b"\t").replace(b"\n\t", b"\n")


# Caches that hit on some ranks only.


def partial_hits_of(logs: Logs) -> list[PartialHit]:
    """Caches that had a graph on some ranks, and not on others that asked for it."""
    answers: dict[tuple[str, str, str], dict[int, list[str]]] = {}
    for rank, of_rank in logs.items():
        for log in of_rank:
            functions = {one.compile_id: one.function for one in log.compilations if not one.backward}
            for artifact in log.artifacts:
                cache, _, state = artifact.name.rpartition("_")
                if cache.endswith("_cache") and state in ("hit", "miss", "bypass"):
                    key = (artifact.compile_id, functions.get(artifact.compile_id, ""), cache)
                    answers.setdefault(key, {}).setdefault(rank, []).append(state)
    found = []
    for (id_, function, cache), of_ranks in answers.items():
        hit = tuple(rank for rank, states in of_ranks.items() if set(states) == {"hit"})
        missed = tuple(rank for rank in of_ranks if rank not in hit)
        if hit and missed:
            found.append(PartialHit(id_, function, cache, hit, missed))
    return found
