"""Programs of ranks in a mini language: what each rank called, and where it stopped.

    problems({0: "a1 a2!", 1: "a1 a2!", 2: "a1"}, a=[0, 1, 2]) == ["never_joined a2 by 2, for 0 1"]

All ranks finished collective 1 of group a. Ranks 0 and 1 wait in collective 2, which rank 2 did not join.

A collective is a group (one letter) and a sequence number. After it can follow, in this order:

- `:8` its number of elements (1,024 without it), `=broadcast` its operation (all_reduce), `.Int` its dtype (Float),
  `@12` its line (dumps without one have no stacks);
- its state: none for completed, `!` scheduled, `^` started, `?` given up, and `~` retired on a backend that does not
  track states (gloo).

A message is `a>1` (sends to position 1 of group a), `a<0` (receives from position 0) or `a<*` (receives from
any rank), with size, dtype and state as above. Messages in brackets are a batch with one state:

    problems({0: "a>1 [a>1 a<1]!", 1: "a<0"}, a=[0, 1])
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from builders.dumps import diagnosis_of, journal, stack
from builders.recorder import CREATED, collective, dump, pickled, process_group
from tracelink import load
from tracelink._hang.facts.journal import Journal
from tracelink._hang.facts.model import Diagnosis
from tracelink._hang.facts.stalls import Clues
from tracelink._model.job import LinkedJob

MS = 1_000_000
COLLECTIVE = re.compile(
    r"(?P<group>[a-z])(?P<number>\d+)"
    r"(?::(?P<size>\d+))?(?:=(?P<operation>[a-z_]+))?(?:\.(?P<type>\w+))?(?:@(?P<line>\d+))?(?P<mark>[!~^?]?)"
)
MESSAGE = re.compile(
    r"(?P<group>[a-z])(?P<way>[<>])(?P<peer>\d+|\*)(?::(?P<size>\d+))?(?:\.(?P<type>\w+))?(?P<mark>[!~^?]?)"
)
CALL = re.compile(r"\[(?P<batch>[^\]]*)\](?P<mark>[!~^?]?)|(?P<single>\S+)")
STATES: dict[str, dict[str, Any]] = {
    "": {"state": "completed", "retired": True},
    "!": {"state": "scheduled", "retired": False},
    "^": {"state": "started", "retired": False},
    "?": {"state": "scheduled", "retired": True},
    "~": {"state": "scheduled", "retired": True},
}


def problems(programs: Mapping[int, str], **options: Any) -> list[str]:
    """Each problem as `never_joined a2 by 3, for 0 1 2`."""
    return [
        f"{problem.kind} {problem.group}{problem.sequence} by {_ranks(problem.culprits)}{' (tie)' * problem.tie}, "
        f"for {_ranks(problem.waiting)}"
        for problem in diagnosis_of_programs(programs, **options).problems
    ]


def diagnosis_of_programs(
    programs: Mapping[int, str], *, hung: bool | None = None, **options: Any
) -> Diagnosis:
    """The diagnosis of ranks with these programs; options are those of `dumps_of`.

    A job with unfinished calls is known to hang, unless `hung` is False.
    """
    hung = any(set(program) & set("!^~") for program in programs.values()) if hung is None else hung
    return diagnosis_of(journal_of_programs(programs, **options), clues=Clues(hung=hung))


def journal_of_programs(programs: Mapping[int, str], **options: Any) -> Journal:
    return journal(dumps_of(programs, **options))


def job_of_programs(folder: Path, programs: Mapping[int, str], **options: Any) -> LinkedJob:
    """The job of ranks with these programs; their dumps are written to the folder."""
    for rank, content in dumps_of(programs, **options).items():
        (folder / f"comm_lib_trace_rank_{rank}").write_bytes(pickled(content))
    return LinkedJob.of(load(folder))


def dumps_of(
    programs: Mapping[int, str],
    *,
    descriptions: Mapping[str, str] | None = None,
    forgotten: Mapping[int, int] | None = None,
    **groups: Sequence[int],
) -> dict[int, dict[str, Any]]:
    """The dumps of ranks with these programs; `forgotten` is how many entries each ring buffer has overwritten."""
    names = {name: (name, (descriptions or {}).get(name, "")) for name in groups}
    described = {
        name: group
        for name, members in groups.items()
        for group in process_group(name, list(members), names[name][1]).values()
    }
    return {
        rank: dump(
            *_Recorder(rank, program, names, groups).entries((forgotten or {}).get(rank, 0)),
            pg_config={name: described[name] for name in groups if rank in groups[name]},
        )
        for rank, program in programs.items()
    }


def _ranks(ranks: Sequence[int]) -> str:
    return " ".join(map(str, ranks)) or "nobody"


class _Recorder:
    """Writes the entries of one rank."""

    def __init__(
        self,
        rank: int,
        program: str,
        names: Mapping[str, tuple[str, str]],
        groups: Mapping[str, Sequence[int]],
    ) -> None:
        self.rank, self.program, self.names, self.groups = rank, program, names, groups
        self.backend = "gloo" if "~" in program else "nccl"
        self.written: list[dict[str, Any]] = []
        self.messages: Counter[str] = Counter()
        """The last message number of each group."""

    def entries(self, forgotten: int) -> list[dict[str, Any]]:
        """All entries; overwritten ones count as messages of each group, too."""
        self.messages.update(dict.fromkeys(self.names, forgotten))
        for call in CALL.finditer(self.program):
            if call["single"]:
                self.call(call["single"])
            else:
                self.batch(call["batch"].split(), call["mark"])
        return [entry | {"record_id": forgotten + index} for index, entry in enumerate(self.written)]

    def call(self, word: str) -> None:
        if call := COLLECTIVE.fullmatch(word):
            operation = call["operation"] or "all_reduce"
            frames = {"frames": stack("step", int(call["line"]))} if call["line"] else {}
            self.write(call, operation, call["mark"], collective_seq_id=int(call["number"]), **frames)
            return
        call = MESSAGE.fullmatch(word)
        assert call, word
        self.messages[call["group"]] += 1
        self.message(call, call["mark"])

    def batch(self, words: Sequence[str], mark: str) -> None:
        """A batch: the entries of its messages stay scheduled, and a closing entry has its state."""
        calls = [call for word in words if (call := MESSAGE.fullmatch(word))]
        assert len(calls) == len(words), words
        self.messages[calls[0]["group"]] += 1
        for call in calls:
            self.message(call, "!")
        self.message(calls[0], mark, name="coalesced", is_p2p=False)
        for name in ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes"):
            self.written[-1][name] = []

    def message(self, call: re.Match[str], mark: str, *, name: str = "", is_p2p: bool = True) -> None:
        """One end of a message, or the closing entry of a batch."""
        own = list(self.groups[call["group"]]).index(self.rank)
        peer = call["peer"].replace("*", "?")
        operation = f"send {own}->{peer}" if call["way"] == ">" else f"recv {own}<-{peer}"
        number = self.messages[call["group"]]
        self.write(call, name or operation, mark, p2p_seq_id=number, collective_seq_id=0, is_p2p=is_p2p)

    def write(self, call: re.Match[str], operation: str, mark: str, **fields: Any) -> None:
        size, dtype = [[int(call["size"] or 1024)]], [call["type"] or "Float"]
        created = CREATED + len(self.written) * MS
        state = STATES[mark]
        completed = created + MS if state["state"] == "completed" else None
        content = {
            "input_sizes": size,
            "output_sizes": size,
            "input_dtypes": dtype,
            "output_dtypes": dtype,
            "time_discovered_completed_ns": completed,
            "group": self.names[call["group"]],
            "pg_id": list(self.names).index(call["group"]),
        }
        self.written.append(
            collective(f"{self.backend}:{operation}", created=created, **content | state | fields)
        )
