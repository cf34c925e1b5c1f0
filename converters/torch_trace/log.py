"""A compile log decoded: phases with begin and end, compilations, artifacts; times with their zone and year."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import intern
from typing import TypeVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._io.sources import Source
from tracelink._model.columns import SECOND
from tracelink._model.errors import UnreadableError
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.records import Frame
from tracelink._model.text import counted
from tracelink._model.trace import SourceInfo
from tracelink._model.witnesses import UNKNOWN_FILE, Artifact, Compilation, CompileLog, ExportNote, Phase
from tracelink.converters.pytorch.arguments import decimal_nanoseconds
from tracelink.converters.torch_trace import schema
from tracelink.converters.torch_trace.schema import Damage, LogClock, Record, records_in

_Content = TypeVar("_Content")

FORMAT = "torch-trace"
LARGEST_KEPT = 64 << 10
"""Bytes of a payload that is held in memory."""
LONGEST_ESTIMATE = 86400 * SECOND
"""Nanoseconds of an operation: a day."""

_DIFFERS = re.compile(
    rb"(?:cuda:|index=|_DeviceGuard\(|set_device\(|get_raw_stream\(|stream|graph_)\d+|'\d+'"
    rb"|/[\w.+-]+/[\w./+-]+|# AOT ID: [^\n]*"
)
"""What differs in equal code of several ranks: devices, streams, names of groups, paths, numbers of graphs."""
_FIRST_KEY = re.compile(rb'\{\s*"([^"\\]{1,100})"\s*:')
_envelope = msgspec.json.Decoder(schema.Envelope)
_event = msgspec.json.Decoder(schema.ChromiumEvent)
_arguments = msgspec.json.Decoder(schema.PhaseArguments)
_estimates = msgspec.json.Decoder(schema.Estimates)
_execution = msgspec.json.Decoder(schema.Execution)
_object = msgspec.json.Decoder(dict[str, object])
_stacks = msgspec.json.Decoder(dict[str, list[str]])


class Decoded(Struct, frozen=True):
    """A log, and where the arguments of its phases are."""

    log: CompileLog
    places: array[int]
    """Offset and size of the payload with each phase's arguments, at twice `Phase.number`."""


def decoded(source: Source, advanced: Callable[[int], None]) -> Decoded:
    """Reads a whole log; raises `UnreadableError` if it has no record."""
    damage, decoder = Damage(), _Decoder()
    with source.open() as stream:
        for record in records_in(stream, damage, advanced):
            decoder.add(record)
        ended_early = stream.damage
    if not decoder.records:
        raise UnreadableError(
            "there is no record of a compile log", advice="Record it again with TORCH_TRACE=DIR."
        )
    return Decoded(decoder.log(source, damage, ended_early), decoder.places)


class _Open(Struct):
    """A phase that has begun."""

    name: str
    start_ns: int
    compile_id: str
    function: str
    place: tuple[int, int]
    order: int
    output_code: list[str] = field(default_factory=list)
    kernel_sources: list[str] = field(default_factory=list)
    kernel_files: list[str] = field(default_factory=list)


