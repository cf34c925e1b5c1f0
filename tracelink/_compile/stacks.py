"""Where functions were called: the stacks of all compilations as one tree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct, field

from tracelink._compile.divergences import Logs
from tracelink._compile.model import TORCH
from tracelink._model.records import Frame
from tracelink._model.text import ranks_cell
from tracelink._show.document import Block, Element
from tracelink._show.markup import Child, Markup, element

DEEPEST = 60
"""Frames of a stack: the innermost ones."""


Link = Callable[[int, str], Child]
"""Makes the link to a compile id of a rank."""


class _Node(Struct):
    """A frame, with what it calls and what was compiled in it."""

    calls: dict[Frame, _Node] = field(default_factory=dict)
    compiled: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Ranks by compile id."""


def stack_tree(logs: Logs, link: Link) -> Iterator[Block]:
    """The tree as nested lists, without frames of torch."""
    root = _Node()
    for rank, of_rank in logs.items():
        for log in of_rank:
            for compile_id, stack in log.called_at.items():
                node = root
                for frame in [frame for frame in stack if not TORCH.search(frame.filename)][-DEEPEST:]:
                    node = node.calls.setdefault(frame, _Node())
                node.compiled[compile_id].add(rank)
    if root.calls or root.compiled:
        yield Element(element("div", _list(root, link), class_="stacks"))


def _list(node: _Node, link: Link) -> Markup:
    return element(
        "ul",
        _compiled(node.compiled, link) if node.compiled else None,
        (_call(frame, called, link) for frame, called in node.calls.items()),
    )


def _call(frame: Frame, node: _Node, link: Link) -> Markup:
    """A frame; those that call only one other are in the same item."""
    frames = [frame]
    while len(node.calls) == 1 and not node.compiled:
        ((only, node),) = node.calls.items()
        frames.append(only)
    lines = (element("div", element("code", frame_in_words(one)), title=one.filename) for one in frames)
    return element("li", lines, _list(node, link))


def frame_in_words(frame: Frame) -> str:
    """`train.py:17 in step`."""
    return f"{frame.filename.rsplit('/', 1)[-1]}:{frame.line} in {frame.name}"


def _compiled(compiled: Mapping[str, set[int]], link: Link) -> Markup:
    return element(
        "li",
        (
            [link(min(ranks), compile_id), f" (rank {ranks_cell(sorted(ranks))}) " if len(ranks) else None]
            for compile_id, ranks in compiled.items()
        ),
        class_="leaf",
    )
