"""What only a page has: messages, and each compile id with its result, stages, stack, caches and artifacts."""

from __future__ import annotations

import html
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from msgspec import Struct, field

from tracelink._compile.charts import Link, frame_in_words
from tracelink._compile.divergences import Logs
from tracelink._compile.model import CacheUse, Compiled
from tracelink._compile.payloads import (
    MAPPINGS,
    MOST_OF_ONE,
    Embedding,
    embedded,
    embedding_of,
    file_name,
    language,
)
from tracelink._compile.reading import Read, tables_of
from tracelink._compile.summary import anchor, first_line
from tracelink._model.errors import printable
from tracelink._model.text import clipped, counted, duration, moment, ranks_cell, size
from tracelink._model.witnesses import Artifact, CompileLog
from tracelink._show.document import Block, Details, Element, Table
from tracelink._show.html import table
from tracelink._show.markup import Child, Markup, element
from tracelink._show.page import left_out

LONGEST_TEXT = 20_000
"""Characters of a reason that is always shown."""
SHOWN = {
    "recompile_reasons": "Why it was compiled again",
    "dynamo_graph_break_reason": "Graph break",
    "dynamo_error": "Error",
    "inductor_collective_schedule": "Collectives, in order",
}
"""Artifacts whose text is always shown."""
OUTSIDE = "outside of compilations"
MOST_MESSAGES, MOST_GUARDS = 200, 500
"""Messages of one kind, and links to guards."""
MESSAGES = {"recompile_reasons": "recompiles", "dynamo_graph_break_reason": "graph_breaks"}
"""Artifacts with messages, and the names that TORCH_LOGS has for them."""
GUARDS = "dynamo_cpp_guards_str"


class _Entry(Struct):
    """What one log has of one compile id."""

    compiles: list[Compiled] = field(default_factory=list)
    caches: list[CacheUse] = field(default_factory=list)
    artifacts: list[Artifact] = field(default_factory=list)


def compilations(read: Read, link: Link) -> Iterator[Block]:
    """The search, all compile ids, rank by rank, each closed until it is opened; and the payloads that they show."""
    chosen = embedding_of(read.logs)
    yield Element(_search(chosen))
    for rank, of_rank in read.logs.items():
        yield Element(element("h3", f"Rank {rank}", id=f"rank-{rank}"))
        for number, log in enumerate(of_rank):
            entries = _entries(read, rank, log)
            for compile_id, entry in entries.items():
                yield Element(_compilation(rank, number, log, compile_id, entry, chosen, link))
    yield from map(Element, embedded(read, chosen))


def _search(chosen: Embedding) -> Markup:
    left_out = (
        f"{counted(chosen.left_out, 'artifact')} ({size(chosen.left_out_bytes)}) are not on this page, which would be "
        "too large: tracelink compile --artifacts DIR writes all of them."
    )
    return element(
        "div",
        element("noscript", "Artifacts and the search need scripts; everything else does not."),
        element("label", "Find ", element("input", type="search", id="search", aria_describedby="found")),
        " ",
        element("small", "", id="found", role="status"),
        element("p", left_out, class_="aside") if chosen.left_out else None,
        class_="search",
    )


def messages(logs: Logs, link: Link) -> Iterator[Block]:
    """What TORCH_LOGS prints of recompilations and graph breaks, and a link to the guards of each compilation."""
    kinds = {name: defaultdict[tuple[str, str], set[int]](set) for name in MESSAGES}
    guards: dict[str, int] = {}
    for rank, of_rank in logs.items():
        for artifact in (artifact for log in of_rank for artifact in log.artifacts):
            if artifact.name in kinds and artifact.text:
                kinds[artifact.name][artifact.compile_id, artifact.text].add(rank)
            if artifact.name == GUARDS:
                guards.setdefault(artifact.compile_id, rank)
    for name, found in kinds.items():
        if found:
            shown = (
                [
                    element("p", link(min(ranks), id_), f" rank {ranks_cell(sorted(ranks))}", class_="aside"),
                    text_block(text),
                ]
                for (id_, text), ranks in islice(found.items(), MOST_MESSAGES)
            )
            more = left_out(found, MOST_MESSAGES, "more message")
            yield Details(f"{MESSAGES[name]}: {counted(len(found), 'message')}", [Element([shown, more])])
    if guards:
        some = [[link(rank, id_), " "] for id_, rank in islice(guards.items(), MOST_GUARDS)]
        yield Details(f"guards: {counted(len(guards), 'compilation')}", [Element(some)])


