"""The status of communicators, from the JSON and from the text of `ncclras`."""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct, field

from tracelink._io.engine import Engine
from tracelink._io.sources import Source
from tracelink._model.errors import UnreadableError, encodable
from tracelink._model.findings import Finding, Severity
from tracelink._model.text import counted
from tracelink._model.trace import RankTrace
from tracelink._model.witnesses import CommunicatorStatus, Launched, MemberStatus, MonitorAnswer

# The fields of `ncclras -f json`, NCCL 2.28 and later.


IN_PROGRESS = 7
"""The result of a call that has not ended (`ncclInProgress`)."""


class Status(Struct):
    """The state of a rank; a missing rank has only the last two."""

    init_state: int = 0
    async_error: int = 0
    finalize_called: bool = False
    destroy_flag: bool = False
    abort_flag: bool = False
    unresponsive: bool = False
    considered_dead: bool = False


class Rank(Struct):
    """A rank of a communicator."""

    rank: int
    host: str = ""
    pid: int | None = None
    cuda_dev: int | None = None
    status: Status = field(default_factory=Status)
    collective_counts: dict[str, int] = field(default_factory=dict)


class Communicator(Struct):
    """A communicator, as its ranks and the monitor describe it."""

    hash: str = ""
    secondary_hash: str = ""
    size: int | None = None
    ranks: list[Rank] = field(default_factory=list)
    missing_ranks: list[Rank] = field(default_factory=list)


class Ras(Struct):
    """How the status was collected."""

    timeouts_count: int = 0


class Document(Struct):
    """The whole document."""

    nccl_version: str = ""
    timestamp: str = ""
    communicators: list[Communicator] = field(default_factory=list)
    ras: Ras = field(default_factory=Ras)


LARGEST = 256 << 20
"""Bytes of a status: 1,000 communicators of 1,000 ranks have less."""
LARGEST_COUNT = 1 << 62
_ANSWERS = re.compile(rb"(?:OK\r?\n|\s)*")
"""How the monitor answers commands before the document, if it was asked without its client."""
_BETWEEN = re.compile(rb"(?<=\n\})(?:OK\r?\n|\s)*(?=\{)")
"""Between answers that were appended to one file."""
_HEADS = re.compile(rb"^(?:NCCL version [^\n]*\n(?:CUDA [^\n]*\n)?\s*)?Job summary\r?$", re.MULTILINE)
_DIED = re.compile(r"\[[\d :-]{19}\] PEER_DEAD: (?=Process )")
_VERSION = re.compile(r"^NCCL version (\S{1,60})", re.MULTILINE)
_BLOCK = re.compile(r"#\d{1,9}-\d{1,9} \((?P<hash>[0-9a-f]{1,32})\) (?P<what>[A-Z,]{1,60})$")
_HEADING = re.compile(r"(?P<what>DEAD|INCOMPLETE|TIMEOUT|Errors|Warnings|Job summary|Communicators.*)$")
_DIFFERENT = re.compile(
    r"Communicator ranks have different (?:(?P<operation>\w{1,40}) |collective )?operation counts"
)
_SEVERAL = re.compile(
    r"(?P<ranks>\d{1,9}) ranks have (?:launched up to operation (?P<count>\d{1,18})|not launched any operations)"
)
_ONE = re.compile(
    r"Rank (?P<rank>\d{1,9}) has (?:launched up to operation (?P<count>\d{1,18})|not launched any operations)"
)
_MEMBER = re.compile(r"Rank (?P<rank>\d{1,9})\b(?:.* -- )?")
_PLACE = re.compile(r"managed by process (?P<pid>\d{1,9}) on node (?P<host>\S{1,200})")
_MISSING = re.compile(r"The missing ranks?: (?P<ranks>[\d, ]{1,4000})")
_PROCESS = re.compile(r"Process (?P<pid>\d{1,9}) on node (?P<host>\S{1,200}) managing GPU")


class NcclRasReader:
    """Reads what the client of NCCL's monitor prints."""

    name = "nccl-ras"

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """A status is no trace: it has counts, not events."""
        raise UnreadableError(
            "a status has no events", source=source.path, advice="Diagnose it: tracelink diagnose FILE"
        )

    def read_answers(self, source: Source, engine: Engine) -> list[MonitorAnswer]:
        """Each answer in a file: the communicators, and the processes that are considered dead.

        Of several answers as text only the last one: they have no times.
        """
        with source.open() as stream:
            data = stream.read_all(LARGEST)
        engine.meter.add(source.bytes)
        document = _ANSWERS.sub(b"", data, count=1)
        if document.startswith(b"{"):
            return [_from_json(source, one) for one in _BETWEEN.split(document)]
        heads = list(_HEADS.finditer(data))
        start = heads[-1].start() if len(heads) > 1 else 0
        return [_from_text(source, data[start:])]


# JSON


