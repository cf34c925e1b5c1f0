"""Names in files of metrics: columns of times, hosts and devices; units; values that mean that there is none."""

from __future__ import annotations

import re

MISSING = frozenset({
    "", "-", "--", "?", "n/a", "na", "nan", "+nan", "-nan", "none", "null", "nil", "unknown",
    "no data", "[n/a]", "[na]", "[not supported]", "not supported", "[unsupported]", "unsupported",
    "[not found]", "[unknown error]", "[gpu requires reset]", "[insufficient permissions]", "err!",
    "[err!]",
})  # fmt: skip
"""Cells without a value, in lower case."""

LARGEST = 9.2e18
"""Numbers of this size mean that there is no value: DCGM writes 0x7ffffffffffffff0."""
DCGM = "DCGM_"
"""How names of DCGM's metrics begin."""
BLANK_32, BLANK_FLOAT = 0x7FFFFFF0, 140_737_488_355_328.0
"""What DCGM writes for a value of 32 bits or a float that it does not have, or one of the 15 numbers after it."""
BLANKS = 16

TIME_NAMES = [
    "epoch_ns", "timestamp_ns", "time_ns", "ts_ns", "epoch_us", "timestamp_us", "time_us", "ts_us",
    "epoch_ms", "timestamp_ms", "time_ms", "ts_ms", "epoch_s", "epoch_sec", "timestamp_s", "time_s",
    "ts_s", "epoch", "epoch_time", "unix", "unix_time", "unixtime", "unix_timestamp", "timestamp",
    "time_stamp", "timestamps", "datetime", "date_time", "ts", "walltime", "wall_time", "time",
    "local_time", "localtime", "date", "clock", "t",
]  # fmt: skip
"""Columns of times, the most exact first."""
TIME_UNIT = re.compile(r"(?:^|_)(ns|us|ms|s|sec|seconds)$")
NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "sec": 10**9, "seconds": 10**9}
DATE, TIME = "date", "time"

HOST_NAMES = frozenset(["host", "hostname", "host_name", "node", "nodename", "node_name", "machine"])
INDEX_NAMES = frozenset([
    "index", "gpu", "gpu_id", "gpu-id", "gpuid", "gpu_index", "device", "device_id", "device_index",
    "deviceid", "card", "gpu_idx", "idx", "minor_number",
])  # fmt: skip
UUID_NAMES = frozenset(["uuid", "gpu_uuid", "gpu-uuid"])
BUS_NAMES = frozenset(("pci.bus_id", "pci_bus_id", "gpu_bus_id", "pci.bus"))
"""Names GPUs if there is neither an index nor a UUID."""
PID_NAMES = frozenset(("pid", "process_id"))
RANK_NAMES = frozenset(("rank", "global_rank"))
SERIES_NAMES = frozenset(("metric", "metric_name", "counter", "counter_name", "series", "interface", "disk"))
"""Columns whose text tells counters apart."""
VALUE = "value"
"""The name of the values in a table with the names of metrics in another column."""
OF_NVIDIA_SMI = frozenset({
    "utilization.gpu", "utilization.memory", "memory.used", "memory.free", "power.draw",
    "temperature.gpu", "clocks.sm", "clocks.current.sm", "clocks.gr", "clocks.mem", "fan.speed",
})  # fmt: skip
"""Columns by which a table is one of nvidia-smi."""
LABELS = frozenset([
    "name", "gpu_name", "gpu_bus_id", "pci_bus_id", "pci.bus_id", "pci.bus", "driver_version",
    "vbios_version", "serial", "gpu_serial", "modelname", "model", "pstate", "compute_mode",
    "persistence_mode", "entity", "job", "instance", "xcp",
])  # fmt: skip
"""Columns and labels that describe a device, and are no values."""

BRACKETS = re.compile(r"\s*[\[(]\s*([^\])]{0,24})\s*[\])]\s*$")
UNIT_SUFFIXES = {
    "pct": "%", "percent": "%", "percentage": "%", "kib": "KiB", "mib": "MiB", "gib": "GiB",
    "kb": "kB", "mb": "MB", "gb": "GB", "bytes": "bytes", "watts": "W", "watt": "W", "mw": "mW",
    "mhz": "MHz", "celsius": "C", "seconds": "s", "mbps": "Mbit/s",
}  # fmt: skip
"""The last word of a name, and the unit that it means."""

