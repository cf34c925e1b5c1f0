"""The architecture: which packages may import which, and how large a module or a folder may be."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = {
    "tracelink": "tracelink",
    "converters": "tracelink.converters",
    "samples": "tracelink.samples",
    "schemas": "tracelink.schemas",
}
"""The folders of the product, and the packages that they are installed as."""

FORMATS = "tracelink.converters."
SHARED_BY_FORMATS = {"pytorch"}
"""What PyTorch defines for several formats."""

MOST_MODULES = 24
MOST_LINES = 700

SMALL_MODULES = {
    "tracelink.converters.chakra.validation.job_rules": "the rules across ranks, next to those of files and of nodes",
    "tracelink.converters.flight_recorder.recognition": "imports the standard library only, for every command",
}
"""Modules with one public name and one importer, and why they are modules. Only to be shortened."""


_DRAWN_BY = re.compile(r'drawn_by = "([\w.]+)"')
"""The module that a result names for its report."""


@cache
def modules() -> dict[str, Path]:
    """The file of each module of the product."""
    found = {}
    for folder, package in ROOMS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


@cache
def imports(name: str) -> frozenset[str]:
    """The modules of the product that a module imports, wherever in it, also for types only."""
    found = {_module(imported) for imported in _imported(_tree(name))}
    return frozenset(found - {name, ""})


@cache
def _tree(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text())


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements in a node, at any depth; no import is in an expression."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        for inner in getattr(node, field, ()):
            yield inner
            yield from _statements(inner)


def _module(name: str) -> str:
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return name


def package_of(name: str) -> str:
    """The package of a module."""
    return name if modules()[name].name == "__init__.py" else name.rpartition(".")[0]


@cache
def layers() -> list[str]:
    lines = [line.split("#")[0].strip() for line in (ROOT / "docs" / "layers.txt").read_text().splitlines()]
    return [line for line in lines if line]


def layer_of(name: str) -> int | None:
    """The line of docs/layers.txt that fits best."""
    fitting = [(len(line), at) for at, line in enumerate(layers()) if f"{name}.".startswith(f"{line}.")]
    return max(fitting)[1] if fitting else None


def test_every_module_has_a_layer() -> None:
    roots = {"tracelink", "tracelink.__main__", "tracelink.converters"}
    assert {name for name in modules() if layer_of(name) is None} == roots


def test_imports_run_one_way() -> None:
    against = [
        f"{name} imports {other}"
        for name in modules()
        for other in imports(name)
        if (own := layer_of(name)) is not None
        and (imported := layer_of(other)) is not None
        and imported > own
    ]
    assert against == []


def test_no_two_packages_import_each_other() -> None:
    imported = defaultdict(set)
    for name in modules():
        imported[package_of(name)] |= {package_of(other) for other in imports(name)} - {package_of(name)}
    mutual = [(one, other) for one in imported for other in imported[one] if one in imported[other]]
    assert mutual == []


def test_what_other_packages_import_is_listed() -> None:
    """`__all__` of a package lists its formats or functions, and the modules that other packages import."""
    unlisted = {
        f"{package}: {name}"
        for module in modules()
        for other in imports(module)
        for package, name in _steps(other)
        if not f"{module}.".startswith(f"{package}.") and name not in listed(package)
    }
    assert unlisted == set(), "add it to __all__ of that package, or import another module"


def test_every_package_says_what_it_contains() -> None:
    packages = [name for name, path in modules().items() if path.name == "__init__.py"]
    missing = [name for name in packages if not ast.get_docstring(_tree(name))]
    assert missing == []
    unknown = {f"{name}: {entry}" for name in packages for entry in listed(name) if not _exists(name, entry)}
    assert unknown == set()


def _exists(package: str, entry: str) -> bool:
    return f"{package}.{entry}" in modules() or hasattr(import_module(package), entry)


def _steps(name: str) -> list[tuple[str, str]]:
    """Each package on the way to a module, below the first, and what of it leads there."""
    parts = name.split(".")
    return [(".".join(parts[:at]), parts[at]) for at in range(2, len(parts))]


@cache
def listed(package: str) -> tuple[str, ...]:
    """What `__all__` of a package contains."""
    return tuple(import_module(package).__all__)


def _format(name: str) -> str:
    return name.removeprefix(FORMATS).partition(".")[0] if name.startswith(FORMATS) else ""


def test_formats_do_not_know_each_other() -> None:
    known = [
        f"{name} imports {other}"
        for name in modules()
        for other in imports(name)
        if _format(name) and _format(other) not in {"", _format(name), *SHARED_BY_FORMATS}
    ]
    assert known == []


def test_the_timeline_of_perfetto_knows_neither_of_its_formats() -> None:
    own = [name for name in modules() if name.startswith(f"{FORMATS}perfetto.timeline")]
    beyond = (f"{FORMATS}perfetto.json_", f"{FORMATS}perfetto.native_")
    assert own
    assert [(name, other) for name in own for other in imports(name) if other.startswith(beyond)] == []


def test_no_folder_has_too_many_modules() -> None:
    folders = defaultdict(list)
    for name, path in modules().items():
        folders[path.parent].append(name)
    assert {folder.name: len(names) for folder, names in folders.items() if len(names) > MOST_MODULES} == {}


def test_no_module_is_too_long() -> None:
    assert [name for name, path in modules().items() if path.read_text().count("\n") > MOST_LINES] == []


def _public_names(name: str) -> list[str]:
    body = _tree(name).body
    definitions = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return [node.name for node in definitions if not node.name.startswith("_")]


def test_a_module_is_more_than_a_function_of_its_importer() -> None:
    importers = defaultdict(set)
    for name, path in modules().items():
        for other in (*imports(name), *_DRAWN_BY.findall(path.read_text())):
            importers[other].add(name)
    small = {
        name
        for name, path in modules().items()
        if path.name != "__init__.py" and len(importers[name]) == 1 and len(_public_names(name)) == 1
    }
    assert small - set(SMALL_MODULES) == set()


LEAST_FIELDS, SAME_SHARE = 4, 0.7
"""Classes repeat each other if they share so many names of fields, and this share of those of the larger one."""

KINETO = "decoders of one format for its three layouts: one class would decode slower"
NODES = "decoders of the nodes of several torch versions"
COLUMNS_AND_ROW = "the columns of a table, and one row of it while a source is read"
REPEATED = {
    ("CommunicationColumns", "Statement"): COLUMNS_AND_ROW,
    ("Crossed", "Crossings"): "times of a job, and the same as observations of clocks",
    ("Clock", "_RankInFile"): "what a clock file may contain, with bounds of hostile numbers",
    ("Element", "ExactElement"): KINETO,
    ("Element", "MixedElement"): KINETO,
    ("ExactElement", "MixedElement"): KINETO,
    ("Events", "_Event"): COLUMNS_AND_ROW,
    ("Field", "Read"): "a field of a message, and the columns of many",
    ("Folded", "LinkedRank"): "a rank while it is linked, and its phases",
    ("GapRow", "WaitRow"): "tables of different things that have a place in the program",
    ("Group", "ProcessGroup"): "a group as a capture file has it",
    ("HostPieces", "Pieces"): "columns of a part of the critical path",
    ("Layout", "_Values"): "positions of fields in a dump, and their values",
    ("Node", "PositionalNode"): NODES,
    ("Process", "ProcessFact"): "a process of a timeline, and as a native trace states it",
    ("Trace", "_Shape"): "columns of a history of memory, and how a pickle contains them",
    ("SelectOptions", "Selection"): "keywords as users write them, and what they mean",
    ("Ties", "_CrossRankFlows"): "edges between ranks, and how a format writes them",
    ("Waits", "_Slices"): "waits, and the slices that they are drawn as",
}
"""Classes with the same fields, and why they are two. Only to be shortened."""


def _fields_of_classes() -> Iterator[tuple[str, frozenset[str]]]:
    for name in modules():
        for node in ast.walk(_tree(name)):
            if isinstance(node, ast.ClassDef):
                fields = (one.target for one in node.body if isinstance(one, ast.AnnAssign))
                yield node.name, frozenset(one.id for one in fields if isinstance(one, ast.Name))


def test_no_class_repeats_the_fields_of_another() -> None:
    classes = [(name, fields) for name, fields in _fields_of_classes() if len(fields) >= LEAST_FIELDS]
    same = {
        tuple(sorted((one, other)))
        for (one, fields), (other, others) in combinations(classes, 2)
        if len(fields & others) >= max(LEAST_FIELDS, SAME_SHARE * max(len(fields), len(others)))
    }
    assert same == set(REPEATED)


def test_tables_are_drawn_by_one_room() -> None:
    drawn = [
        name
        for name, path in modules().items()
        if not name.startswith("tracelink._show")
        and re.search(r'page\.table\(|element\("table"', path.read_text())
    ]
    assert drawn == []
