"""`tracelink.converters.metrics.tables`: the tables that programs write."""

from __future__ import annotations

import pytest

from builders.inputs import reasons
from builders.metrics import query_range, read, samples
from tracelink._model.columns import SECOND
from tracelink._model.errors import UnreadableError
from tracelink._model.metrics import Basis

AT = 1_794_984_130 * SECOND
"""2026-11-18 06:42:10 UTC."""
MS = 10**6

QUERY = """timestamp, index, utilization.gpu [%], power.draw [W]
2026/11/18 06:42:10.013, 0, 56 %, 412.35 W
2026/11/18 06:42:10.017, 1, [Not Supported], [N/A]
timestamp, index, utilization.gpu [%], power.draw [W]
2026/11/18 06:42:11.013, 0, 97 %, 655.10 W
2026/11/18 06:42:11.017, 1, 3 %, 71.02 W
2026/11/18 06:42:12.013, 0, 9
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_query_of_nvidia_smi_with_repeated_headers_and_a_cut_row(newline: str, encoding: str) -> None:
    found = read(QUERY.replace("\n", newline).encode(encoding), "gpu.csv")
    assert found.basis is Basis.LOCAL
    assert samples(found) == {
        ("0", "utilization.gpu", "%"): [(AT + 13 * MS, 56), (AT + 1013 * MS, 97)],
        ("0", "power.draw", "W"): [(AT + 13 * MS, 412.35), (AT + 1013 * MS, 655.1)],
        ("1", "utilization.gpu", "%"): [(AT + 1017 * MS, 3)],
        ("1", "power.draw", "W"): [(AT + 1017 * MS, 71.02)],
    }
    assert reasons(found) == {"no_value": 2, "damaged_rows": 1}


def test_gpus_of_a_query_without_an_index_follow_each_other() -> None:
    rows = [
        f"2026/11/18 06:42:{10 + second}.0{13 + 4 * gpu}, {10 * second + gpu} %"
        for second in range(3)
        for gpu in range(4)
    ]
    found = read("timestamp, utilization.gpu [%]\n" + "\n".join(rows), "gpu.csv")
    assert {key: [value for _, value in some] for key, some in samples(found).items()} == {
        (str(gpu), "utilization.gpu", "%"): [gpu, 10 + gpu, 20 + gpu] for gpu in range(4)
    }
    assert [finding.message for finding in found.findings] == [
        "gpu.csv: no column names GPUs: the rows were taken as those of 4 GPUs in turn. Record index or uuid, too."
    ]


def test_a_query_without_a_header_names_columns_by_position() -> None:
    found = read("2026/11/18 06:42:10.013, 1, 56, 412.35\n2026/11/18 06:42:11.013, 1, 57, [N/A]\n", "gpu.txt")
    assert samples(found) == {
        ("1", "column 3", ""): [(AT + 13 * MS, 56), (AT + 1013 * MS, 57)],
        ("1", "column 4", ""): [(AT + 13 * MS, 412.35)],
    }
    assert reasons(found) == {"no_header": 1, "no_value": 1}


def test_rows_fit_a_header_with_quoted_separators() -> None:
    found = read('timestamp,"load, 1 min",b\n1794984130,1,2\n1794984131,"3",4\n1794984132,1,2,3\n')
    assert samples(found) == {
        ("", "load, 1 min", ""): [(AT, 1), (AT + SECOND, 3)],
        ("", "b", ""): [(AT, 2), (AT + SECOND, 4)],
    }
    assert reasons(found) == {"damaged_rows": 1}


def test_a_query_without_a_header_of_several_blocks_has_one_width() -> None:
    row = "2026/11/18 06:42:10.013, 1, 56, 412.35\n"
    found = read(row * 60_000 + "2026/11/18 06:42:10.013, 1\n" + row * 2, "gpu.txt")
    assert (len(found.counters), reasons(found)) == (120_004, {"no_header": 1, "damaged_rows": 1})


DMON = """#{time}gpu    pwr  mtemp     sm
#{unit}Idx      W      C      %
 {first}  0    412     68     56
 {first}  1     71      -      0
#{time}gpu    pwr  mtemp     sm
#{unit}Idx      W      C      %
 {second}  0    655     74     97
