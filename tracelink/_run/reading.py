"""The options of reading, declared once: functions that read take them as keywords, commands as flags."""

# Annotations are values here: the command line and the documentation read them.

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, get_args

from msgspec import Meta, Struct

from tracelink._io.engine import Engine
from tracelink._io.sources import Discovery, Paths, discover_inputs
from tracelink._model.errors import UsageError, did_you_mean
from tracelink._model.fields import Doc
from tracelink._model.selection import KINDS, Numbers, Selection, Window, words
from tracelink._run import EngineChoice, Watch, engine_for

if TYPE_CHECKING:
    from tracelink._model.clock import Clocks
    from tracelink._model.metrics import Metrics


class Flag(Struct, frozen=True):
    """How the command line takes an option of reading, whose text is its help."""

    names: tuple[str, ...]
    metavar: str
    heading: str = ""
    """The heading under which the help lists it; empty for the most common ones."""
    parse: Callable[[str, str], Any] | None = None
    """Makes the value of a text, for the flag of this name; raises `UsageError`."""
    collect: Callable[[Sequence[Any]], Any] | None = None
    """Makes the value of all that were given, if the flag can be given several times."""
    field: str = ""
    """The argument of the option's class, if several flags make one value."""
    text: str = ""
    """The help of such a flag."""
    example: str = ""
    """A value, for the help."""
    choices: Sequence[str] = ()
    """Words that the value can consist of, for completion."""
    default: str | None = None


