"""What the records of a compile log contain: the only place with their field names."""

from __future__ import annotations

import msgspec

COMMON = frozenset(
    {
        *("rank", "compiled_autograd_id", "frame_id", "frame_compile_id", "attempt", "has_payload", "stack"),
        *("subgraph_name", "severity", "timestamp", "pathname", "thread"),
    }
)
"""Keys that any record can have; the other one is its kind."""

STRING = "str"
CHROMIUM = "chromium_event"
START = "dynamo_start"
OUTPUT_CODE = "inductor_output_code"
METRICS = ("compilation_metrics", "bwd_compilation_metrics", "compilation_metrics_runtime")

# Artifacts whose payloads the tables need.

GRAPH_BREAK = "dynamo_graph_break_reason"
ERROR = "dynamo_error"
RECOMPILE = "recompile_reasons"
VERSION = "torch_version"
SCHEDULE = "inductor_collective_schedule"
KERNEL_STACKS = "inductor_provenance_tracking_kernel_stack_traces"
"""For each kernel of a graph, as `name:number`, the stacks of the operations that it computes."""
ESTIMATES = "inductor_runtime_and_tensor_meta"
"""For each operation of a graph what inductor thinks that it takes, and the tensors that it makes."""
COLLECTIVE = "collective"
"""The type of its operations that communicate."""
EXECUTION = "graph_execution"
"""The compile ids of the graphs that ran, in order."""
CACHES = frozenset(
    f"{cache}_cache_{state}" for cache in ("fx_graph", "aotautograd") for state in ("hit", "miss", "bypass")
)
COMPARED = frozenset({"dynamo_output_graph", OUTPUT_CODE})
"""What is compared between ranks: both are recorded whether caches hit or not."""
KEPT = frozenset({GRAPH_BREAK, ERROR, RECOMPILE, VERSION, SCHEDULE})

EXPORT = {
    "guard_added": "A guard was added",
    "propagate_real_tensors_provenance": "The value of the example was used",
    "propagate_real_tensors": "The value of the example was used",
    "guard_on_data_dependent_error": "Export failed: the value depends on data",
    "missing_fake_kernel": "The operator has no fake kernel",
    "mismatched_fake_kernel": "The fake kernel of the operator differs from the operator",
}
"""Kinds of records of draft export, and what they say."""

BEGIN, END, INSTANT = "B", "E", "i"
GRAPH = "inductor_compile"
"""The phase that compiles one graph."""
NO_ID = "None"
"""The compile id of work outside of a compilation."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A frame of a Python stack; its file is the number of a `str` record."""

    line: int = 0
    name: str = ""
    filename: int = -1


class Start(msgspec.Struct, frozen=True):
    """What `dynamo_start` contains: where the function was called."""

    stack: list[Frame] = []


class Artifact(msgspec.Struct, frozen=True, gc=False):
    """Which artifact a payload is."""

    name: str = ""
    encoding: str = ""


class OutputCode(msgspec.Struct, frozen=True, gc=False):
    """The file with the generated code."""

    filename: str | None = None
    file_path: str | None = None


class Estimated(msgspec.Struct, frozen=True, gc=False):
    """One operation of a graph; `outputs` are tensors with shape, stride and type."""

    name: str | None = None
    type: str | None = None
    estimated_runtime_ns: float | None = None
    outputs: msgspec.Raw = msgspec.Raw()


class Estimates(msgspec.Struct, frozen=True):
    """The payload with the operations of a graph."""

    ops: list[Estimated] = []


class Executed(msgspec.Struct, frozen=True, gc=False):
    """One graph that ran."""

    compile_id: str | None = None


class Execution(msgspec.Struct, frozen=True):
    """The payload with the graphs that ran, in order."""

    graph_execution_order: list[Executed] = []


class Export(msgspec.Struct, frozen=True):
    """What draft export met in the program."""

    expr: str = ""
    result: str = ""
    op: str = ""
    reason: str = ""
    user_stack: list[Frame] = []
    stack: list[Frame] = []


class Metrics(msgspec.Struct, frozen=True):
    """What is known at the end of a compilation. Old versions record times in seconds only."""

    compile_id: str | None = None
    co_name: str | None = None
    co_filename: str | None = None
    co_firstlineno: int | None = None
    start_time: float | None = None
    start_time_us: int | None = None
    end_time_us: int | None = None
    duration_us: int | None = None
    entire_frame_compile_time_s: float | None = None
    dynamo_cumulative_compile_time_us: int | None = None
    aot_autograd_cumulative_compile_time_us: int | None = None
    inductor_cumulative_compile_time_us: int | None = None
    inductor_code_gen_cumulative_compile_time_us: int | None = None
    backward_cumulative_compile_time_us: int | None = None
    triton_compile_time_us: int | None = None
    gc_time_us: int | None = None
    structured_logging_overhead_us: int | None = None
    graph_op_count: int | None = None
    graph_node_count: int | None = None
    graph_input_count: int | None = None
    guard_count: int | None = None
    cache_size: int | None = None
    fail_type: str | None = None
    fail_reason: str | None = None
    fail_user_frame_filename: str | None = None
    fail_user_frame_lineno: int | None = None
    restart_reasons: str | list[str] | None = None
    dynamo_time_before_restart_s: float | None = None
    recompile_reason: str | None = None
    is_forward: bool | None = None
    is_runtime: bool | None = None


class Envelope(msgspec.Struct, frozen=True):
    """The JSON at the end of the first line of a record: ids, and one key of a kind that is read."""

    rank: int | None = None
    compiled_autograd_id: int | None = None
    frame_id: int | None = None
    frame_compile_id: int | None = None
    attempt: int | None = None
    has_payload: str | None = None
    string: tuple[str, int] | None = msgspec.field(name=STRING, default=None)
    artifact: Artifact | None = None
    dynamo_start: Start | None = None
    inductor_output_code: OutputCode | None = None
    compilation_metrics: Metrics | None = None
    bwd_compilation_metrics: Metrics | None = None
    compilation_metrics_runtime: Metrics | None = None

    @property
    def compile_id(self) -> str:
        """`1/5`, `!0/1/5`, or `!0`; empty outside of a compilation."""
        autograd = "" if self.compiled_autograd_id is None else f"!{self.compiled_autograd_id}"
        frame = "" if self.frame_id is None else f"{self.frame_id}/{self.frame_compile_id or 0}"
        return "/".join(filter(None, (autograd, frame)))


class ChromiumEvent(msgspec.Struct, frozen=True, gc=False):
    """The payload of `chromium_event`: the begin or the end of a phase, or an instant."""

    name: str = ""
    ts: msgspec.Raw = msgspec.Raw()
    ph: str = ""
    args: msgspec.Raw = msgspec.Raw()


class PhaseArguments(msgspec.Struct, frozen=True, gc=False):
    """The arguments of a phase that the tables need."""

    compile_id: str | None = None
    fn_name: str | None = None
    key: str | None = None
    """Of the cache that was asked for a graph, at the end of the phase."""