"""


@pytest.mark.parametrize(
    ("columns", "basis", "times"),
    [
        (
            ("Date       Time        ", "YYYYMMDD   HH:MM:SS    ", "20261118   06:42:10", "20261118   06:42:11"),
            Basis.LOCAL, (AT, AT + SECOND),
        ),
        (("Time        ", "HH:MM:SS    ", "23:59:59", "00:00:00"), Basis.DAY, (86399 * SECOND, 86400 * SECOND)),
        ((" ", " ", "", ""), Basis.ROUND, (0, 1)),
    ],
    ids=["date and time", "time", "none"],
)  # fmt: skip
def test_dmon_repeats_its_header_and_may_have_no_times(
    columns: tuple[str, str, str, str], basis: Basis, times: tuple[int, int]
) -> None:
    time, unit, first, second = columns
    found = read(DMON.format(time=time, unit=unit, first=first, second=second), "dmon.txt")
    assert found.basis is basis
    assert samples(found) == {
        ("0", "pwr", "W"): [(times[0], 412), (times[1], 655)],
        ("0", "mtemp", "C"): [(times[0], 68), (times[1], 74)],
        ("0", "sm", "%"): [(times[0], 56), (times[1], 97)],
        ("1", "pwr", "W"): [(times[0], 71)],
        ("1", "sm", "%"): [(times[0], 0)],
    }
    assert reasons(found) == {"no_value": 1}


DCGMI = """\
#Entity   GPUTL  SMACT  POWER    FBUSD
ID                      W
GPU 0     61     0.367  412.350  23028
GPU 1     N/A    0.000  71.020   7
GPU 0 62 0.4 413 2.3e4
"""


def test_dcgmi_dmon_has_units_below_some_names_and_no_times() -> None:
    found = read(DCGMI)
    assert found.basis is Basis.ROUND
    assert samples(found)["0", "POWER", "W"] == [(0, 412.35), (1, 413)]
    assert samples(found)["0", "GPUTL", "%"] == [(0, 61), (1, 62)]
    assert reasons(found) == {"no_value": 1}


def test_the_first_rates_of_vmstat_are_averages_since_the_start_of_the_machine() -> None:
    header = " r  b   swpd   free  bi    bo us sy                 CET"
    rows = (
        " 6  0      0   9981  1556  3482 65 10 2026-11-18 06:42:10\n"
        " 7  0      0   9980    28    64 84 16 2026-11-18 06:42:11"
    )
    found = read(f"procs -----------memory----------\n{header}\n{rows}\n", "vmstat.txt")
    assert found.basis is Basis.LOCAL
    assert samples(found) == {
        ("", "vmstat r", ""): [(AT, 6), (AT + SECOND, 7)],
        ("", "vmstat b", ""): [(AT, 0), (AT + SECOND, 0)],
        ("", "vmstat swpd", "KiB"): [(AT, 0), (AT + SECOND, 0)],
        ("", "vmstat free", "KiB"): [(AT, 9981), (AT + SECOND, 9980)],
        ("", "vmstat bi", "blocks/s"): [(AT + SECOND, 28)],
        ("", "vmstat bo", "blocks/s"): [(AT + SECOND, 64)],
        ("", "vmstat us", "%"): [(AT + SECOND, 84)],
        ("", "vmstat sy", "%"): [(AT + SECOND, 16)],
    }
    assert reasons(found) == {"since_boot": 4}


def test_rocm_smi_in_a_loop_has_the_time_before_each_header() -> None:
    text = "".join(
        f"2026-11-18 06:42:{second}\ndevice,GPU use (%),sclk clock speed:\n"
        f"card0,{second},(2100Mhz)\ncard1,1,(132Mhz)\n\n"
        for second in (10, 11)
    )
    found = read("WARNING: a GPU is in a low-power state, check it\n" + text)
    assert found.basis is Basis.LOCAL
    assert samples(found) == {
        ("0", "GPU use", "%"): [(AT, 10), (AT + SECOND, 11)],
        ("0", "sclk clock speed:", "Mhz"): [(AT, 2100), (AT + SECOND, 2100)],
        ("1", "GPU use", "%"): [(AT, 1), (AT + SECOND, 1)],
        ("1", "sclk clock speed:", "Mhz"): [(AT, 132), (AT + SECOND, 132)],
    }
    assert reasons(found) == {"noise": 1}


def test_amd_smi_with_units_in_some_cells() -> None:
    found = read("timestamp,gpu,power_usage,vram_used\n1794984130,0,412 W,14 MB\n1794984131,0,N/A,1 GB\n")
    assert samples(found) == {
        ("0", "power_usage", "W"): [(AT, 412)],
        ("0", "vram_used", "MB"): [(AT, 14), (AT + SECOND, 1000)],
    }


def test_dumps_of_dcgm_name_host_and_gpu_and_have_blanks() -> None:
    header = "timestamp,Hostname,GPU-Id,DCGM_FI_DEV_GPU_TEMP\n"
    text = f"{header}1794984130,n1,0,55\n1794984130,n2,0,2147483632\n1794984131,n2,0,56\n"
    found = read(text)
    assert samples(found) == {
        ("n1:0", "DCGM_FI_DEV_GPU_TEMP", "C"): [(AT, 55)],
        ("n2:0", "DCGM_FI_DEV_GPU_TEMP", "C"): [(AT + SECOND, 56)],
    }
    assert reasons(found) == {"sentinels": 1}


@pytest.mark.parametrize(
    ("header", "cell", "basis", "time"),
    [
        ("epoch_s", "1794984130.123456", Basis.EPOCH, AT + 123_456_000),
        ("time", "1794984130.123456789", Basis.EPOCH, AT + 123_456_789),
        ("ts_ms", "1794984130123", Basis.EPOCH, AT + 123 * MS),
        ("ts", "1794984130123.25", Basis.EPOCH, AT + 123 * MS + 250_000),
        ("t_us", "1794984130123456", Basis.EPOCH, AT + 123_456_000),
        ("timestamp", "1794984130123456789", Basis.EPOCH, AT + 123_456_789),
        ("datetime", "2026-11-18T06:42:10.5Z", Basis.EPOCH, AT + 500 * MS),
        ("datetime", "2026-11-18T07:42:10+01:00", Basis.EPOCH, AT),
        ("datetime", "2026-11-18 06:42:10,5", Basis.LOCAL, AT + 500 * MS),
        ("date", "20261118 06:42:10", Basis.LOCAL, AT),
        ("Timestamp", '"2026-11-18 06:42:10"', Basis.LOCAL, AT),
        ("time", "06:42:10.25", Basis.DAY, 24_130 * SECOND + 250 * MS),
        ("time_ms", "1500", Basis.START, 1500 * MS),
        ("elapsed_time", "1.5", Basis.START, 1500 * MS),
    ],
)
def test_times_of_any_table(header: str, cell: str, basis: Basis, time: int) -> None:
    if header in ("t_us", "elapsed_time"):
        header = f"timestamp_{header}" if header == "t_us" else "t"
    found = read(f"{header};load\n{cell};1.5\n")
    assert (found.basis, samples(found)) == (basis, {("", "load", ""): [(time, 1.5)]})


def test_a_table_with_names_of_metrics_or_disks_in_a_column() -> None:
    assert samples(read("timestamp,metric,value\n1794984130,power,5\n1794984130,load,6\n")) == {
        ("", "power", ""): [(AT, 5)],
        ("", "load", ""): [(AT, 6)],
    }
    assert samples(read("timestamp,device,reads\n1794984130,sda,5\n1794984130,sdb,6\n")) == {
        ("", "sda reads", ""): [(AT, 5)],
        ("", "sdb reads", ""): [(AT, 6)],
    }


def test_text_columns_unreadable_times_and_sentinels_are_counted() -> None:
    found = read(
        "timestamp,a,b\n1794984130,1,x\nsoon,2,y\n1794984132,inf,z\n1794984133,9.3e18,z\n1794984134,oops,z\n"
    )
    assert samples(found) == {("", "a", ""): [(AT, 1)]}
    assert reasons(found) == {"text_columns": 1, "no_time": 1, "sentinels": 2, "not_numbers": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "step,loss\n1,2.5\n",
            "no column contains times (its columns: step, loss). Name one of its columns timestamp.",
        ),
        ("1,2\n3,4\n", "it has no header with names of columns. Write the names into its first line."),
        ("timestamp,a\n", "metrics.csv: it contains no sample. Record it again."),
        (
            "timestamp,a\n1794984130,N/A\n",
            "metrics.csv: it contains no sample (1 value without a number (N/A, -, NaN) was skipped). Record it again.",
        ),
        ("timestamp,name\n1794984130,x\n", "no column contains numbers. Name a table with sampled values."),
    ],
    ids=["no time", "no header", "no row", "no value", "no number"],
)  # fmt: skip
def test_what_is_no_table_of_samples_says_what_is_missing(text: str, message: str) -> None:
    with pytest.raises(UnreadableError) as error:
        read(text)
    assert str(error.value) == message


def test_huge_lines_and_too_many_columns_are_counted() -> None:
    found = read("timestamp,a\n1794984130,1\n" + "9" * (3 << 20) + "\n1794984131,2\n")
    assert samples(found) == {("", "a", ""): [(AT, 1), (AT + SECOND, 2)]}
    assert reasons(found) == {"long_lines": 1}
    names = ",".join(f"c{number}" for number in range(5000))
    wide = read(f"timestamp,{names}\n1794984130" + ",1" * 5000 + "\n")
    assert len(wide.counters) == 4095
    assert reasons(wide) == {"many_columns": 905}


def test_a_table_and_an_answer_of_prometheus_have_every_sample() -> None:
    """Twenty in a second, with times to the microsecond."""
    values = [(f"1794984130.{place * 51_207 % 10**6:06}", 50 + place / 10) for place in range(19)]
    rows = [f"{time},2026/11/18 06:42:10.000,{value},{1_933_140 + value:.0f},2.15" for time, value in values]
    table = samples(read("\n".join(["epoch_s,local_time,cpu_util_pct,mem_used_kib,load1", *rows, ""])))
    labels = {"__name__": "node_cpu_util_percent", "instance": "vm:9100", "job": "node"}
    answer = samples(
        read(query_range((labels, [[float(time), str(value)] for time, value in values])), "range.json")
    )
    assert {key: len(some) for key, some in table.items()} == {
        ("", "cpu_util_pct", "%"): 19,
        ("", "mem_used_kib", "KiB"): 19,
        ("", "load1", ""): 19,
    }
    assert answer == {("vm", "node_cpu_util_percent", "%"): table["", "cpu_util_pct", "%"]}
