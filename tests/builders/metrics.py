"""Files of metrics in a few lines, and what the reader makes of them."""

from __future__ import annotations

from typing import Any

from builders.inputs import held
from tracelink._model.metrics import Readings
from tracelink._run.processes import Processes
from tracelink.converters.metrics.reader import MetricsFileReader

as_source = held("metrics.csv")


Samples = dict[tuple[str, str, str], list[tuple[int, float]]]


def read(data: str | bytes, name: str = "metrics.csv") -> Readings:
    return MetricsFileReader().read_metrics(as_source(data, name), Processes(1))


def samples(readings: Readings) -> Samples:
    """The samples by host and device, name and unit."""
    found: Samples = {}
    counters = readings.counters
    for track, time, value in zip(
        counters.track.tolist(), counters.time.tolist(), counters.value.tolist(), strict=True
    ):
        gauge = readings.gauges[track]
        device = ":".join(part for part in (gauge.host, gauge.device or gauge.uuid) if part)
        found.setdefault((device, gauge.name, gauge.unit), []).append((time, value))
    return found


def query_range(*series: tuple[dict[str, str], list[Any]]) -> str:
    """An answer of Prometheus with these labels and values."""
    import json

    result = [{"metric": labels, "values": values} for labels, values in series]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


SMI = "timestamp, index, uuid, utilization.gpu [%], power.draw [W], clocks.current.sm [MHz]"


def nvidia_smi(seconds: int = 3, gpus: int = 2, slow: int = -1) -> str:
    """A query of nvidia-smi from 2026/11/18 06:42:10 on; the GPU `slow` runs at 1,100 MHz and the others at 1,980."""
    rows = [
        f"2026/11/18 06:42:{10 + second}.0{13 + gpu}, {gpu}, GPU-{gpu}bdee8b4-22ac, {90 + gpu} %, "
        f"{600 + second}.50 W, {1100 if gpu == slow else 1980} MHz"
        for second in range(seconds)
        for gpu in range(gpus)
    ]
    return "\n".join([SMI, *rows, ""])


def one_of_each() -> dict[str, str]:
    """A small file of each dialect, by name."""
    dmon = (
        "#Date       Time        gpu    pwr     sm   pclk\n#YYYYMMDD   HH:MM:SS    Idx      W      %    MHz\n"
    )
    dcgmi = "#Entity   GPUTL  POWER\nID               W\nGPU 0     61     412.350\nGPU 1     N/A    71.020\n"
    vmstat = "procs -memory- --io-- -cpu- -----timestamp-----\n r  b   free  bi us                 UTC\n"
    card = '{"card0": {"GPU use (%)": "73", "Temperature (Sensor junction) (C)": "61.0"}}'
    amd = '[{"gpu": 0, "timestamp": 1794984130, "power_usage": {"value": 412, "unit": "W"}, "gfx": "N/A"}]'
    exported = (
        'DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-1b",Hostname="n1"} 1980\nnode_load1 2.5 1794984130123\n'
    )
    series = {"__name__": "DCGM_FI_DEV_POWER_USAGE", "gpu": "0", "Hostname": "n1"}
    return {
        "nvidia_smi.csv": nvidia_smi(),
        "headless.txt": "2026/11/18 06:42:10.013, 0, 56, 412.35\n2026/11/18 06:42:11.013, 0, 57, [N/A]\n",
        "dmon.txt": f"{dmon} 20261118 06:42:10   0  412  56  1980\n 20261118 06:42:11   0    -  56  1755\n",
        "dcgmi.txt": dcgmi * 2,
        "vmstat.txt": f"{vmstat} 6  0  9981  1556 65 2026-11-18 06:42:10\n 7  0  9980    28 84 2026-11-18 06:42:11\n",
        "rocm.csv": "device,GPU use (%),sclk clock speed:\ncard0,73,(2100Mhz)\ncard1,1,(132Mhz)\n" * 2,
        "rocm.json": f"1794984130\n{card}\n1794984131\n{card}\n",
        "amd.csv": "timestamp,gpu,power_usage,vram_used\n1794984130,0,412,14 MB\n1794984131,0,N/A,1 GB\n",
        "amd.json": amd,
        "exporter.prom": f"# HELP DCGM_FI_DEV_SM_CLOCK SM clock.\n{exported}" * 2,
        "range.json": query_range(
            (series, [[1794984130 + second, str(600 + second)] for second in range(9)])
        ),
        "dynolog.log": 'I2026 time = 2026-11-18T06:42:10.141Z data = {"device":0,"gpu_power_draw":"655.100"}\n',
        "any.csv": "epoch_s;host;gpu;load\n1794984130.25;n1;0;1.5\n1794984131.25;n1;0;2.5\n",
    }
