"""The numbers and the picture of docs/performance.md, from the results of a run.

python benchmarks/page.py            # writes both from benchmarks/results.json
python benchmarks/page.py --check    # 1 if they are not what it would write

Only the standard library is needed, so that a test can check the page anywhere.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results.json"
PAGE = FOLDER.parent / "docs" / "performance.md"
PICTURE = FOLDER.parent / "docs" / "images" / "performance.svg"

PROFILES = {
    "kineto": "no stacks",
    "kineto-stacks": "Python stacks",
    "kineto-communication": "much communication",
}
SECTIONS: Mapping[str, Mapping[str, str]] = {
    "reading": PROFILES,
    "merging": {
        "merge": "no stacks",
        "merge-stacks": "Python stacks",
        "merge-communication": "much communication",
        "gz": "no stacks, `.json.gz`",
        "ranks": "profiles of many ranks",
    },
    "others": {
        "pair": "execution trace + profile",
        "linear": "no stacks, 25 to 400 MB",
        "diagnose-large": "512 dumps of 2000 entries",
        "inspect": "written by tracelink",
        "start-up": "whole commands",
    },
}
"""The tables of the page: their suites, and what the input of each is called."""

SUITES = tuple(suite for suites in SECTIONS.values() for suite in suites)
BLOCK = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)
WORDS = {"pass": "met", "fail": "missed"}

Results = Mapping[str, Any]


def main() -> int:
    """Writes the page and the picture, or says whether they are current."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing, exit 1 if something is out of date"
    )
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text("utf-8"))
    if not arguments.check:
        write(results)
    old = [
        path
        for path, text in written(results).items()
        if not path.exists() or path.read_text("utf-8") != text
    ]
    for path in old:
        print(f"{path.name} does not agree with {RESULTS.name}; run: python benchmarks/page.py")
    return int(bool(old))


def write(results: Results) -> None:
    """Writes the page and the picture."""
    for path, text in written(results).items():
        path.write_text(text, "utf-8")


def written(results: Results) -> dict[Path, str]:
    """What has to be in each file."""
    return {PAGE: filled(PAGE.read_text("utf-8"), results), PICTURE: picture(results)}


def filled(page: str, results: Results) -> str:
    """The page with the numbers of a run between its markers."""
    blocks = {name: table_of(suites, results) for name, suites in SECTIONS.items()}
    blocks |= {"machine": machine(results), "bars": table_of_bars(results)}
    return BLOCK.sub(lambda found: f"{found[1]}\n{blocks[found[2]]}\n\n{found[3]}", page)


def machine(results: Results) -> str:
    """What the numbers were measured on."""
    facts = results["machine"]
    suites = [results["suites"][name] for name in SUITES if name in results["suites"]]
    commits = ", ".join(dict.fromkeys(f"`{suite['commit']}`" for suite in suites))
    loads = [suite["load"] for suite in suites]
    rounds = " to ".join(map(str, sorted({suite["rounds"] for suite in suites})))
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"Measured {facts['date']} at commit {commits}: {facts['cores']} cores ({facts['processor']}), "
        f"{facts['system']}, Python {facts['python']}; {versions}. Inputs of {results['options']['size_mb']} MB, "
        f"best of {rounds} rounds; load average {min(loads)} to {max(loads)} "
        f"(above {facts['cores']}: other programs ran too)."
    )


