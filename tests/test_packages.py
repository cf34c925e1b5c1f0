"""Packages: what they export, and that no module takes the name of a public object."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import tracelink

PACKAGE = Path(tracelink.__file__).parent
ROOMS = ("converters", "samples", "schemas")
"""Folders that are installed inside the package, and next to it in a checkout."""


def modules() -> list[str]:
    """The names of all modules, without those that only run."""
    folders = [("tracelink", PACKAGE)]
    for room in ROOMS:
        inside = PACKAGE / room
        folders.append((f"tracelink.{room}", inside if inside.exists() else PACKAGE.parent / room))
    found = {
        ".".join((name, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
        for name, folder in folders
        for path in folder.rglob("*.py")
        if path.name != "__main__.py" and (path.parent / "__init__.py").exists()
    }
    return sorted(found)


def test_no_module_takes_the_name_of_a_public_object() -> None:
    public = {name: getattr(tracelink, name) for name in tracelink.__all__}
    for name in modules():
        import_module(name)
    assert {name: getattr(tracelink, name) for name in public} == public


def test_public_names_are_those_that_type_checkers_see() -> None:
    tree = ast.parse(Path(tracelink.__file__).read_text())
    checked = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0]
    homes = {
        alias.name: node.module
        for node in checked
        for alias in node.names
        if alias.asname == alias.name != "__version__"
    }
    assert sorted(homes) == tracelink.__all__
    assert homes == {
        name: f"tracelink.{module}" for module, names in tracelink._EXPORTS.items() for name in names
    }


PUBLIC_ROOMS = {"adapters", "cli", "converters", "plugins", "pytest", "samples", "schemas"}
"""What users import besides `tracelink` itself, the command, and the home of formats."""


def test_what_is_not_public_is_underscored() -> None:
    rooms = {name.split(".")[1] for name in modules() if "." in name}
    assert {room for room in rooms if not room.startswith("_")} == PUBLIC_ROOMS
