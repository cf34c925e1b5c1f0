"""What a compile log contains: phases, compilations, artifacts, and where functions were called."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct, field

from tracelink._model.findings import Finding
from tracelink._model.records import Frame
from tracelink._model.trace import SourceInfo

UNKNOWN_FILE = "(unknown)"
RECOMPILE_REASONS = "recompile_reasons"
"""The artifact that states why a function is compiled again, at the start of the compilation."""

_GUARD = re.compile(r"\s*(?:([!\d/_]+): )?([^\n]*)")
_SOURCE_OF_GUARD = re.compile(r"\s+# .*")
_LINE_OF_STACK = re.compile(r'File "([^"\n]+)", line (\d{1,9}), in ([^\n]+)')
_LINE_OF_GUARD = re.compile(r"# (\S+):(\d{1,9}) in (\S+)")


class Phase(Struct, frozen=True):
    """Work of the compiler from begin to end, or an instant."""

    name: str
    start_ns: int
    end_ns: int | None
    """None if the log ends before it."""
    compile_id: str
    """`1/5`; empty outside of a compilation."""
    function: str = ""
    """The function of the compiler that does it."""
    number: int = 0
    """The number of its arguments among those of the log."""
    instant: bool = False
    cache_key: str = ""
    """The key by which a cache has the graph that was compiled."""
    output_code: tuple[str, ...] = ()
    """Paths of the files with generated code."""
    kernel_sources: tuple[str, ...] = ()
    """Generated kernels and the lines of the program that they compute: `cpp_fused_gelu_1: train.py:15 (forward)`."""
    kernel_files: tuple[str, ...] = ()
    """Generated kernels with files of their own: `triton_poi_fused_add_0: cxyz….py`."""


class Compilation(Struct, frozen=True):
    """A compilation that came to its end, or that of a backward graph."""

    compile_id: str
    attempt: int
    start_ns: int | None
    duration_ns: int | None
    backward: bool
    function: str = ""
    file: str = ""
    line: int | None = None
    operations: int | None = None
    guards: int | None = None
    fail_type: str = ""
    fail_reason: str = ""
    fail_file: str = ""
    fail_line: int | None = None
    restarts: Sequence[str] = ()
    """Why it began again: graph breaks, mostly."""
    recompile_reason: str = ""
    stages: Mapping[str, int] = field(default_factory=dict)
    """Nanoseconds of each stage: dynamo, aot_autograd, inductor, backward, triton, gc, logging."""
    discarded_ns: int = 0
    """Of attempts before the last one."""


class FailedGuard(Struct, frozen=True):
    """Why a function was compiled again."""

    compile_id: str
    """The compilation whose guard failed; empty if it is not stated."""
    text: str
    """`s.i == 0`, or a sentence such as `tensor 'x' size mismatch at index 0. expected 4, actual 6`."""
    frame: Frame | None
    """The line of the program that needs the guard; None if it is not stated."""


class Artifact(Struct, frozen=True):
    """A record with a payload."""

    name: str
    compile_id: str
    attempt: int
    time_ns: int
    offset: int
    """Of its payload in the uncompressed file; its lines are indented by a tab."""
    bytes: int
    text: str = ""
    """Its payload, if it is small and tables need it; of a cache's answer the key, of estimates their totals, and of an
    order of execution the compile ids."""
    digest: str = ""
    """Of its payload: equal payloads have the same one; empty if it is damaged."""
    content: str = ""
    """Of graphs and generated code a digest without what differs on each rank, such as devices and paths."""


class ExportNote(Struct, frozen=True):
    """What draft export met in the program."""

    what: str
    about: str
    """The expression and the value that it has with the example, or the operator."""
    reason: str
    stack: Sequence[Frame] = ()


class CompileLog(Struct, frozen=True):
    """One log: what a process compiled, and what it was compiling when the log ends."""

    source: SourceInfo
    torch: str
    """The version of torch."""
    phases: Sequence[Phase]
    """Sorted by time."""
    compilations: Sequence[Compilation]
    """In the order of their ends."""
    artifacts: Sequence[Artifact]
    """In the order of the log."""
    called_at: Mapping[str, Sequence[Frame]] = field(default_factory=dict)
    """For each compile id the stack that called the function, outermost first."""
    strings: Mapping[int, str] = field(default_factory=dict)
    """Names of files by their numbers in records; a forked process uses those of its parent."""
    unnamed_files: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """For each compile id whose stack has a file without a name in the log, the numbers of all files of the stack."""
    output_code: Mapping[str, str] = field(default_factory=dict)
    """For each file with generated code its compile id."""
    kinds: Mapping[str, int] = field(default_factory=dict)
    """How many records there are of each kind."""
    last_ns: int | None = None
    """The time of the last record."""
    findings: Sequence[Finding] = ()
    exports: Sequence[ExportNote] = ()
    """In the order of the log."""

    def function_of(self, compile_id: str) -> str:
        """The function that a compilation compiles, also if it has no end; empty if unknown."""
        frame = compile_id.rpartition("/")[0]
        names = (one.function for one in self.compilations if one.compile_id.rpartition("/")[0] == frame)
        stack = self.called_at.get(compile_id)
        return (next(filter(None, names), "") if frame else "") or (stack[-1].name if stack else "")

    def failed_guard(self, compile_id: str) -> FailedGuard | None:
        """Why a function is compiled again; None if the log does not state it."""
        reasons = (
            one.text
            for one in self.artifacts
            if one.name == RECOMPILE_REASONS and one.compile_id == compile_id
        )
        return failed_guard(next(filter(None, reasons), ""))


def failed_guard(reason: str) -> FailedGuard | None:
    """The guard in a reason, which is `1/0: s.i == 0  # if s.i == 1:  # train.py:31 in step` and the stack of the user.

    Of a list of reasons, one for each version of the function, the first is that of the newest version.
    """
    if reason.lstrip().startswith("["):
        try:
            reason = next(filter(None, msgspec.json.decode(reason, type=list[str])), "")
        except msgspec.DecodeError:
            return None
    match = _GUARD.match(reason)
    text = _SOURCE_OF_GUARD.sub("", match[2]).strip() if match else ""
    if not match or not text:
        return None
    lines = _LINE_OF_STACK.findall(reason) or _LINE_OF_GUARD.findall(match[2])
    frame = Frame(lines[-1][2], lines[-1][0], int(lines[-1][1])) if lines else None
    return FailedGuard(match[1] or "", text, frame)
