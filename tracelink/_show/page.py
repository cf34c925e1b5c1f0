"""The frame of an HTML page: one file that loads and sends nothing, with its styles and scripts inside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sized
from functools import cache
from importlib import resources

from msgspec import Struct

from tracelink._model.text import counted
from tracelink._show.charts import STYLE as CHARTS
from tracelink._show.markup import Child, Markup, element

HERE, STYLE, SCRIPT = "tracelink._show", "base.css", "script.js"
LONG = 160
"""Characters of a headline from which it is set in smaller letters."""


class Assets(Struct, frozen=True):
    """The styles and the scripts of a page."""

    style: str
    script: str = ""

    @classmethod
    def of(cls, package: str = "") -> Assets:
        """The style and the script of every page, then `style.css` and `script.js` of a package, if it has them."""
        style, script = (_file(package, name) if package else "" for name in ("style.css", SCRIPT))
        return cls(f"{_file(HERE, STYLE)}{CHARTS}{style}", f"{_file(HERE, SCRIPT)}{script}")

    def policy(self) -> str:
        """The content security policy: only this style is applied, only this script runs, nothing is loaded or sent."""
        script = f"script-src {_digest(self.script)}; " if self.script else ""
        return f"default-src 'none'; style-src {_digest(self.style)}; {script}base-uri 'none'; form-action 'none'"


def opening(title: str, assets: Assets) -> str:
    """All of a page that is before the content of its body."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=assets.policy()),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"tracelink: {title}"),
        element("style", Markup(assets.style)),
    )
    return f'<!DOCTYPE html>\n<html lang="en" dir="ltr">{head.text}\n<body>\n'


def closing(command: str, assets: Assets) -> str:
    """All of a page that is after the content of its body; `command` wrote it."""
    footer = element("footer", f"Written by tracelink {command}.")
    script = f"<script>{assets.script}</script>\n" if assets.script else ""
    return f"{footer.text}{script}</body>\n</html>\n"


def page_header(headline: str, *content: Child, sections: Iterable[tuple[str, str]], class_: str) -> Markup:
    """The headline, what belongs to it, and links to the sections."""
    links: list[Child] = [[element("a", title, href=f"#{anchor}"), " "] for anchor, title in sections]
    return element(
        "header",
        element("h1", headline, class_="long" if len(headline) > LONG else None),
        content,
        element("nav", links, aria_label="Sections"),
        class_=class_,
    )


def left_out(listed: Sized, most: int, thing: str) -> Child:
    """A sentence on what is not shown of a long list; nothing if all of it is."""
    hidden = len(listed) - most
    return element("p", f"{counted(hidden, thing)} not shown.") if hidden > 0 else None


@cache
def _file(package: str, name: str) -> str:
    file = resources.files(package).joinpath(name)
    return file.read_text("utf-8") if file.is_file() else ""


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
