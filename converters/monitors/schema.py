"""The fields of `ncclras -f json`, NCCL 2.28 and later."""

from __future__ import annotations

from msgspec import Struct, field

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