INPUTS, METRICS, WORK = "Inputs", "Metrics (sampled by other programs)", "Large jobs"
SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*(MB|GB|TB)", re.IGNORECASE)
UNIT = {"MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_size(text: str, flag: str) -> int:
    """Returns the bytes of a size such as 200GB."""
    found = SIZE.fullmatch(text.strip())
    if not found:
        raise UsageError(
            f"{flag}: {text!r} is not a size, such as 200GB", advice="Write a number with MB, GB or TB."
        )
    return int(float(found[1]) * UNIT[found[2].upper()])


def parse_rank(text: str, flag: str) -> tuple[str, int]:
    """Returns a file and its rank."""
    file, _, rank = text.rpartition("=")
    if not (file and rank.isascii() and rank.isdigit()):
        raise UsageError(
            f"{flag}: {text!r} is not of the form FILE=N",
            advice=f"Write, for example, --rank trace.json=3; to read only some ranks, use --ranks {text}"
            if text[:1].isdigit()
            else "Write, for example, --rank trace.json=3",
        )
    return file, int(rank)


RANKS_OR_RANK = "--ranks selects ranks, such as 0-7; --rank FILE=N sets the rank of a file"


def parse_ranks(text: str, flag: str) -> Numbers:
    """Returns the ranks of a list such as 0-7,64."""
    if "=" in text:
        raise UsageError(RANKS_OR_RANK, advice=f"Did you mean --rank {text}?")
    return Numbers.parse(text, flag)


class InputOptions(TypedDict, total=False):
    """What is read, and as what."""

    et: Annotated[Paths, Doc("Execution traces."), Flag(("-e", "--et"), "PATH", INPUTS, collect=tuple)]
    kineto: Annotated[Paths, Doc("Kineto profiles."), Flag(("-k", "--kineto"), "PATH", INPUTS, collect=tuple)]
    fr: Annotated[
        Paths,
        Doc("Flight-recorder dumps, or directories of dumps."),
        Flag(("-f", "--fr"), "PATH", INPUTS, collect=tuple),
    ]
    rank_of: Annotated[
        Mapping[str, int] | None,
        Doc("The rank of a file, by its path or name; it overrules what its content and name say."),
        Flag(("-r", "--rank"), "FILE=N", INPUTS, parse_rank, dict),
    ]
    max_unpacked: Annotated[
        int | None,
        Doc("Refuse an input with more uncompressed bytes. Default: 64 GB."),
        Flag(("--max-unpacked",), "SIZE", INPUTS, parse_size, example="200GB"),
    ]
    include: Annotated[
        Sequence[str],
        Doc("Read what is left out by default: osrt (calls of the operating system in Nsight Systems)."),
        Flag(("--include",), "PART", INPUTS, collect=tuple),
    ]
    metrics: Annotated[
        "Metrics | None",
        Doc(
            "Zone, start and interval of metrics that do not contain them, and ranks of devices; see `Metrics`."
        ),
        Flag(
            ("--map",),
            "DEVICE=RANK,...",
            METRICS,
            collect=tuple,
            field="map",
            text="Ranks of GPUs by index, host and index, or UUID.",
            example="0-7=8-15, node1:0=3 or GPU-1bdee8b4=3",
        ),
        Flag(
            ("--tz",),
            "ZONE",
            METRICS,
            field="tz",
            text="The time zone of local times.",
            example="Europe/Berlin or +02:00",
        ),
        Flag(
            ("--metrics-start",),
            "TIME",
            METRICS,
            field="start",
            text="If there are no times: the time of the first sample.",
            example="'2026-11-18 06:42:10'",
        ),
        Flag(
            ("--interval",),
            "SECONDS",
            METRICS,
            field="interval",
            text="If there are no times: the time between two samples.",
            example="0.5",
        ),
    ]


class SelectOptions(TypedDict, total=False):
    """The part of a job that is wanted."""

    ranks: Annotated[
        Numbers | str | Iterable[int] | None,
        Doc("Only these ranks."),
        Flag(("--ranks",), "N-M,...", parse=parse_ranks, example="0-7,64"),
    ]
    steps: Annotated[
        Numbers | str | Iterable[int] | None,
        Doc(
            "Only these training steps, and the device work that they launch. A step is an annotation such as "
            "ProfilerStep#3 or step 3."
        ),
        Flag(("--steps",), "N-M,...", parse=Numbers.parse, example="3-5,7"),
    ]
    window: Annotated[
        Window | str | None,
        Doc(
            "Only events that overlap this time range: times after the first event that is read, such as 2.5s..3.1s, "
            "800ms.. or ..2min, or times in UTC, such as '2025-03-01 08:06:00.5..'"
        ),
        Flag(("--window",), "FROM..TO", parse=Window.parse),
    ]
    only: Annotated[
        str | Iterable[str] | None,
        Doc(
            f"Only these kinds of events: {', '.join(KINDS)}. The kind collectives contains all events of collectives "
            "and messages."
        ),
        Flag(("--only",), "KIND,...", parse=words, choices=tuple(KINDS)),
    ]


class ReadOptions(InputOptions, SelectOptions, total=False):
    """What is read, as what, which part of it, and where the work runs: keywords of `Job` and all that reads."""

    clock: Annotated[
        "str | os.PathLike[str] | Clocks",
        Doc(
            "How the clocks of ranks are corrected: host (ranks of one host share a clock), collectives (every rank "
            "has its own), none (no correction), a file written by `tracelink clocks --json`, or in Python known "
            "`Clocks`. Default: host."
        ),
        Flag(
            ("--clock",),
            "none|host|collectives|FILE",
            choices=("none", "host", "collectives"),
            default="host",
        ),
    ]
    jobs: Annotated[
        int | None,
        Doc("The most processes that work at once. Default: one for each core."),
        Flag(("-j", "--jobs"), "N", WORK),
    ]
    engine: Annotated[
        EngineChoice,
        Doc(
            "Where the work runs: `dask` starts workers of Dask on this machine, an address names its scheduler, "
            "and in Python also a `distributed.Client`. Default: processes of this machine."
        ),
        Flag(("--engine",), "dask|dask://HOST:PORT", WORK),
    ]
    watch: Annotated[
        Watch | None, Doc("Is called with the total number of bytes processed so far, as work goes on.")
    ]


def text_of(option: str) -> str:
    """Returns what an option of reading is."""
    return next(str(one.description) for one in _metadata(option) if isinstance(one, Meta))


def flags_of(option: str) -> list[Flag]:
    """Returns the flags by which the command line takes an option of reading."""
    return [one for one in _metadata(option) if isinstance(one, Flag)]


def _metadata(option: str) -> tuple[Any, ...]:
    return get_args(ReadOptions.__annotations__[option])[1:]


ReadOptions.__doc__ = "\n".join(
    [
        f"{ReadOptions.__doc__}\n\n    Args:",
        *(f"        {name}: {text_of(name)}" for name in ReadOptions.__annotations__),
    ]
)


def inputs_of(paths: Paths, options: ReadOptions, *, all_named: bool = True) -> Discovery:
    """Returns the sources that the options name.

    Args:
        paths: Files, directories, globs and archives.
        options: The keywords of a function.
        all_named: Whether `rank_of` names only these files.

    Raises:
        UsageError: A path does not exist.
        TypeError: There is no such option.
    """
    _check(options)
    inputs: Any = {name: value for name, value in options.items() if name in _INPUTS}
    return discover_inputs(paths, **inputs, all_named=all_named)


def engine_of(options: ReadOptions) -> Engine:
    """Returns where the work runs.

    Args:
        options: The keywords of a function.

    Raises:
        UsageError: There is no such engine.
        TypeError: There is no such option.
    """
    _check(options)
    return engine_for(options.get("jobs"), options.get("watch"), options.get("engine"))


def selection_of(options: Mapping[str, Any]) -> Selection:
    """Returns the part of the job that is wanted.

    Args:
        options: The keywords of a function.

    Raises:
        UsageError: A value is malformed.
    """
    return Selection(**{name: options[name] for name in SELECTING if name in options})


def check_whole(options: ReadOptions, why: str) -> None:
    """Raises `UsageError` if the options select a part, or correct clocks, of what is only read as a whole.

    Args:
        options: The keywords of a function.
        why: What is read as a whole, such as "who waits for whom is seen in the dumps of all ranks".
    """
    _check(options)
    for name in (*SELECTING, "clock"):
        if options.get(name) is not None:
            raise UsageError(f"there is no {name} here: {why}", advice=f"Leave out {name}.")


_INPUTS, SELECTING = InputOptions.__annotations__, tuple(SelectOptions.__annotations__)
_KNOWN = ReadOptions.__annotations__


def _check(options: ReadOptions) -> None:
    if unknown := next((name for name in options if name not in _KNOWN), ""):
        raise TypeError(f"there is no option {unknown!r}. {did_you_mean(unknown, _KNOWN)}".strip())
