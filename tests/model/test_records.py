"""Stack frames: their names, and those of the program."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink._model.records import Frame, frame_of, is_code, of_program, own_frames, readable_name

STEP = Frame("step", "train.py", 20)


def frames(*names: str) -> list[Frame]:
    return [frame for name in names if (frame := frame_of(name))]


def test_frame_of_a_name() -> None:
    assert frame_of("models/gpt.py(29): forward") == Frame("forward", "models/gpt.py", 29)
    assert frame_of("a (1): b/c.py(3): <lambda>") == Frame("<lambda>", "a (1): b/c.py", 3)


@pytest.mark.parametrize(
    "name", ["nn.Module: Linear_0", "aten::mm", "step#2", "train.py(): f", "train.py(12)", ""]
)
def test_names_that_are_not_frames(name: str) -> None:
    assert (frame_of(name), is_code(name), readable_name(name)) == (None, False, name)


def test_readable_names() -> None:
    built_in = "<built-in method run_backward of torch._C._EngineBase object at 0x7f2002ba70f0>"
    assert readable_name(built_in) == "run_backward"
    assert readable_name("<built-in function len>") == "len"
    assert readable_name("src/train.py(20): step") == "step (train.py:20)"
    assert is_code(built_in)


@given(st.text())
def test_any_name_is_readable(name: str) -> None:
    assert readable_name(name) or not name


def test_stack_of_the_program() -> None:
    inner = frames(
        "torch/distributed/distributed_c10d.py(3155): all_reduce",
        "typing_extensions.py(3001): wrapper",
        "train.py(32): step",
        "contextlib.py(81): inner",
        "train.py(58): worker",
        "multiprocessing/process.py(108): run",
        "<string>(1): <module>",
    )
    assert of_program(inner) == tuple(
        frames("train.py(32): step", "contextlib.py(81): inner", "train.py(58): worker")
    )


def test_stack_without_own_frames() -> None:
    only = frames("threading.py(1002): _bootstrap", "<string>(1): <module>")
    assert of_program(only) == tuple(only)
    assert of_program([]) == ()


# Stacks of dumps.


@pytest.mark.parametrize(
    "file",
    [
        "/opt/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py",
        "/usr/lib/python3/dist-packages/torch/nn/modules/module.py",
        "/opt/site-packages/typing_extensions.py",
        "/opt/pytorch/torch/distributed/fsdp/_runtime_utils.py",
        "/opt/pytorch/torch/_dynamo/eval_frame.py",
        "/pytorch/torch/csrc/autograd/engine.cpp",
        "??",
        "",
    ],
)
def test_frames_of_torch_are_removed(file: str) -> None:
    assert own_frames([Frame("inner", file, 1), STEP]) == (STEP,)


@pytest.mark.parametrize(
    "file",
    ["train.py", "/home/torch/train.py", "/opt/site-packages/torchtitan/train.py", "/opt/megatron/torch.py"],
)
def test_other_frames_are_kept(file: str) -> None:
    assert own_frames([Frame("inner", file, 1), STEP]) == (Frame("inner", file, 1), STEP)


def test_stack_with_torch_only() -> None:
    inner = Frame("all_reduce", "/opt/site-packages/torch/distributed/distributed_c10d.py", 1)
    assert own_frames([inner]) == (inner,)
