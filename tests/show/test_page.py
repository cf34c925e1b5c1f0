"""Tests of tracelink._show.page."""

from __future__ import annotations

import base64
import hashlib
import html

from tracelink._show.markup import element
from tracelink._show.page import Assets, closing, left_out, opening, page_header


def test_page_in_whole() -> None:
    assets = Assets("p { margin: 0 }", "follow();")
    headline = page_header("2 < 3", element("p", "why"), sections=[("a", "First")], class_="ok")
    page = opening("2 < 3", assets) + headline.text + closing("merge", assets)
    style, script = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (assets.style, assets.script)
    )
    policy = (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert page == (
        '<!DOCTYPE html>\n<html lang="en" dir="ltr"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><title>tracelink: 2 &lt; 3</title>'
        "<style>p { margin: 0 }</style></head>\n<body>\n"
        '<header class="ok"><h1>2 &lt; 3</h1>\n<p>why</p>\n'
        '<nav aria-label="Sections"><a href="#a">First</a> </nav></header>'
        "<footer>Written by tracelink merge.</footer><script>follow();</script>\n</body>\n</html>\n"
    )


def test_page_without_script_allows_none() -> None:
    assert "script-src" not in Assets("p {}").policy()
    assert closing("diagnose", Assets("p {}")) == (
        "<footer>Written by tracelink diagnose.</footer></body>\n</html>\n"
    )


def test_left_out() -> None:
    assert left_out([1, 2], 2, "more row") is None
    assert left_out([1, 2, 3], 2, "more row") == element("p", "1 more row not shown.")
