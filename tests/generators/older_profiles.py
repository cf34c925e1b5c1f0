"""Profiles of the synthetic job as earlier versions of torch, and torch on ROCm, write them."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

Element = dict[str, Any]
Document = dict[str, Any]

OLD_CATEGORIES = {
    "cpu_op": "Operator",
    "user_annotation": "Operator",
    "cuda_runtime": "Runtime",
    "kernel": "Kernel",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
}
ON_CPU = frozenset({"cpu_op", "user_annotation", "cuda_runtime", "python_function"})
ON_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
SIZES = ("Input Dims", "Input type")
LAUNCH_SHAPE = ("device", "context", "stream", "correlation", "bytes", "grid", "block")


def rewritten(source: Path, target: Path, change: Callable[[Document], Document]) -> None:
    document = json.loads(gzip.decompress(source.read_bytes()), parse_float=Decimal)
    target.write_text(json.dumps(change(document), default=float))


def of_2023(document: Document) -> Document:
    """Whole microseconds; records and kernels of communication do not say what they are of."""
    return {
        "schemaVersion": 1,
        "distributedInfo": {
            name: document["distributedInfo"][name] for name in ("backend", "rank", "world_size")
        },
        "traceEvents": [
            changed
            for element in _in_whole_microseconds(document)
            if element.get("cat")
            not in ("gpu_user_annotation", "cuda_sync", "python_function", "cpu_instant_event")
            for changed in (element | {"args": _plain_arguments(element)} if "args" in element else element,)
        ],
    }


def _in_whole_microseconds(document: Document) -> Iterator[Element]:
    base = document["baseTimeNanoseconds"] // 1000
    for element in document["traceEvents"]:
        times = {name: int(element[name]) for name in ("ts", "dur") if name in element}
        yield element | times | {"ts": base + times["ts"]}


def _plain_arguments(element: Element) -> Element:
    args: Element = element["args"]
    if element.get("cat") in ON_GPU or element.get("cat") == "cuda_runtime":
        # There the two numbers are equal: the first one is not of an operator.
        kept = {name: args[name] for name in (*LAUNCH_SHAPE, "cbid") if name in args}
        return {"External id": args["correlation"], **kept}
    if element.get("cat") in ("cpu_op", "user_annotation"):
        names = ("External id", "Ev Idx", "Fwd thread id", "Sequence number", *SIZES)
        return {name: args[name] for name in names if name in args}
    return args


def of_2021(document: Document) -> Document:
    """Other categories and names of arguments; threads are texts, and the rank is missing."""
    return {"schemaVersion": 1, "traceEvents": [*map(_as_in_2021, of_2023(document)["traceEvents"])]}


def _as_in_2021(element: Element) -> Element:
    category = element.get("cat")
    if category == "ac2g":
        return element | {"cat": "async", "name": "launch"}
    if category not in OLD_CATEGORIES:
        return element
    args = {
        "external id"
        if name == "External id" and category not in ("cpu_op", "user_annotation")
        else name: value
        for name, value in element["args"].items()
        if name != "Ev Idx"
    }
    thread = f"stream {element['tid']}" if category in ON_GPU else str(element["tid"])
    return element | {"cat": OLD_CATEGORIES[category], "tid": thread, "args": args}


def on_rocm(document: Document) -> Document:
    """The names of HIP; the profile begins in the first step, and does not say what earlier calls launched."""
    calls = [element for element in document["traceEvents"] if element.get("cat") == "cuda_runtime"]
    begin = calls[len(calls) // 8]["ts"]
    unseen = {call["args"]["correlation"] for call in calls if call["ts"] < begin}
    versions = {"roctracer_version": 4.1, "hip_runtime_version": 60_443_483}
    header = {name: value for name, value in document.items() if not name.startswith("cu")}
    return {
        **versions,
        **header,
        "traceEvents": [
            element | {"name": re.sub("^cuda", "hip", element["name"])} | _of_unseen_call(element, unseen)
            for element in document["traceEvents"]
            if element["ts"] >= begin or element["ph"] == "M" or element.get("cat") in ON_GPU
        ],
    }


def _of_unseen_call(element: Element, unseen: set[int]) -> Element:
    args = element.get("args", {})
    if element.get("cat") not in ON_GPU or args["correlation"] not in unseen:
        return {}
    return {"args": {name: args[name] for name in LAUNCH_SHAPE if name in args}}
