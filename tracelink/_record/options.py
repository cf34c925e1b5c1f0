"""What to record: steps, contents and limits."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from tracelink._model.errors import UsageError
from tracelink._model.selection import Numbers

USUAL_STEPS = "5-7"
"""Steps that are recorded by default: late enough for caches to be warm."""
GIGABYTE = 10**9
USUAL_BYTES = 4 * GIGABYTE
USUAL_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    """What a capture records."""

    output: Path
    steps: Numbers
    """Each run of consecutive steps is a window; the first step is 0, as in torch.profiler."""
    profile: bool = True
    execution_trace: bool = True
    recorder: bool = True
    compile_log: bool = True
    shapes: bool = True
    stacks: bool = False
    memory: bool = False
    modules: bool = False
    watchdog_s: float | None = None
    """Seconds without the end of a step after which recorder and stacks are dumped; None for never."""
    metrics_s: float | None = USUAL_INTERVAL_S
    """Seconds between two samples of the machine; None for none."""
    max_bytes: int = USUAL_BYTES
    """Bytes that a rank writes at most, as they are stored, up to the size of its last window."""

    @property
    def windows(self) -> tuple[tuple[int, int], ...]:
        """The first and the last step of each window."""
        return self.steps.ranges

    def as_texts(self) -> dict[str, str]:
        """All options except the folder, for the capture file."""
        names = [field.name for field in fields(self) if field.name != "output"]
        return {name: str(getattr(self, name)) for name in names}


def steps_of(steps: str | int) -> Numbers:
    """The steps that the user means: `5-7`, `5-7,20-21` or one number."""
    if isinstance(steps, bool) or not isinstance(steps, str | int):
        raise UsageError(f"steps: {steps!r} is no text", advice='Write, for example, steps="5-7".')
    return Numbers.parse(str(steps), "steps")


def checked(options: Options) -> Options:
    """The same options; a value that makes no sense is a `UsageError`."""
    for name, seconds in (("watchdog", options.watchdog_s), ("metrics", options.metrics_s)):
        if seconds is not None and not 0 < seconds < float("inf"):
            raise UsageError(
                f"{name}={seconds!r} is no number of seconds", advice=f"Write {name}=None for none."
            )
    if options.max_bytes < 1:
        raise UsageError(
            f"max_bytes={options.max_bytes!r} is no size", advice="Write, for example, 4 * 10**9."
        )
    return options