UNITS_OF_NAMES = {
    "power_usage": "W", "max_power": "W", "hotspot_temperature": "C", "memory_temperature": "C",
    "gfx_clk": "MHz", "mem_clock": "MHz", "gfx": "%", "mem": "%", "vram_used": "MB",
    "vram_total": "MB", "temperature.gpu": "C", "temperature.memory": "C", "gputl": "%", "power": "W",
    "fbusd": "MiB",
}  # fmt: skip
"""Units of columns whose programs do not write them, and of which the manuals give them."""

UNIT_OF_CELL = re.compile(r"\s*([-+]?[\d.,]*\d(?:[eE][-+]?\d+)?)\s*([%A-Za-zµ°][\w/%°]{0,11})\s*$")

UNITS_OF_SERIES = (
    (re.compile(r"DCGM_FI_DEV_(?:GPU|MEM_COPY|ENC|DEC)_UTIL$"), "%"),
    (re.compile(r"DCGM_FI_DEV_FB_(?:USED|FREE|TOTAL|RESERVED)$"), "MiB"),
    (re.compile(r"DCGM_FI_DEV_(?:SM|MEM)_CLOCK$"), "MHz"),
    (re.compile(r"DCGM_FI_DEV_(?:GPU|MEMORY)_TEMP$|_temperature(?:_celsius)?$|_celsius$"), "C"),
    (re.compile(r"DCGM_FI_DEV_POWER_USAGE$|_watts$"), "W"),
)
"""Units of metrics, by their names."""

SCALES = {
    **dict.fromkeys(("b", "byte", "bytes"), ("bytes", 1)),
    **{f"{prefix}b": ("bytes", 1000 ** (power + 1)) for power, prefix in enumerate("kmgt")},
    **{f"{prefix}ib": ("bytes", 1024 ** (power + 1)) for power, prefix in enumerate("kmgt")},
    "w": ("watts", 1),
    "mw": ("watts", 1e-3),
    "kw": ("watts", 1e3),
    "hz": ("hertz", 1),
    "khz": ("hertz", 1e3),
    "mhz": ("hertz", 1e6),
    "ghz": ("hertz", 1e9),
}
"""Units in lower case that cells of one column can mix: what they measure, and how much one is."""

SINCE_BOOT = frozenset(["si", "so", "bi", "bo", "in", "cs", "us", "sy", "id", "wa", "st", "gu"])
"""Columns of vmstat whose first row is an average since the machine was started."""


def name_and_unit(header: str) -> tuple[str, str]:
    """The name of a column without its unit, and the unit."""
    text = header.strip().strip('"').strip()
    if match := BRACKETS.search(text):
        return text[: match.start()].strip(), match[1].strip()
    return text, unit_of_name(text)


def unit_of_name(name: str) -> str:
    """The unit that the name of a metric means; empty if it means none."""
    suffix = UNIT_SUFFIXES.get(name.rsplit("_", 1)[-1].lower(), "") if "_" in name else ""
    known = suffix or UNITS_OF_NAMES.get(name.lower(), "")
    return known or next((unit for pattern, unit in UNITS_OF_SERIES if pattern.search(name)), "")


DEVICE = re.compile(r"(?:card|nvidia|gpu|amdgpu|device|cuda)?[\s:_-]*(\d{1,6})", re.IGNORECASE)
UUID = re.compile(r"(?:GPU|MIG)-[\w/-]{6,80}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def is_device(cell: str) -> bool:
    """True if a cell is a number or a UUID of a GPU, and not the name of a disk."""
    return bool(DEVICE.fullmatch(cell) or UUID.fullmatch(cell))


def index_of_device(cell: str) -> str:
    """The number in `0`, `card0`, `nvidia0`, `GPU 3`; other names of devices as they are."""
    text = cell.strip()
    match = DEVICE.fullmatch(text)
    return str(int(match[1])) if match else text
