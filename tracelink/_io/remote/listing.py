"""What an address means: an object, the objects in a folder, or those that fit a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import translate

from msgspec import Struct, field

from tracelink._io.remote.addresses import WEB, folder_of, scheme_of, shown
from tracelink._io.remote.stores import MOST_OBJECTS, UNKNOWN_SIZE, Entry, Folder, Store, store_of
from tracelink._model import MANIFEST, MANIFEST_START
from tracelink._model.errors import UnreadableError, UsageError

PATTERN = re.compile(r"[*?\[]")
ANY_DEPTH = "**"


class Found(Struct):
    """The objects at an address."""

    entries: list[Entry] = field(default_factory=list)
    named: bool = False
    """Whether the address is that of one object."""
    strange: list[str] = field(default_factory=list)
    """Names of objects that were skipped, because they are not below the folder."""

    def add(self, folder: Folder, base: str) -> None:
        """Adds objects of a folder, without hidden ones below `base`."""
        self.strange += folder.strange
        self.entries += [entry for entry in folder.entries if not is_hidden(entry.url, base)]
        if len(self.entries) > MOST_OBJECTS:
            raise UnreadableError(
                f"there are more than {MOST_OBJECTS:,} objects",
                source=shown(base),
                advice="Name fewer of them.",
            )


def is_hidden(url: str, base: str) -> bool:
    """True if a name below `base` begins with a dot."""
    return any(part.startswith(".") for part in url.removeprefix(base).split("/"))


def found_at(url: str) -> Found:
    """The objects at an address; raises UsageError if there are none."""
    store, found = store_of(url), Found()
    if not url.endswith("/") and (entry := store.find(url)):
        return Found([entry], named=True)
    if _has_pattern(url):
        for one in _matches(store, url):
            if isinstance(one, Entry):
                found.add(Folder([one]), one.url)
            else:
                found.add(store.folder(one, deep=True, most=MOST_OBJECTS), one)
    else:
        found.add(store.folder(folder_of(url), deep=True, most=MOST_OBJECTS), folder_of(url))
    if not found.entries and not found.strange:
        raise UsageError(f"{shown(url)}: there is no such object or folder", advice="Check the address.")
    by_url = {entry.url: entry for entry in found.entries}
    entries = [by_url[address] for address in sorted(by_url)]
    # The links of a page have no sizes.
    known = (store.find(entry.url) if entry.bytes == UNKNOWN_SIZE else entry for entry in entries)
    found.entries = [entry for entry in known if entry]
    return found


def outside_datasets(entries: Sequence[Entry]) -> tuple[list[Entry], set[str]]:
    """The objects without those that a dataset consists of, except its manifest; and the addresses of manifests."""
    named = [entry for entry in entries if entry.url.rpartition("/")[2] == MANIFEST]
    starts = starts_of(named, len(MANIFEST_START))
    manifests = {
        entry.url for entry, start in zip(named, starts, strict=True) if start.startswith(MANIFEST_START)
    }
    folders = tuple(url.removesuffix(MANIFEST) for url in manifests)
    kept = [entry for entry in entries if entry.url in manifests or not entry.url.startswith(folders)]
    return kept, manifests


def starts_of(entries: Sequence[Entry], size: int) -> list[bytes]:
    """The first bytes of objects of one store; empty if they cannot be read."""
    return store_of(entries[0].url).starts(entries, size) if entries else []


def objects_in(folder: str) -> list[str]:
    """The addresses of the objects in a folder, without those in folders of it."""
    inside = store_of(folder).folder(folder, deep=False, most=MOST_OBJECTS)
    return sorted(entry.url for entry in inside.entries)


def _has_pattern(url: str) -> bool:
    key = url.partition("://")[2].partition("/")[2]
    return bool(PATTERN.search(key.partition("?")[0] if scheme_of(url) in WEB else key))


def _matches(store: Store, url: str) -> Iterator[Entry | str]:
    """The objects and folders that fit a pattern, of which each part is looked up in the folders that fit so far."""
    root, _, key = url.partition("://")
    host, _, key = key.partition("/")
    parts = [part for part in key.split("/") if part]
    plain = next(number for number, part in enumerate(parts) if PATTERN.search(part))
    start = "/".join([f"{root}://{host}", *parts[:plain]])
    yield from _below(store, folder_of(start), parts[plain:])


def _below(store: Store, folder: str, parts: list[str]) -> Iterator[Entry | str]:
    part, rest = parts[0], parts[1:]
    if part == ANY_DEPTH:
        whole = re.compile(_any_depth(parts))
        inside = store.folder(folder, deep=True, most=MOST_OBJECTS)
        yield from (entry for entry in inside.entries if whole.fullmatch(entry.url.removeprefix(folder)))
        return
    if rest and not PATTERN.search(part):
        yield from _below(store, folder_of(folder + part), rest)
        return
    inside = store.folder(folder, deep=False, most=MOST_OBJECTS)
    matcher = re.compile(translate(part))
    hidden = part.startswith(".")

    def fits(url: str) -> bool:
        name = url.removeprefix(folder).rstrip("/")
        return matcher.match(name) is not None and (hidden or not name.startswith("."))

    for found in filter(fits, inside.folders):
        if rest:
            yield from _below(store, found, rest)
        else:
            yield found
    if not rest:
        yield from (entry for entry in inside.entries if fits(entry.url))


def _any_depth(parts: list[str]) -> str:
    """The expression for parts of which the first is `**`: any number of folders that are not hidden."""
    texts = []
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == ANY_DEPTH:
            texts.append(r"(?:[^/.][^/]*/)*" + (r"[^/.][^/]*" if last else ""))
        else:
            names = (
                translate(part)
                .replace("(?s:", "(?:")
                .removesuffix(r"\Z")
                .removesuffix(r"\z")
                .replace(".*", "[^/]*")
            )
            texts.append(names + ("" if last else "/"))
    return "".join(texts)
