"""What ranks recorded, as words; and a diagnosis in one line for each problem.

    diagnosed({0: "a1 a2!", 1: "a1"}, a=[0, 1])

Ranks 0 and 1 finished collective 1 of group a; rank 0 waits in collective 2: that is what `!` says. `~` is retired, on
a backend that tells no more; `^` is started, `?` given up. Before it `:8` says how many elements, `=broadcast` another
operation, `.Int` another type.

    diagnosed({0: "a>1 [a>1 a<1]!", 1: "a<0 [a<0 a>0]!"}, a=[0, 1])

Rank 0 sent to the rank that is number 1 in group a, and waits in a batch in which it sends to it and receives from it.
`a<*` receives from anybody.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from builders.journal import journal
from builders.recorder import CREATED, collective, dump, pickled, process_group
from tracelink import load
from tracelink.diagnosis.examine import diagnosis_of
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.model import Diagnosis
from tracelink.model.job import Job

MS = 1_000_000
WORD = re.compile(
    r"(?P<group>[a-z])(?P<number>\d+)"
    r"(?::(?P<size>\d+))?(?:=(?P<operation>[a-z_]+))?(?:\.(?P<type>\w+))?(?P<mark>[!~^?]?)"
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


def dumps_told(
    ranks: Mapping[int, str],
    *,
    descriptions: Mapping[str, str] | None = None,
    forgotten: Mapping[int, int] | None = None,
    **groups: Sequence[int],
) -> dict[int, dict[str, Any]]:
    """The dumps of ranks that recorded these words; `forgotten` entries came before a rank's first."""
    named = {name: (name, (descriptions or {}).get(name, "")) for name in groups}
    described = {
        name: group
        for name, members in groups.items()
        for group in process_group(name, list(members), named[name][1]).values()
    }
    return {
        rank: dump(
            *_Told(rank, words, named, groups).entries((forgotten or {}).get(rank, 0)),
            pg_config={name: described[name] for name in groups if rank in groups[name]},
        )
        for rank, words in ranks.items()
    }


def journal_told(ranks: Mapping[int, str], **how: Any) -> Journal:
    """The journal of what these ranks recorded."""
    return journal(dumps_told(ranks, **how))


def job_told(folder: Path, ranks: Mapping[int, str], **how: Any) -> Job:
    """The job of what these ranks recorded; their dumps are in the folder."""
    for rank, content in dumps_told(ranks, **how).items():
        (folder / f"comm_lib_trace_rank_{rank}").write_bytes(pickled(content))
    return Job.of(load(folder))


def diagnosed(ranks: Mapping[int, str], **how: Any) -> Diagnosis:
    """The diagnosis of what these ranks recorded."""
    return diagnosis_of(journal_told(ranks, **how))


def problems(ranks: Mapping[int, str], **how: Any) -> list[str]:
    """Each problem as `never_joined a2 by 3, for 0 1 2`."""
    return [
        f"{one.kind} {one.group}{one.sequence} by {_ranks(one.culprits)}{' (tie)' * one.tie}, "
        f"for {_ranks(one.waiting)}"
        for one in diagnosed(ranks, **how).problems
    ]


def _ranks(ranks: Sequence[int]) -> str:
    return " ".join(map(str, ranks)) or "nobody"


class _Told:
    """The entries of one rank."""

    def __init__(
        self,
        rank: int,
        words: str,
        named: Mapping[str, tuple[str, str]],
        groups: Mapping[str, Sequence[int]],
    ) -> None:
        self.rank, self.words, self.named, self.groups = rank, words, named, groups
        self.backend = "gloo" if "~" in words else "nccl"
        self.written: list[dict[str, Any]] = []
        self.messages: Counter[str] = Counter()
        """How many each group has counted."""

    def entries(self, forgotten: int) -> list[dict[str, Any]]:
        """All of them; those that were forgotten count as messages of each group, too."""
        self.messages.update(dict.fromkeys(self.named, forgotten))
        for call in CALL.finditer(self.words):
            if call["single"]:
                self.call(call["single"])
            else:
                self.batch(call["batch"].split(), call["mark"])
        return [entry | {"record_id": forgotten + place} for place, entry in enumerate(self.written)]

    def call(self, word: str) -> None:
        """A collective or a message."""
        if told := WORD.fullmatch(word):
            self.write(
                told, told["operation"] or "all_reduce", told["mark"], collective_seq_id=int(told["number"])
            )
            return
        told = MESSAGE.fullmatch(word)
        assert told, word
        self.messages[told["group"]] += 1
        self.message(told, told["mark"])

    def batch(self, words: Sequence[str], mark: str) -> None:
        """Messages that start and end together: their own entries stay scheduled, and the last one tells."""
        parts = [told for word in words if (told := MESSAGE.fullmatch(word))]
        assert len(parts) == len(words), words
        self.messages[parts[0]["group"]] += 1
        for told in parts:
            self.message(told, "!")
        self.message(parts[0], mark, name="coalesced", is_p2p=False)
        for name in ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes"):
            self.written[-1][name] = []

    def message(self, told: re.Match[str], mark: str, *, name: str = "", is_p2p: bool = True) -> None:
        """One end of a message, or the end of a batch."""
        own = list(self.groups[told["group"]]).index(self.rank)
        peers = (
            f"send {own}->{told['peer']}"
            if told["way"] == ">"
            else f"recv {own}<-{told['peer'].replace('*', '?')}"
        )
        number = self.messages[told["group"]]
        self.write(told, name or peers, mark, p2p_seq_id=number, collective_seq_id=0, is_p2p=is_p2p)

    def write(self, told: re.Match[str], operation: str, mark: str, **fields: Any) -> None:
        """Adds an entry."""
        size, kind = [[int(told["size"] or 1024)]], [told["type"] or "Float"]
        created = CREATED + len(self.written) * MS
        state = STATES[mark]
        over = {"time_discovered_completed_ns": created + MS if state["state"] == "completed" else None}
        sizes = {"input_sizes": size, "output_sizes": size, "input_dtypes": kind, "output_dtypes": kind}
        place = {"group": self.named[told["group"]], "pg_id": list(self.named).index(told["group"])}
        told_of = {**sizes, **over, **state, **fields}
        self.written.append(collective(f"{self.backend}:{operation}", created=created, **place, **told_of))