def _entries(read: Read, rank: int, log: CompileLog) -> Mapping[str, _Entry]:
    report = tables_of({rank: [log]}, runs=read.runs)
    entries: dict[str, _Entry] = defaultdict(_Entry)
    for one in report.compiles:
        entries[one.id].compiles.append(one)
    for use in report.caches:
        entries[use.id].caches.append(use)
    for artifact in log.artifacts:
        entries[artifact.compile_id].artifacts.append(artifact)
    return entries


def _compilation(
    rank: int, number: int, log: CompileLog, compile_id: str, entry: _Entry, chosen: Embedding, link: Link
) -> Markup:
    function = next((one.function for one in entry.compiles if one.function), "")
    statuses = list(dict.fromkeys(one.status for one in entry.compiles))
    times = [one.duration_ns for one in entry.compiles if one.duration_ns is not None]
    reason = next((one.reason for one in entry.compiles if one.recompile_of), "")
    label = element("strong", f"[{compile_id}] {function}" if compile_id else OUTSIDE)
    facts: list[Child] = [
        [element("span", status.value, class_=f"status {status.value}"), " "] for status in statuses
    ]
    details = [
        f"rank {rank}",
        duration(sum(times)) if times else None,
        f"because {first_line(reason)}" if reason else None,
        counted(len(entry.artifacts), "artifact") if entry.artifacts else None,
    ]
    return element(
        "details",
        element("summary", label, " ", facts, element("small", " · ".join(filter(None, details)))),
        (_facts(one, link) for one in entry.compiles),
        _stack(log, compile_id),
        _texts(entry.artifacts),
        _caches(entry.caches),
        _provenance(log, entry.artifacts, chosen),
        _artifacts(rank, log, entry.artifacts, chosen),
        id=anchor(rank, compile_id, number),
        class_="compilation",
    )


def _facts(one: Compiled, link: Link) -> Child:
    facts: list[tuple[str, Child]] = [
        ("status", one.status.value + (" (backward)" if one.backward else "")),
        ("defined at", element("code", f"{one.file}:{one.line}") if one.file else None),
        ("called at", element("code", one.called_at) if one.called_at else None),
        ("began", moment(one.start_ns) if one.start_ns is not None else None),
        ("took", duration(one.duration_ns) if one.duration_ns is not None else None),
        ("compiled code ran", _ran(one)),
        ("stages", ", ".join(f"{name} {duration(time)}" for name, time in one.stages.items()) or None),
        ("operations", f"{one.operations:,}" if one.operations is not None else None),
        ("guards", f"{one.guards:,}" if one.guards is not None else None),
        ("began again", counted(one.restarts, "time") if one.restarts else None),
        ("recompile of", link(one.rank, one.recompile_of) if one.recompile_of else None),
        ("because", one.reason or None),
    ]
    rows = ((element("dt", name), element("dd", value)) for name, value in facts if value is not None)
    return element("dl", rows)


def _ran(one: Compiled) -> str | None:
    if one.runtime_ns is None:
        return None
    return f"{duration(one.runtime_ns)} in the profiled time ({counted(one.runs or 0, 'run')})"


def _stack(log: CompileLog, compile_id: str) -> Child:
    stack = log.called_at.get(compile_id)
    if not stack:
        return None
    frames = (element("li", element("code", frame_in_words(frame)), title=frame.filename) for frame in stack)
    return element(
        "details",
        element("summary", f"Stack: {counted(len(stack), 'frame')}"),
        element("ol", frames, class_="stack"),
    )


