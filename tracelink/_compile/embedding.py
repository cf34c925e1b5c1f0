"""Which payloads the page contains: equal ones once, compressed, up to a limit; each is shown when it is opened."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator

from isal import isal_zlib
from msgspec import Struct, field

from tracelink._compile.divergences import Logs, payloads_of
from tracelink._compile.reading import Read
from tracelink._model.witnesses import Artifact
from tracelink._show.markup import Markup

MOST_OF_ONE = 256 << 10
"""Bytes of a payload that the page contains."""
MOST_OF_ALL = 48 << 20
"""Bytes of all payloads, before compression."""
LAST = ("fx_graph_cache_", "aotautograd_cache_", "torch._functorch.config")
"""Long payloads that few people read: they are left out first."""
MAPPINGS = "inductor_provenance_tracking_node_mappings"
"""For the nodes of a graph those that its passes made of them, and the kernels that compute these."""
FIRST = (MAPPINGS, "inductor_output_code", "recompile_reasons", "dynamo_graph_break_reason", "dynamo_error")
GZIP = 16 + zlib.MAX_WBITS

Key = tuple[str, int]
"""What is equal in equal payloads: their digest; the log and the offset of a damaged one."""


class Embedding(Struct):
    """The number of each payload that the page contains."""

    numbers: dict[Key, int] = field(default_factory=dict)
    left_out: int = 0
    """Artifacts that are not in the page."""
    left_out_bytes: int = 0

    def number(self, path: str, artifact: Artifact) -> int | None:
        """The number of a payload; None if the page does not contain it."""
        return self.numbers.get(_key(path, artifact))


def embedding_of(logs: Logs, most: int = MOST_OF_ALL) -> Embedding:
    """The most useful payloads of all ranks that fit."""
    every = [
        (log.source.path, artifact)
        for of_rank in logs.values()
        for log in of_rank
        for artifact in log.artifacts
    ]
    found, used = Embedding(), 0
    for path, artifact in sorted(every, key=lambda one: _priority(one[1])):
        key, size = _key(path, artifact), min(artifact.bytes, MOST_OF_ONE)
        if key in found.numbers:
            continue
        if used + size > most:
            found.left_out += 1
            found.left_out_bytes += artifact.bytes
            continue
        used += size
        found.numbers[key] = len(found.numbers)
    return found


def _key(path: str, artifact: Artifact) -> Key:
    return (artifact.digest, artifact.bytes) if artifact.digest else (path, artifact.offset)


def _priority(artifact: Artifact) -> int:
    if artifact.name in FIRST:
        return 0
    return 2 if artifact.name.startswith(LAST) else 1


def embedded(logs: Read, chosen: Embedding) -> Iterator[Markup]:
    """An element for each payload: gzip in base64, which cannot end the element."""
    written: set[int] = set()
    for log in (log for of_rank in logs.logs.values() for log in of_rank):
        path = log.source.path
        wanted = list(_first_of_each(path, log.artifacts, chosen, written))
        if not wanted:
            continue
        for artifact, payload in payloads_of(logs.sources[path], wanted, MOST_OF_ONE):
            packer = isal_zlib.compressobj(1, wbits=GZIP)
            text = base64.b64encode(packer.compress(payload) + packer.flush()).decode("ascii")
            number = chosen.number(path, artifact)
            yield Markup(f'<script type="text/plain" id="p{number}">{text}</script>\n')


def _first_of_each(
    path: str, artifacts: Iterable[Artifact], chosen: Embedding, written: set[int]
) -> Iterator[Artifact]:
    for artifact in artifacts:
        number = chosen.number(path, artifact)
        if number is not None and number not in written:
            written.add(number)
            yield artifact