class _Decoder(Struct):
    """Collects what the records of one log say."""

    records: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    ranks: Counter[int] = field(default_factory=Counter)
    pids: Counter[int] = field(default_factory=Counter)
    strings: dict[int, str] = field(default_factory=dict)
    begun: dict[str, list[_Open]] = field(default_factory=dict)
    phases: list[Phase] = field(default_factory=list)
    places: array[int] = field(default_factory=lambda: array("q"))
    compilations: list[Compilation] = field(default_factory=list)
    artifacts: list[Artifact] = field(default_factory=list)
    stacks: dict[str, Sequence[schema.Frame]] = field(default_factory=dict)
    output_code: dict[str, str] = field(default_factory=dict)
    exports: list[tuple[str, schema.Export]] = field(default_factory=list)
    torch: str = ""
    clock: LogClock = field(default_factory=LogClock)
    time: int = 0
    """Of the current record, local."""
    last_event: int = 0
    first_instant: tuple[int, int] | None = None
    """Its local time and its own, which can be seconds earlier: it shows the zone if no phase does."""
    unclosed: int = 0

    def add(self, record: Record) -> None:
        """One more record."""
        self.records += 1
        self.pids[record.pid] += 1
        self.time = self.clock.continued(record.time_ns)
        if record.noise:
            self.problems["noise"] += record.noise
        envelope = _content(_envelope, record.envelope)
        if envelope is None:
            self.problems["damaged_record"] += 1
            return
        if envelope.rank is not None:
            self.ranks[envelope.rank] += 1
        digest = envelope.has_payload or ""
        if digest and not record.has_digest(digest):
            self.problems["damaged_payload"] += 1
            digest = ""
        kind = _kind(record.envelope)
        self.kinds[kind] += 1
        self._take(kind, envelope, record, digest)

    def _take(self, kind: str, envelope: schema.Envelope, record: Record, digest: str) -> None:
        if kind == schema.CHROMIUM:
            self._take_event(envelope, record)
        elif envelope.string is not None:
            text, number = envelope.string
            self.strings[number] = text
        elif kind in schema.METRICS:
            self._take_metrics(kind, envelope)
        elif envelope.has_payload:
            self._take_artifact(kind, envelope, record, digest)
        elif kind in schema.EXPORT:
            self._take_export(kind, record)
        if envelope.dynamo_start:
            self.stacks.setdefault(envelope.compile_id, envelope.dynamo_start.stack)
        if envelope.inductor_output_code and (path := envelope.inductor_output_code.filename):
            self.output_code[path] = envelope.compile_id
            if phase := self._generating(envelope.compile_id):
                phase.output_code.append(path)
                phase.kernel_files += _kernel_files(record.payload)

    def _generating(self, compile_id: str) -> _Open | None:
        """The open phase that generates code: the newest that compiles a graph, else the newest of the compilation."""
        return max(
            (one[-1] for one in self.begun.values() if one and one[-1].compile_id == compile_id),
            key=lambda one: (one.name == schema.GRAPH, one.order),
            default=None,
        )

    def _take_event(self, envelope: schema.Envelope, record: Record) -> None:
        """An end belongs to the newest begin of its name that is open: they do not nest across threads."""
        try:
            event = _event.decode(record.payload)
            arguments = _arguments.decode(event.args) if bytes(event.args) else schema.PhaseArguments()
            time = decimal_nanoseconds(bytes(event.ts).decode())
        except (msgspec.DecodeError, ValueError, RecursionError):
            self.problems["damaged_event"] += 1
            return
        self.last_event = max(self.last_event, time)
        if event.ph in (schema.BEGIN, schema.END):
            self.clock.add_event(self.time, time, len(self.artifacts))
        elif self.first_instant is None:
            self.first_instant = self.time, time
        compile_id = arguments.compile_id if arguments.compile_id not in (None, schema.NO_ID) else ""
        place = (record.payload_offset, record.payload_bytes)
        opened = _Open(event.name, time, compile_id or "", arguments.fn_name or "", place, self.records)
        if event.ph == schema.BEGIN:
            self.begun.setdefault(event.name, []).append(opened)
        elif event.ph == schema.END and self.begun.get(event.name):
            opened = self.begun[event.name].pop()
            self._add_phase(opened, time, place, cache_key=arguments.key or "")
        elif event.ph == schema.END:
            self.problems["end_without_begin"] += 1
        else:
            self._add_phase(opened, time, place, instant=True)

    def _add_phase(
        self,
        opened: _Open,
        end_ns: int | None,
        place: tuple[int, int],
        *,
        instant: bool = False,
        cache_key: str = "",
    ) -> None:
        number = len(self.places) // 2
        self.places.extend(place)
        self.phases.append(
            Phase(
                intern(opened.name),
                opened.start_ns,
                end_ns,
                intern(opened.compile_id),
                intern(opened.function),
                number,
                instant,
                cache_key,
                tuple(opened.output_code),
                tuple(opened.kernel_sources),
                tuple(opened.kernel_files),
            )
        )

    def _take_metrics(self, kind: str, envelope: schema.Envelope) -> None:
        metrics = (
            envelope.compilation_metrics
            or envelope.bwd_compilation_metrics
            or envelope.compilation_metrics_runtime
        )
        if metrics and kind != "compilation_metrics_runtime":
            self.compilations.append(_compilation(metrics, envelope, backward=kind.startswith("bwd")))

    def _take_export(self, kind: str, record: Record) -> None:
        try:
            found = msgspec.json.decode(record.envelope, type=dict[str, msgspec.Raw])[kind]
            self.exports.append((schema.EXPORT[kind], msgspec.json.decode(found, type=schema.Export)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.problems["damaged_record"] += 1

    def _take_artifact(self, kind: str, envelope: schema.Envelope, record: Record, digest: str) -> None:
        name = envelope.artifact.name if envelope.artifact else kind
        text = content = ""
        if name == schema.ESTIMATES:
            text, content = _estimated(record.payload)
        elif name == schema.EXECUTION:
            text = _executed(record.payload)
        elif name in schema.CACHES:
            text = _cache_key(record.payload)
        elif name in schema.KEPT and len(record.payload) <= LARGEST_KEPT:
            text = record.payload.decode("utf-8", "replace")
        if name == schema.KERNEL_STACKS and (phase := self._generating(envelope.compile_id)):
            phase.kernel_sources += _kernel_sources(record.payload)
        if name == schema.VERSION:
            self.torch = _version(record.payload) or self.torch
        self.artifacts.append(
            Artifact(
                intern(name),
                intern(envelope.compile_id),
                envelope.attempt or 0,
                self.time,
                record.payload_offset,
                record.payload_bytes,
                text,
                digest,
                content_of(record.payload) if digest and name in schema.COMPARED else content,
            )
        )

    def log(self, source: Source, damage: Damage, ended_early: str) -> CompileLog:
        """All of it, with times since 1970."""
        for opened in sorted(
            (one for many in self.begun.values() for one in many), key=lambda one: one.order
        ):
            self.unclosed += 1
            self._add_phase(opened, None, opened.place)
        if not self.clock.stretches and self.first_instant:
            latest = self.clock.latest
            self.clock.add_event(*self.first_instant, 0)
            self.clock.latest = max(latest, self.clock.latest)
        zone_known = self.clock.settle(source)
        phases = sorted(self.phases, key=lambda phase: phase.start_ns)
        last_ns = max(self.last_event, self.clock.end_ns)
        starts = [phase.start_ns for phase in phases]
        ((pid, _),) = self.pids.most_common(1)
        info = SourceInfo(
            path=source.path,
            format=FORMAT,
            version=self.torch,
            rank=self.ranks.most_common(1)[0][0] if self.ranks else None,
            pid=pid,
            events=len(phases),
            records=self.records,
            bytes=source.bytes,
            start_ns=min(starts, default=None),
            end_ns=last_ns,
            local_time_ns=min(starts) - self.clock.behind_utc if starts and zone_known else None,
        )
        return CompileLog(
            info,
            self.torch,
            phases,
            self.compilations,
            self._artifacts(),
            {key: self._frames(stack) for key, stack in self.stacks.items()},
            self.strings,
            self._unnamed_files(),
            self.output_code,
            dict(self.kinds),
            last_ns,
            list(self._findings(source, damage, ended_early, zone_known=zone_known)),
            [self._export(what, found) for what, found in self.exports],
        )

    def _export(self, what: str, found: schema.Export) -> ExportNote:
        about = f"{found.expr} is {found.result}" if found.expr and found.result else found.expr or found.op
        return ExportNote(what, about, found.reason, self._frames(found.user_stack or found.stack))

    def _artifacts(self) -> list[Artifact]:
        """With times since 1970; each replaces its own, because there can be many."""
        for index, artifact in enumerate(self.artifacts):
            self.artifacts[index] = replace(artifact, time_ns=self.clock.since_1970(artifact.time_ns, index))
        return self.artifacts

    def _frames(self, stack: Iterable[schema.Frame]) -> list[Frame]:
        return [
            Frame(frame.name, self.strings.get(frame.filename, UNKNOWN_FILE), frame.line) for frame in stack
        ]

    def _unnamed_files(self) -> dict[str, list[int]]:
        numbers = {key: [frame.filename for frame in stack] for key, stack in self.stacks.items()}
        return {key: files for key, files in numbers.items() if not self.strings.keys() >= set(files)}

    def _findings(
        self, source: Source, damage: Damage, ended_early: str, *, zone_known: bool
    ) -> Iterable[Finding]:
        def finding(reason: str, text: str, count: int = 1, severity: Severity = Severity.WARNING) -> Finding:
            return Finding(severity, reason, f"{source.path}: {text}", count, source=source.path)

        for reason, count in sorted(self.problems.items()):
            thing, one, several, rest = PROBLEMS[reason]
            yield finding(reason, f"{counted(count, thing)} {one if count == 1 else several} {rest}", count)
        if damage.before:
            yield finding(
                "before_first_record", f"{damage.before} bytes before the first record are no record."
            )
        if damage.cut or ended_early:
            why = f"it ends within a record{f' ({ended_early})' if ended_early else ''}"
            yield Truncated(source.path, why, self.records, "record").finding()
        if len(self.ranks) > 1:
            yield finding(
                "several_ranks",
                f"its records name {len(self.ranks)} ranks. All are read as the most frequent one; set another with "
                f"--rank {source.path}=N.",
            )
        if not zone_known:
            yield finding(
                "no_time_zone", "no event shows the time zone and the year; times are taken as UTC."
            )


PROBLEMS: Mapping[str, tuple[str, str, str, str]] = {
    "noise": ("line", "is", "are", "of another program, between records: skipped."),
    "damaged_record": ("record", "has", "have", "damaged JSON: skipped."),
    "damaged_payload": ("payload", "differs", "differ", "from the checksum: damaged or incomplete."),
    "damaged_event": ("chromium event", "has", "have", "damaged JSON: skipped."),
    "end_without_begin": ("phase end", "has", "have", "no begin: skipped."),
}


def _kind(envelope: bytes) -> str:
    """The key of a record that is not common to all."""
    match = _FIRST_KEY.match(envelope)
    if match and (first := match[1].decode("utf-8", "replace")) not in schema.COMMON:
        return first
    keys = msgspec.json.decode(envelope, type=dict[str, msgspec.Raw])
    return next((key for key in keys if key not in schema.COMMON), "")


def content_of(payload: bytes) -> str:
    """A digest of code, without what differs on each rank."""
    return hashlib.md5(_DIFFERS.sub(b"", payload), usedforsecurity=False).hexdigest()


def _content(decoder: msgspec.json.Decoder[_Content], payload: bytes) -> _Content | None:
    """Returns what a payload contains; None if it is damaged."""
    try:
        return decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _cache_key(payload: bytes) -> str:
    """The key; what else there is can be the text of a whole graph."""
    found = _content(_arguments, payload)
    return (found and found.key) or ""


def _estimated(payload: bytes) -> tuple[str, str]:
    """`operations collectives ns ns-of-collectives` of a graph, and a digest of its operations and tensors."""
    found = _content(_estimates, payload)
    if not found:
        return "", ""
    times = [(one.type == schema.COLLECTIVE, _whole(one.estimated_runtime_ns)) for one in found.ops]
    total, collectives = sum(time for _, time in times), sum(time for is_one, time in times if is_one)
    text = f"{len(times)} {sum(is_one for is_one, _ in times)} {total} {collectives}"
    tensors = [(one.name, one.type, bytes(one.outputs)) for one in found.ops]
    return text, hashlib.md5(repr(tensors).encode(), usedforsecurity=False).hexdigest()


def _whole(time: float | None) -> int:
    """A time in whole nanoseconds; 0 if it is none that can be."""
    return round(time) if time is not None and 0 <= time <= LONGEST_ESTIMATE else 0


def _executed(payload: bytes) -> str:
    """The compile ids of graphs that ran, in order."""
    found = _content(_execution, payload)
    return " ".join(one.compile_id or "?" for one in found.graph_execution_order) if found else ""


def _version(payload: bytes) -> str:
    found = (_content(_object, payload) or {}).get("pytorch_version")
    return found if isinstance(found, str) else ""


_STACK_FRAME = re.compile(r'File "(?:[^"\n]*[/\\])?([^"\n]*)", line (\d+), in ([^\n]+)')


def _kernel_sources(payload: bytes) -> list[str]:
    """`cpp_fused_gelu_1: train.py:15 (forward)` for each kernel, from the innermost frames of its stacks."""
    found = []
    for kernel, texts in (_content(_stacks, payload) or {}).items():
        frames = [frame[-1] for text in texts if (frame := _STACK_FRAME.findall(text))]
        lines = [f"{file}:{line} ({function})" for file, line, function in frames]
        if lines:
            found.append(f"{kernel.partition(':')[0]}: {', '.join(dict.fromkeys(lines))}")
    return found


_KERNEL_PATH = b"# kernel path: "
_KERNEL = re.compile(rb"^(?:# kernel path: ([^\n]{1,4096})|(\w{1,1000}) = async_compile\.)", re.MULTILINE)


def _kernel_files(code: bytes) -> list[str]:
    """`triton_poi_fused_add_0: cxyz….py` for each kernel of which generated code states the file in a comment."""
    if _KERNEL_PATH not in code:
        return []
    found, path = [], b""
    for match in _KERNEL.finditer(code):
        if match[2] and path:
            file = path.strip().replace(b"\\", b"/").rpartition(b"/")[2]
            found.append(f"{match[2].decode()}: {file.decode('utf-8', 'replace')}")
        path = match[1] or b""
    return found


MICROSECOND = 1000
LONGEST_ATTEMPTS = 365 * 86400.0
"""Seconds, as a bound for damaged numbers."""
STAGES: Mapping[str, str] = {
    "dynamo": "dynamo_cumulative_compile_time_us",
    "aot_autograd": "aot_autograd_cumulative_compile_time_us",
    "inductor": "inductor_cumulative_compile_time_us",
    "code_gen": "inductor_code_gen_cumulative_compile_time_us",
    "backward": "backward_cumulative_compile_time_us",
    "triton": "triton_compile_time_us",
    "gc": "gc_time_us",
    "logging": "structured_logging_overhead_us",
}


def _compilation(metrics: schema.Metrics, envelope: schema.Envelope, *, backward: bool) -> Compilation:
    start = metrics.start_time_us
    if start is None and metrics.start_time is not None:
        start = round(metrics.start_time * 1_000_000)
    duration = metrics.duration_us
    if duration is None and metrics.entire_frame_compile_time_s is not None:
        duration = round(metrics.entire_frame_compile_time_s * 1_000_000)
    restarts = metrics.restart_reasons or []
    stages = {name: getattr(metrics, key) for name, key in STAGES.items()}
    return Compilation(
        metrics.compile_id or envelope.compile_id,
        envelope.attempt or 0,
        None if start is None else start * MICROSECOND,
        None if duration is None else duration * MICROSECOND,
        backward or metrics.is_forward is False,
        metrics.co_name or "",
        metrics.co_filename or "",
        metrics.co_firstlineno,
        metrics.graph_op_count,
        metrics.guard_count,
        metrics.fail_type or "",
        metrics.fail_reason or "",
        metrics.fail_user_frame_filename or "",
        metrics.fail_user_frame_lineno,
        _reasons(restarts),
        metrics.recompile_reason or "",
        {name: time * MICROSECOND for name, time in stages.items() if time},
        round(min(max(metrics.dynamo_time_before_restart_s or 0.0, 0.0), LONGEST_ATTEMPTS) * SECOND),
    )


def _reasons(restarts: str | list[str]) -> Sequence[str]:
    """A list, or its JSON text."""
    if not isinstance(restarts, str):
        return restarts
    try:
        return msgspec.json.decode(restarts, type=list[str])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return [restarts]