def table_of(suites: Mapping[str, str], results: Results) -> str:
    """The rows of some suites, and what could not be measured."""
    lines = [
        "| input | what | MB | CPU s | wall s | MB/s of CPU | peak MB | peak / input | |",
        "|---|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    for suite, label in suites.items():
        result = results["suites"].get(suite, {"rows": [], "not_measured": [f"{suite}: not run"]})
        lines += [row_line(label, row) for row in result["rows"]]
        lines += [missing_line(label, said) for said in result["not_measured"]]
    return "\n".join(lines)


def row_line(label: str, row: Mapping[str, Any]) -> str:
    """One row of a table; a dash where there is no number."""
    size, cpu, wall, peak = (row[name] for name in ("input_mb", "cpu_s", "wall_s", "peak_mb"))
    cells = (
        number(size, 0),
        number(cpu, 2),
        number(wall, 2),
        number(size and size / cpu, 0),
        number(peak, 0),
        number(size and peak / size, 2),
    )
    name = f"**{row['job']}**" if row["job"].startswith("tracelink") else row["job"]
    return f"| {label} | {name} | {' | '.join(cells)} | {row['remark']} |"


def missing_line(label: str, said: str) -> str:
    """A tool that could not be measured, and why."""
    name, _, reason = said.partition(": ")
    return f"| {label} | {name} | | | | | | | not measured: {reason} |"


def number(value: float, decimals: int) -> str:
    """With a comma between thousands."""
    return f"{value:,.{decimals}f}" if value else "-"


def table_of_bars(results: Results) -> str:
    """Each bar, what was measured, and whether it is met."""
    lines = ["| suite | what | measured | bar | goal | |", "|---|---|--:|--:|--:|---|"]
    for suite in SUITES:
        for bar in results["suites"].get(suite, {"bars": []})["bars"]:
            sign = "≥" if bar["at_least"] else "≤"
            moonshot = "" if bar["moonshot"] is None else f"{sign} {bar['moonshot']:g}"
            word = "goal reached" if bar["reached_moonshot"] else WORDS[bar["result"]]
            lines.append(
                f"| `{suite}` | {bar['what']} | {bar['measured']:.2f} | {sign} {bar['bar']:g} | {moonshot} | {word} |"
            )
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Panel:
    """One of the two halves of the picture: a number of each row."""

    title: str
    left: int
    decimals: int
    name: str

    def value(self, row: Mapping[str, Any]) -> float:
        """The number of a row."""
        return row["input_mb"] / row["cpu_s"] if self.name == "rate" else row["peak_mb"] / row["input_mb"]


WIDTH, BAR_WIDTH, NAME_WIDTH = 900, 250, 200
LINE, GROUP_GAP, TOP = 20, 34, 66
RATE = Panel("MB of profile per second of CPU: longer is faster", NAME_WIDTH, 0, "rate")
MEMORY = Panel(
    "peak memory / size of the profile: shorter is better", NAME_WIDTH + BAR_WIDTH + 100, 2, "memory"
)
DRAWN = {
    "tracelink.load, 1 job": "tracelink (reads and links)",
    "orjson.loads": "orjson.loads (reads)",
    "json.loads": "json.loads (reads)",
    "Perfetto's engine v55": "Perfetto's engine, wasm",
    "TraceLens": "TraceLens",
    "HTA": "HTA",
}
STYLE = """
  text { font: 13px -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
  .title { font-weight: 600; }
  .faint { fill: #59636e; }
  .card { fill: #ffffff; stroke: #d1d9e0; }
  .ours { fill: #1a7f64; }
  .other { fill: #9aa4af; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .faint { fill: #9198a1; }
    .card { fill: #0d1117; stroke: #3d444d; }
    .ours { fill: #3fb995; }
    .other { fill: #656c76; }
  }
"""


def picture(results: Results) -> str:
    """Speed and memory of reading each profile, as SVG that has its own background, light or dark."""
    groups = {
        label: {row["job"]: row for row in results["suites"].get(suite, {"rows": []})["rows"]}
        for suite, label in PROFILES.items()
    }
    shapes, top = list[str](), TOP
    for label, rows in groups.items():
        shapes.append(text(16, top, f"Profile: {label}", "title"))
        for job, name in DRAWN.items():
            top += LINE
            shapes.append(text(NAME_WIDTH - 10, top, name, "title" if is_ours(job) else "", "end"))
            shapes += bars_of(job, rows, groups, top)
        top += GROUP_GAP
    height = top - GROUP_GAP + 22
    titles = [text(panel.left, 30, panel.title, "title") for panel in (RATE, MEMORY)]
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    card = f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>'
    label = 'role="img" aria-label="Speed and memory of reading a profile"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {label}>'
    return "\n".join([head, f"<style>{STYLE}</style>", card, *titles, *shapes, "</svg>", ""])


def bars_of(
    job: str, rows: Mapping[str, Any], groups: Mapping[str, Mapping[str, Any]], top: int
) -> Iterator[str]:
    """The bar of a row in each panel, with its number; a word where it was not measured."""
    if job not in rows:
        yield text(RATE.left, top, "not measured", "faint")
        return
    for panel in (RATE, MEMORY):
        values = [panel.value(found[name]) for found in groups.values() for name in DRAWN if name in found]
        value = panel.value(rows[job])
        width = max(1.0, BAR_WIDTH * value / max(values))
        kind = "ours" if is_ours(job) else "other"
        yield f'<rect class="{kind}" x="{panel.left}" y="{top - 12}" width="{width:.1f}" height="15" rx="2"/>'
        yield text(panel.left + round(width) + 6, top, number(value, panel.decimals))


def is_ours(job: str) -> bool:
    """Whether a row is tracelink's."""
    return job.startswith("tracelink")


def text(left: int, top: int, words: str, kind: str = "", anchor: str = "") -> str:
    """A line of text."""
    attributes = "".join(
        f' {name}="{value}"' for name, value in (("class", kind), ("text-anchor", anchor)) if value
    )
    return f'<text x="{left}" y="{top}"{attributes}>{escape(words)}</text>'


if __name__ == "__main__":
    sys.exit(main())
