"""What a compile log contains: phases, compilations, artifacts, and where functions were called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tracelink.model.errors import Finding
from tracelink.model.records import Frame
from tracelink.model.trace import SourceInfo

UNKNOWN_FILE = "(unknown)"


@dataclass(frozen=True, slots=True)
class Phase:
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


@dataclass(frozen=True, slots=True)
class Compilation:
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


@dataclass(frozen=True, slots=True)
class Artifact:
    """A record with a payload."""

    name: str
    compile_id: str
    attempt: int
    time_ns: int
    offset: int
    """Of its payload in the uncompressed file; its lines are indented by a tab."""
    bytes: int
    text: str = ""
    """Its payload, if it is small and tables need it; of a cache's answer the key."""
    digest: str = ""
    """Of its payload: equal payloads have the same one; empty if it is damaged."""
    content: str = ""
    """Of graphs and generated code a digest without what differs on each rank, such as devices and paths."""


@dataclass(frozen=True, slots=True)
class CompileLog:
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

    def function_of(self, compile_id: str) -> str:
        """The function that a compilation compiles, also if it has no end; empty if unknown."""
        frame = compile_id.rpartition("/")[0]
        names = (one.function for one in self.compilations if one.compile_id.rpartition("/")[0] == frame)
        stack = self.called_at.get(compile_id)
        return (next(filter(None, names), "") if frame else "") or (stack[-1].name if stack else "")
