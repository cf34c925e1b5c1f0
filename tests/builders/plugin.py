"""A distribution with formats of its own, laid out by hand as an installer would: no network, no build."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

NOTES = dedent(
    '''
    """One event on each line: `<nanoseconds> <name>`."""

    from tracelink.plugins import ConversionSpec, Files, Format, ReaderSpec, WriterSpec


    def is_notes(head, name):
        return head.startswith(b"#notes")


    FORMAT = Format(
        "notes",
        ReaderSpec("Notes: one event on each line", is_notes, "notes_code:NotesReader"),
        WriterSpec("Notes: one event on each line", (".notes",), "notes_code:NotesWriter", Files.IN_DIRECTORY),
    )
    MARKDOWN = Format(
        "notes-markdown",
        conversion=ConversionSpec("Notes as a list", ("notes",), (".md", ".list.json"), "notes_code:NotesAsMarkdown"),
    )
    '''
)
"""What is known of the format before it is used."""

CODE = dedent(
    '''
    """Reads and writes notes."""

    from tracelink._model.errors import UnreadableError
    from tracelink._model.events import EventKind, Events, Track, TrackKind
    from tracelink.plugins import Output
    from tracelink._model.columns import StringTable
    from tracelink._model.trace import ListedPayloads, RankTrace, SourceInfo


    class NotesReader:
        name = "notes"

        def read(self, source, engine):
            with source.open() as stream:
                first, *lines = stream.read_all(1 << 20).decode().splitlines()
            if not lines:
                raise UnreadableError("no notes", source=source.path, advice="Write some.")
            times, names = zip(*(line.split(" ", 1) for line in lines))
            strings, count = StringTable(), len(lines)
            rank = int(first.split()[1])
            events = Events.of(
                kind=[EventKind.ANNOTATION] * count,
                name=[strings[name] for name in names],
                track=[0] * count,
                start=[int(time) for time in times],
                duration=[1000] * count,
                source=[0] * count,
                payload=range(count),
            )
            return RankTrace(
                [SourceInfo(source.path, self.name, rank=rank, events=count)],
                strings,
                events,
                [Track(TrackKind.THREAD, "1", "1", "notes", rank)],
                payloads=[ListedPayloads([b'{"line": %d}' % line for line in range(2, count + 2)])],
            )


    class NotesWriter:
        name = "notes"

        def write(self, job, target, engine):
            outputs = []
            for part in job.parts:
                graph = part.load()
                file = f"rank{part.rank}.notes" if len(job.parts) > 1 else ""
                notes = [f"{graph.events.start[row]} {graph.name(row)}" for row in range(len(graph))]
                with target.file(file) as stream:
                    stream.write("\\n".join([f"#notes {part.rank}", *notes]).encode())
                outputs.append(Output(target.path(file), self.name, part.rank, target.size(file), len(graph)))
            return outputs


    class NotesAsMarkdown:
        name = "notes-markdown"

        def convert(self, source, target, engine):
            with source.open() as stream, target.file("notes.md") as out:
                for line in stream.read_all(1 << 20).splitlines()[1:]:
                    out.write(b"- " + line + b"\\n")
            return [Output(target.path("notes.md"), self.name, None, target.size("notes.md"), 0)]
    '''
)


def installed(
    folder: Path,
    name: str,
    modules: Mapping[str, str],
    formats: Mapping[str, str],
) -> Path:
    """Puts a distribution with these modules and entry points into a folder for the module path."""
    information = folder / f"{name.replace('-', '_')}-1.2.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    lines = ["[tracelink.formats]", *(f"{point} = {value}" for point, value in formats.items())]
    (information / "entry_points.txt").write_text("\n".join(lines))
    return folder
