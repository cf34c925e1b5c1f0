"""Files, archives and requests as a user would give them."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tracelink._io.sources import Discovery, Request, Source, discover


def held(usual: str) -> Callable[..., Source]:
    """Makes inputs that hold bytes, or a text, of this name unless another is given."""

    def source(data: bytes | str, name: str = usual) -> Source:
        content = data.encode() if isinstance(data, str) else data
        return Source(name, partial(io.BytesIO, content), len(content))

    return source


def reasons(result: Any) -> dict[str, int]:
    """How often each finding was made."""
    return {finding.reason: finding.count for finding in result.findings}


def found(*paths: Path | str, **ranks: int) -> Discovery:
    """What these paths stand for."""
    return discover(Request([(str(path), "") for path in paths], ranks))


def names(discovery: Discovery, below: Path) -> list[str]:
    """The sources of a discovery, as paths below a folder."""
    return [source.path.removeprefix(f"{below}/") for source in discovery.sources]


def content(source: Source) -> bytes:
    with source.open() as stream:
        return stream.read_all(1 << 30)


def read_while(source: Source, change: Callable[[], object]) -> bytes:
    """All uncompressed bytes of a source of which something is changed after the first ones."""
    with source.open() as stream:
        first = stream.read(10)
        change()
        return first + stream.read_all(1 << 30)


def tar(path: Path, members: Mapping[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(data)
            archive.addfile(header, io.BytesIO(data))
    return path


def zipped(path: Path, members: Mapping[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path
