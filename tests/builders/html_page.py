"""A parsed HTML page: elements, their text, and the rows of tables by caption."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"meta", "br", "col", "link"})


@dataclass
class Element:
    """An element and its content."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it; of a drawing also the titles that a pointer shows."""
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, *names: str, **attributes: str) -> list[Element]:
        """The elements of any of these names within it, or of all; `class_` may name one of several classes."""
        return [one for one in self._walk() if (not names or one.name in names) and one._has(attributes)]

    def one(self, name: str, **attributes: str) -> Element:
        (found,) = self.all(name, **attributes)
        return found

    def rows(self, caption: str) -> list[list[str]]:
        """The cells of the body of a table, row by row."""
        (table,) = [one for one in self.all("table") if one.one("caption").text.startswith(caption)]
        return [[cell.text.strip() for cell in row.all("th", "td")] for row in table.one("tbody").all("tr")]

    def _walk(self) -> Iterator[Element]:
        for child in self.children:
            if isinstance(child, Element):
                yield child
                yield from child._walk()

    def _has(self, attributes: dict[str, str]) -> bool:
        return all(
            value in self.attributes.get("class", "").split()
            if key == "class_"
            else self.attributes.get(key.replace("_", "-")) == value
            for key, value in attributes.items()
        )


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("")]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} has an attribute twice: {attrs}"
        one = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(one)
        if tag not in VOID:
            self.open.append(one)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"</{tag}> ends <{self.open[-1].name}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def read_html(text: str) -> Element:
    """The root of a page or of a part of one; each element must be ended where it was begun."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    (root,) = reader.open
    return root
