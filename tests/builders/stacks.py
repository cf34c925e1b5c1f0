"""Stacks as text: what `py-spy dump` and faulthandler write of a process, for a main thread with given frames."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.model.records import Frame

MAIN = (Frame("step", "train.py", 30), Frame("<module>", "train.py", 200))
COMPILES = (
    Frame("wait", "threading.py", 320),
    Frame("wait", "torch/_inductor/async_compile.py", 512),
    Frame("compile_fx_inner", "torch/_inductor/compile_fx.py", 700),
    Frame("__call__", "torch/_dynamo/convert_frame.py", 1250),
    Frame("compile_wrapper", "torch/_dynamo/eval_frame.py", 736),
    *MAIN,
)
LOADS = (Frame("__next__", "torch/utils/data/dataloader.py", 700), *MAIN)
RUNS = (
    Frame("call", "/tmp/torchinductor_me/ab/cab.py", 60),
    Frame("__call__", "torch/_inductor/output_code.py", 460),
    Frame("runtime_wrapper", "torch/_functorch/_aot_autograd/runtime_wrappers.py", 300),
    Frame("compile_wrapper", "torch/_dynamo/eval_frame.py", 736),
    *MAIN,
)
FAULT = """Fatal Python error: Segmentation fault

Thread 0x00007f12 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f34 [python] (most recent call first):
  File "train.py", line 5 in wait
  File "train.py", line 9 in main
  File "train.py", line 12 in <module>

Extension modules: numpy._core (total: 1)
"""


def py_spy(frames: Sequence[Frame]) -> str:
    """What `py-spy dump --pid 4711` prints."""
    lines = [f"    {frame.name} ({frame.filename}:{frame.line})" for frame in frames]
    head = ["Process 4711: python train.py", "Python v3.11.9 (/usr/bin/python3.11)", ""]
    monitor = ["    wait (threading.py:324)", "    _bootstrap (threading.py:1002)", ""]
    main, other = 'Thread 4711 (idle): "MainThread"', 'Thread 4800 (idle): "Thread-1 (_monitor)"'
    return "\n".join([*head, main, *lines, other, *monitor])


def faults(frames: Sequence[Frame]) -> str:
    lines = [f'  File "{frame.filename}", line {frame.line} in {frame.name}' for frame in frames]
    other = ["Thread 0x00007f01 (most recent call first):", '  File "threading.py", line 324 in wait', ""]
    return "\n".join([*other, "Current thread 0x00007f02 (most recent call first):", *lines, ""])
