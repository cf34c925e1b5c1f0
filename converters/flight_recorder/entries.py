"""One entry of a dump as a person reads it: with its sizes, its state and its stack."""

from __future__ import annotations

from typing import Any

from tracelink.converters.flight_recorder.schema import FRAME_FILE, FRAME_LINE, FRAME_NAME, Layout
from tracelink.diagnosis import Entry, Frame


def entry_of(said: Any, layout: Layout) -> Entry | None:
    """The entry; what it says in a way that cannot be used counts as not said."""
    if type(said) is not dict:
        return None
    group, description = _group(said, layout)
    message = said.get(layout.is_message) is True
    created = _number(said.get(layout.created))
    retired = said.get(layout.retired)
    return Entry(
        group=group,
        description=description,
        sequence=_number(said.get(layout.p2p_sequence if message else layout.collective_sequence)),
        operation=_text(said.get(layout.name)),
        input_sizes=_sizes(said.get(layout.input_sizes)),
        output_sizes=_sizes(said.get(layout.output_sizes)),
        input_types=_texts(said.get(layout.input_types)),
        output_types=_texts(said.get(layout.output_types)),
        state=_text(said.get(layout.state)),
        retired=retired if type(retired) is bool else None,
        created_ns=created * layout.created_unit_ns if created else None,
        timeout_ms=_number(said.get(layout.timeout)),
        frames=tuple(_frame(one) for one in _list(said.get(layout.frames)) if type(one) is dict),
    )


def _group(said: dict[Any, Any], layout: Layout) -> tuple[str, str]:
    group = _list(said.get(layout.group))
    if len(group) == 2:
        return _text(group[0]), _text(group[1])
    number = said.get(layout.group_id)
    return (str(number) if type(number) in (int, str) else ""), ""


def _frame(said: dict[Any, Any]) -> Frame:
    return Frame(_text(said.get(FRAME_NAME)), _text(said.get(FRAME_FILE)), _number(said.get(FRAME_LINE)) or 0)


def _sizes(said: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(size for size in _list(one) if type(size) is int) for one in _list(said))


def _texts(said: Any) -> tuple[str, ...]:
    return tuple(map(_text, _list(said)))


def _list(said: Any) -> Any:
    return said if type(said) in (list, tuple) else ()


def _text(said: Any) -> str:
    return said if type(said) is str else ""


def _number(said: Any) -> int | None:
    return said if type(said) is int and 0 <= said < 1 << 63 else None
