"""The drawings that `tracelink convert` makes of `.et` files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath

from tracelink.converters.chakra.drawing.composing import compose
from tracelink.converters.chakra.drawing.dot import dot
from tracelink.converters.chakra.drawing.graphml import graphml, too_large
from tracelink.converters.chakra.drawing.scene import Scene
from tracelink.converters.chakra.drawing.subjects import subjects_of
from tracelink.converters.chakra.drawing.svg import svg
from tracelink.engine import Engine
from tracelink.findings import Finding, Severity
from tracelink.plugins import Output, Target
from tracelink.sources import Source
from tracelink.view import View

MOST_NODES = 2000
"""More than this a picture does not take, unless the user says so."""

TOGETHER = 1 << 16
"""Letters that are written at a time, or more."""


class _Drawing:
    """Boxes and arrows, as one format draws them."""

    name: str
    summary: str
    suffixes: tuple[str, ...]
    reads = ("chakra",)
    most: int | None = MOST_NODES
    _draws: Callable[[Scene, str], Iterable[str]]

    def convert(self, source: Source, target: Target, engine: Engine) -> list[Output]:
        """Draws one file."""
        return self.draw([source], target, engine, View())

    def draw(self, sources: Sequence[Source], target: Target, engine: Engine, view: View) -> list[Output]:
        """Draws all files as one picture."""
        findings = list[Finding]()
        subjects = subjects_of(sources, view.ranks, engine, findings)
        scene = compose(subjects, replace(view, limit=view.limit or self.most))
        findings += [*scene.findings, *self.misfits(scene)]
        title = _title([subject.path for subject in subjects])
        name = PurePath(sources[0].name).stem + self.suffixes[0]
        with target.file(name) as out:
            waiting = ""
            for piece in type(self)._draws(scene, title):
                waiting += piece
                if len(waiting) > TOGETHER:
                    out.write(waiting.encode())
                    waiting = ""
            out.write(waiting.encode())
        rank = subjects[0].rank if len(subjects) == 1 else None
        size = target.size(name)
        return [Output(target.path(name), self.name, rank, size, len(scene.boxes), tuple(findings))]

    def misfits(self, scene: Scene) -> list[Finding]:
        """What the format cannot say."""
        return []


class DotDrawing(_Drawing):
    """Input of graphviz."""

    name = "dot"
    summary = "nodes and dependencies as a graph that graphviz draws"
    suffixes = (".dot", ".gv")
    _draws = staticmethod(dot)


class GraphmlDrawing(_Drawing):
    """A graph for other programs."""

    name = "graphml"
    summary = "nodes and dependencies as a graph for networkx, Gephi and yEd"
    suffixes = (".graphml",)
    most = None
    _draws = staticmethod(graphml)

    def misfits(self, scene: Scene) -> list[Finding]:
        """Numbers beyond 63 bits."""
        count = too_large(scene)
        message = "numbers of more than 63 bits are left out: GraphML has no type for them."
        return [Finding(Severity.WARNING, "number_too_large", message, count)] if count else []


class SvgDrawing(_Drawing):
    """A picture."""

    name = "svg"
    summary = "nodes and dependencies as a picture that opens in a browser"
    suffixes = (".svg",)
    _draws = staticmethod(svg)


def _title(paths: Sequence[str]) -> str:
    return PurePath(paths[0]).name + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
