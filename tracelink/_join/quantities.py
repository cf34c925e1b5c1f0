"""Which counters of a GPU measure its clocks, power, temperature and use, whichever program sampled them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from tracelink._model.events import Track, TrackKind


class Quantity(StrEnum):
    """What of a GPU is compared and averaged; the value is the name of a column."""

    SM_CLOCK = "sm_clock_mhz"
    MEMORY_CLOCK = "memory_clock_mhz"
    POWER = "power_w"
    TEMPERATURE = "temperature_c"
    UTILIZATION = "utilization_percent"


_LIMITS = re.compile(
    r"max|min|limit|total|enforced|default|requested|applications|threshold|slowdown|shutdown|cap|target|violation",
    re.IGNORECASE,
)
"""Words in the names of what is not measured but set."""

_NAMES: Mapping[Quantity, Sequence[re.Pattern[str]]] = {
    quantity: [re.compile(pattern, re.IGNORECASE) for pattern in patterns]
    for quantity, patterns in {
        Quantity.SM_CLOCK: (
            r"clocks\.(?:current\.)?sm",
            r"DCGM_FI_DEV_SM_CLOCK|SMCLK",
            r"pclk|gfx_clk|sclk.*|(?:gpu_)?sm_clock(?:_mhz)?|gfx_0?\.?clk",
            r"clocks\.(?:current\.)?(?:gr|graphics)|.*(?:graphics|gfx)_?clo?c?k.*|gpu_(?:core_)?clock(?:_mhz)?",
        ),
        Quantity.MEMORY_CLOCK: (
            r"clocks\.(?:current\.)?mem(?:ory)?|DCGM_FI_DEV_MEM_CLOCK|MMCLK",
            r"mclk.*|mem(?:ory)?_clo?c?k(?:_mhz)?|gpu_mem(?:ory)?_clock(?:_mhz)?",
        ),
        Quantity.POWER: (
            r"power\.draw(?:\.instant|\.average)?|DCGM_FI_DEV_POWER_USAGE|POWER|pwr",
            r"power_usage|gpu_power(?:_draw|_usage|_watts)?|.*(?:package|socket)_? ?power.*|power(?:_w|_watts)?",
        ),
        Quantity.TEMPERATURE: (
            r"temperature\.gpu|DCGM_FI_DEV_GPU_TEMP|TMPTR|gtemp",
            r"hotspot_temperature|temperature \(sensor junction\).*|.*temperature.*hotspot.*",
            r"gpu_temp(?:erature)?(?:_c|_celsius)?",
            r"temperature \(sensor edge\).*|temperature|temp",
        ),
        Quantity.UTILIZATION: (
            r"utilization\.gpu|DCGM_FI_DEV_GPU_UTIL|GPUTL|sm",
            r"gpu use|gfx|gpu_(?:device_)?util(?:ization)?(?:_percent)?",
        ),
    }.items()
}
"""Names of counters, the best first."""


class Gauges(Struct, frozen=True):
    """The tracks of one rank that measure its GPU."""

    rank: int
    tracks: Mapping[Quantity, int]
    """The index of the track of each quantity; only the first GPU of a rank is compared."""


def gauges_of(tracks: Sequence[Track]) -> list[Gauges]:
    """The tracks that measure the GPU of each rank; what measures a host, or a GPU without a rank, is none."""
    found: dict[int, dict[Quantity, tuple[int, int]]] = {}
    for number, track in enumerate(tracks):
        if track.kind != TrackKind.COUNTER or track.process_label or _LIMITS.search(track.identity):
            continue
        for quantity, patterns in _NAMES.items():
            quality = next((at for at, name in enumerate(patterns) if name.fullmatch(track.identity)), None)
            if quality is None:
                continue
            of_rank = found.setdefault(track.rank, {})
            if quantity not in of_rank or quality < of_rank[quantity][0]:
                of_rank[quantity] = quality, number
    return [
        Gauges(rank, {quantity: number for quantity, (_, number) in of_rank.items()})
        for rank, of_rank in sorted(found.items())
    ]
