"""Bundles as a test wants to see them."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Bundle:
    """An archive of rank files, read back."""

    manifest: dict[str, Any]
    files: Mapping[str, bytes]
    headers: list[tarfile.TarInfo]

    @property
    def machines(self) -> dict[str, str]:
        """Whose each file is."""
        return {entry["path"]: entry["machine"]["name"] for entry in self.manifest["files"]}

    @property
    def offsets(self) -> dict[str, int]:
        """What has to be added to the times of each file; all are those of the timeline of one of them."""
        entries = self.manifest["files"]
        (reference,) = [entry["path"] for entry in entries if "clocks" not in entry]
        shifted = [entry for entry in entries if "clocks" in entry]
        assert all(entry["clocks"]["sync_to"] == {"file": reference} for entry in shifted)
        assert reference == min(self.files), "Perfetto takes the clock of the first name as everybody's"
        return {reference: 0} | {entry["path"]: entry["clocks"]["offset_ns"] for entry in shifted}

    def placed(self) -> dict[str, list[tuple[str, int]]]:
        """Name and time, in ns on the common timeline, of the slices of each file."""
        return {
            name: [
                (event["name"], round(event["ts"] * 1000) + offset)
                for event in json.loads(self.files[name])["traceEvents"]
                if event["ph"] == "X"
            ]
            for name, offset in self.offsets.items()
        }


def unpacked(path: Path) -> Bundle:
    """Reads a bundle; its manifest must come first."""
    with tarfile.open(path) as archive:
        headers = archive.getmembers()
        files = {header.name: _content(archive, header) for header in headers}
    manifest = json.loads(files.pop("perfetto_manifest.json"))
    assert headers[0].name == "perfetto_manifest.json"
    assert list(manifest) == ["perfetto_manifest"]
    return Bundle(manifest["perfetto_manifest"], files, headers)


def _content(archive: tarfile.TarFile, header: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(header)
    assert stream
    return stream.read()
