"""Event graph to one Chakra trace for each rank, and the process groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import orjson

from tracelink.converters.chakra.communications import (
    Communicating,
    collective_groups,
    communicating,
    participants_of,
)
from tracelink.converters.chakra.encoding import Metadata, encoded
from tracelink.converters.chakra.findings import findings_of
from tracelink.converters.chakra.group_numbers import GroupNumbers, everybody, group_numbers
from tracelink.converters.chakra.partners import compared, turns_with_nodes
from tracelink.converters.chakra.plan import Dependencies
from tracelink.converters.chakra.rank_nodes import Wanted, rank_nodes
from tracelink.converters.chakra.schema import Kind, Profile, Said
from tracelink.engine import Engine
from tracelink.errors import UsageError
from tracelink.events import Int64s
from tracelink.excerpt import Excerpt
from tracelink.graph import Rank
from tracelink.job import Job, Part
from tracelink.plugins import Files, Output, Target
from tracelink.ranges import Numbers
from tracelink.targets import STDOUT

GROUPS_FILE = "groups.json"


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all ranks are written with."""

    communications: Communicating
    groups: GroupNumbers
    strings: Sequence[str]
    world_size: int
    written: Numbers
    """The ranks of which there are files."""

    @classmethod
    def of(cls, job: Job) -> _Shared:
        """What the ranks of a job do together."""
        told = communicating(job)
        groups = group_numbers(job, participants_of(told))
        written = Numbers.of(part.rank for part in job.parts)
        return cls(told, groups, job.strings, len(everybody(job)), written)


@dataclass(frozen=True, slots=True)
class ChakraWriter:
    """Nodes for operators, device work and communication, with the order that they really had."""

    wanted: Wanted = field(default_factory=Wanted)

    name = "chakra"
    summary = "Chakra traces (.et) for simulators, one file for each rank, and their process groups"
    suffixes = (".et",)
    files = Files.WITH_PREFIX
    options: ClassVar[Mapping[str, Sequence[str]]] = {
        "profile": tuple(Profile),
        "deps": (Dependencies.BOTH, Dependencies.TIME, Dependencies.DATA),
        "gaps": ("no", "yes"),
    }

    def configured(self, **options: str) -> ChakraWriter:
        """A writer of another profile, of other dependencies, or with the gaps of threads as nodes."""
        wanted = Wanted(
            Profile(options.get("profile", self.wanted.profile)),
            Dependencies(options.get("deps", self.wanted.dependencies)),
            options["gaps"] == "yes" if "gaps" in options else self.wanted.gaps,
        )
        if wanted.gaps and wanted.profile != Profile.FULL:
            raise UsageError(
                f"the profile {wanted.profile} has no threads, so it has no gaps of theirs",
                advice=f"Leave out --gaps, or write the profile {Profile.FULL}.",
            )
        return ChakraWriter(wanted)

    def write(self, job: Job, target: Target, engine: Engine) -> list[Output]:
        """Writes a file for each rank, then the groups."""
        shared = self._compared(_Shared.of(job), job.parts, engine)
        aside = target.path() == STDOUT
        if aside and len(job.parts) > 1:
            raise UsageError(
                f"standard output takes one file, and these are {len(job.parts)} ranks",
                advice="Name the beginning of the files' names: -o et/job",
            )
        outputs = engine.map(partial(self._write_part, shared, target), job.parts)
        return outputs if aside else [*outputs, self._write_groups(shared.groups, target)]

    def _compared(self, shared: _Shared, parts: Sequence[Part], engine: Engine) -> _Shared:
        """What the ranks do together, compared where a simulator would wait for whoever takes no part."""
        if self.wanted.profile != Profile.ASTRA_SIM:
            return shared
        shared = replace(shared, groups=shared.groups.among(collective_groups(shared.communications)))
        if len(parts) < 2:
            return shared
        told, ranks = shared.communications, [part.rank for part in parts]

        def turns(part: Part) -> Int64s:
            return turns_with_nodes(Excerpt(part.load()), told.of_rank(part.rank))

        return replace(shared, communications=compared(told, shared.groups, ranks, engine.map(turns, parts)))

    def _write_groups(self, groups: GroupNumbers, target: Target) -> Output:
        members = {str(number): ranks for number, ranks in groups.members_by_number.items()}
        with target.file(GROUPS_FILE) as stream:
            stream.write(orjson.dumps(members))
        return Output(target.path(GROUPS_FILE), self.name, None, target.size(GROUPS_FILE), 0)

    def _write_part(self, shared: _Shared, target: Target, part: Part) -> Output:
        graph = part.load()
        told = shared.communications.of_rank(part.rank)
        rank = rank_nodes(Excerpt(graph), told, shared.groups, shared.strings, shared.world_size, self.wanted)
        name = f"{part.rank}.et"
        metadata = self._metadata(shared, graph.ranks[0], len(rank.nodes))
        with target.file(name) as stream:
            for piece in encoded(metadata, rank.nodes, rank.tensors):
                stream.write(piece)
        findings = tuple(findings_of(target.path(name), part.rank, rank))
        return Output(target.path(name), self.name, part.rank, target.size(name), len(rank.nodes), findings)

    def _metadata(self, shared: _Shared, rank: Rank, nodes: int) -> Metadata:
        return {
            Said.PRODUCER: (Kind.STRING, "tracelink"),
            Said.PROFILE: (Kind.STRING, str(self.wanted.profile)),
            Said.DEPENDENCIES: (Kind.STRING, str(self.wanted.dependencies)),
            Said.RANK: (Kind.UINT64, rank.rank),
            Said.WORLD_SIZE: (Kind.UINT64, shared.world_size),
            Said.WRITTEN: (Kind.STRING, str(shared.written)),
            Said.HOST: (Kind.STRING, rank.host),
            Said.NODES: (Kind.UINT64, nodes),
            Said.GROUPS: (
                Kind.STRING,
                orjson.dumps(shared.groups.described, option=orjson.OPT_NON_STR_KEYS).decode(),
            ),
        }