def _from_json(source: Source, data: bytes) -> MonitorAnswer:
    try:
        document = msgspec.json.decode(data, type=Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(
            f"the status cannot be read: {error}", source=source.path, advice="Query again: ncclras -f json"
        ) from None
    communicators = [_communicator(one) for one in document.communicators]
    dead = [member for one in communicators for member in one.members if member.state == "dead"]
    findings = []
    if document.ras.timeouts_count:
        timeouts = counted(document.ras.timeouts_count, "timeout")
        message = f"{source.path}: {timeouts} while the monitor collected the status."
        findings.append(
            Finding(Severity.INFO, "ras_timeouts", message, document.ras.timeouts_count, source.path)
        )
    version = encodable(document.nccl_version)
    return MonitorAnswer(source.path, version, encodable(document.timestamp), communicators, dead, findings)


def _communicator(one: Communicator) -> CommunicatorStatus:
    members = [_member(rank, _state(rank.status)) for rank in one.ranks if rank.rank >= 0]
    members += [_member(rank, _absence(rank.status)) for rank in one.missing_ranks if rank.rank >= 0]
    members.sort(key=lambda member: member.rank)
    return CommunicatorStatus(encodable(one.hash), one.size, members)


def _member(rank: Rank, state: str) -> MemberStatus:
    counts = {
        encodable(name): count for name, count in rank.collective_counts.items() if 0 <= count < LARGEST_COUNT
    }
    return MemberStatus(rank.rank, encodable(rank.host), rank.pid, counts, state)


def _state(status: Status) -> str:
    if status.abort_flag:
        return "aborted"
    if status.async_error not in (0, IN_PROGRESS) or status.init_state not in (0, IN_PROGRESS):
        return "error"
    if status.finalize_called or status.destroy_flag:
        return "finalizing"
    return "initializing" if status.init_state == IN_PROGRESS else "running"


def _absence(status: Status) -> str:
    if status.considered_dead:
        return "dead"
    return "unresponsive" if status.unresponsive else "missing"


# Text


class _Block(Struct):
    """What the text says of one communicator."""

    launched: list[Launched] = field(default_factory=list)
    members: dict[int, MemberStatus] = field(default_factory=dict)


def _from_text(source: Source, data: bytes) -> MonitorAnswer:
    text = data.decode("utf-8", "replace")
    parser = _TextParser()
    for line in text.splitlines():
        parser.line(line.strip())
    communicators = [
        CommunicatorStatus(
            name, None, sorted(block.members.values(), key=lambda one: one.rank), block.launched
        )
        for name, block in parser.blocks.items()
    ]
    version = found[1] if (found := _VERSION.search(text)) else ""
    return MonitorAnswer(source.path, version, "", communicators, parser.dead)


class _TextParser:
    """Follows the headings of the text; ranks belong to the heading and to the count above them."""

    def __init__(self) -> None:
        self.blocks: dict[str, _Block] = {}
        self.dead: list[MemberStatus] = []
        self._block: _Block | None = None
        self._section = ""
        self._operation = ""
        self._count: int | None = None

    def line(self, line: str) -> None:
        """Takes one line, without the spaces around it."""
        if (found := _DIED.match(line)) and (process := _PROCESS.match(line, found.end())):
            self.dead.append(MemberStatus(-1, process["host"], int(process["pid"]), {}, "dead"))
        elif found := _BLOCK.match(line):
            self._block = self.blocks.setdefault(found["hash"], _Block())
            self._section, self._operation, self._count = found["what"], "", None
        elif found := _HEADING.match(line):
            self._block, self._section = None, found["what"]
        elif self._block is not None:
            self._in_block(line, self._block)
        elif self._section == "DEAD" and (found := _PROCESS.match(line)):
            self.dead.append(MemberStatus(-1, found["host"], int(found["pid"]), {}, "dead"))

    def _in_block(self, line: str, block: _Block) -> None:
        if found := _DIFFERENT.match(line):
            self._operation = found["operation"] or "collective"
        elif self._operation and (found := _SEVERAL.match(line)):
            self._count = int(found["count"] or 0)
            block.launched.append(Launched(self._operation, int(found["ranks"]), self._count))
        elif found := _MISSING.match(line):
            for rank in found["ranks"].replace(",", " ").split():
                self._add(block, int(rank[:9]), line, {}, "missing")
        elif self._operation and (found := _ONE.match(line)):
            count = int(found["count"] or 0)
            block.launched.append(Launched(self._operation, 1, count))
            self._add(block, int(found["rank"]), line, {self._operation: count}, "running")
        elif found := _MEMBER.match(line):
            state = {"INCOMPLETE": "missing", "ERROR": "error"}.get(self._section, "running")
            counts = {self._operation: self._count} if self._operation and self._count is not None else {}
            self._add(block, int(found["rank"]), line, counts, state)

    @staticmethod
    def _add(block: _Block, rank: int, line: str, counts: dict[str, int], state: str) -> None:
        known = block.members.get(rank)
        place = _PLACE.search(line)
        host, pid = (place["host"], int(place["pid"])) if place else ("", None)
        if known:
            counts = {**known.counts, **counts}
            host, pid = host or known.host, known.pid if pid is None else pid
            state = known.state if state == "running" else state
        block.members[rank] = MemberStatus(rank, host, pid, counts, state)