def _texts(artifacts: Sequence[Artifact]) -> Child:
    counts = Counter((one.name, one.text) for one in artifacts if one.name in SHOWN and one.text)
    return [
        [element("h4", SHOWN[name] + (f" ({count} times)" if count > 1 else "")), text_block(text)]
        for (name, text), count in counts.items()
    ]


def text_block(text: str) -> Markup:
    """Text, or the texts of a JSON list, with its lines; it has no effect, and invisible characters are escaped."""
    shown = clipped(_as_lines(text), LONGEST_TEXT).replace("\t", "    ")
    lines = (printable(line) for line in shown.split("\n"))
    return Markup(f'<pre tabindex="0">{html.escape(chr(10).join(lines))}</pre>\n')


def _as_lines(text: str) -> str:
    """Reasons are a JSON list in some versions, and text in others."""
    try:
        found = json.loads(text) if text.lstrip()[:1] == "[" else text
    except (ValueError, RecursionError):
        return text
    return "\n".join(map(str, found)) if isinstance(found, list) else text


def _caches(caches: Sequence[CacheUse]) -> Child:
    return table(Table(caches, "Caches", ("cache", "state", "key")), live=False)


PRE_GRAD, POST_GRAD, CODE = "before_pre_grad_graph", "inductor_post_grad_graph", "inductor_output_code"
DUMP = "graph_dump"
"""Of AOTInductor: the longest one is the code that calls the kernels."""
SIDES = {
    PRE_GRAD: PRE_GRAD,
    POST_GRAD: POST_GRAD,
    "after_post_grad_graph": POST_GRAD,
    CODE: CODE,
    DUMP: CODE,
}
"""Which side an artifact is: versions before 2.8 and AOTInductor have other names."""


def _provenance(log: CompileLog, artifacts: Sequence[Artifact], chosen: Embedding) -> Child:
    """For each graph whose nodes inductor tracked a button that shows its graphs and its code side by side."""
    latest: dict[str, Artifact] = {}
    found: list[tuple[int, ...]] = []
    for artifact in artifacts:
        if artifact.name == MAPPINGS:
            sides = [artifact, *(latest[name] for name in (PRE_GRAD, POST_GRAD, CODE) if name in latest)]
            numbers = [chosen.number(log.source.path, one) for one in sides]
            known = tuple(number for number in numbers if number is not None)
            found += [known] if len(known) == 4 else []
        elif side := SIDES.get(artifact.name):
            before = latest.get(side)
            if before is None or artifact.name != DUMP or before.bytes < artifact.bytes:
                latest[side] = artifact
    rows = (
        element(
            "li",
            element(
                "button",
                f"Graph {place + 1}: before and after the passes, and its code",
                type="button",
                aria_expanded="false",
                data_provenance=" ".join(map(str, numbers)),
            ),
        )
        for place, numbers in enumerate(found)
    )
    return (
        [element("h4", "Where the code comes from"), element("ul", rows, class_="artifacts")]
        if found
        else None
    )


def _artifacts(rank: int, log: CompileLog, artifacts: Sequence[Artifact], chosen: Embedding) -> Child:
    if not artifacts:
        return None
    rows = (element("li", _artifact(rank, log, artifact, chosen)) for artifact in artifacts)
    return [element("h4", "Artifacts"), element("ul", rows, class_="artifacts")]


def _artifact(rank: int, log: CompileLog, artifact: Artifact, chosen: Embedding) -> Child:
    """A button that shows it, or how to get it."""
    number = chosen.number(log.source.path, artifact)
    again = f", attempt {artifact.attempt}" if artifact.attempt else ""
    about = element("small", f" {size(artifact.bytes)}{again}")
    if number is None:
        name = file_name(rank, artifact)
        return [
            artifact.name,
            about,
            element("small", f" not on this page; --artifacts DIR writes DIR/{name}"),
        ]
    cut = f"Only the first {size(MOST_OF_ONE)}; --artifacts DIR writes all of it."
    return [
        element(
            "button",
            artifact.name,
            type="button",
            aria_expanded="false",
            data_payload=number,
            data_language=language(artifact),
            data_cut=cut if artifact.bytes > MOST_OF_ONE else None,
        ),
        about,
    ]
