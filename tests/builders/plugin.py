"""The plugin of docs/plugins.md, and others, laid out by hand as an installer would: no network, no build."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from builders.documentation import PYTHON, ROOT

PAGE = ROOT / "docs" / "plugins.md"

LIST = dedent(
    '''
    """Notes as a list: a conversion from one format to another."""

    from tracelink.plugins import ConversionSpec, Format, Output

    MARKDOWN = Format(
        "notes-markdown",
        conversion=ConversionSpec("Notes as a list", ("notes",), (".md", ".list.json"), "notes_list:NotesAsMarkdown"),
    )


    class NotesAsMarkdown:
        name = "notes-markdown"

        def convert(self, source, target, engine):
            with source.open() as stream, target.file("notes.md") as out:
                for line in stream.read_all(1 << 20).splitlines()[1:]:
                    out.write(b"- " + line + b"\\n")
            return [Output(target.path("notes.md"), self.name, None, target.size("notes.md"), 0)]
    '''
)


def page_modules() -> dict[str, str]:
    """The modules of the page; the first line of each is its name."""
    blocks = PYTHON.findall(PAGE.read_text("utf-8"))
    return {block.partition("\n")[0].removeprefix("# ").removesuffix(".py"): block for block in blocks}


def page_entry_points() -> dict[str, dict[str, str]]:
    """The entry points of the page by their groups."""
    text = PAGE.read_text("utf-8").partition("```toml\n")[2].partition("```")[0]
    found: dict[str, dict[str, str]] = tomllib.loads(text)["project"]["entry-points"]
    return found


def notes_installed(folder: Path) -> Path:
    """The plugin of the page, and one with a conversion, in a folder for the module path."""
    points = page_entry_points()
    installed(folder, "somebody-list", {"notes_list": LIST}, {"notes-markdown": "notes_list:MARKDOWN"})
    return installed(
        folder, "somebody-notes", page_modules(), points["tracelink.formats"], points["tracelink.engines"]
    )


def installed(
    folder: Path,
    name: str,
    modules: Mapping[str, str],
    formats: Mapping[str, str],
    engines: Mapping[str, str] | None = None,
) -> Path:
    """Puts a distribution with these modules and entry points into a folder for the module path."""
    information = folder / f"{name.replace('-', '_')}-1.2.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    lines = ["[tracelink.formats]", *(f"{point} = {value}" for point, value in formats.items())]
    lines += ["[tracelink.engines]", *(f"{point} = {value}" for point, value in (engines or {}).items())]
    (information / "entry_points.txt").write_text("\n".join(lines))
    return folder
