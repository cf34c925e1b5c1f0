"""How profiles name Python functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink.diagnosis.profiles import called, frame_of, is_code, of_program
from tracelink.model.records import Frame


def frames(*names: str) -> list[Frame]:
    return [frame for name in names if (frame := frame_of(name))]


def test_a_function_and_where_it_begins() -> None:
    assert frame_of("models/gpt.py(29): forward") == Frame("forward", "models/gpt.py", 29)
    assert frame_of("a (1): b/c.py(3): <lambda>") == Frame("<lambda>", "a (1): b/c.py", 3)


@pytest.mark.parametrize(
    "name", ["nn.Module: Linear_0", "aten::mm", "step#2", "train.py(): f", "train.py(12)", ""]
)
def test_other_names_are_no_functions(name: str) -> None:
    assert (frame_of(name), is_code(name), called(name)) == (None, False, name)


def test_names_for_a_person() -> None:
    built_in = "<built-in method run_backward of torch._C._EngineBase object at 0x7f2002ba70f0>"
    assert called(built_in) == "run_backward"
    assert called("<built-in function len>") == "len"
    assert called("src/train.py(20): step") == "step (train.py:20)"
    assert is_code(built_in)


@given(st.text())
def test_any_name_can_be_told(name: str) -> None:
    assert called(name) or not name


def test_the_stack_of_the_program_is_without_torch_and_what_starts_it() -> None:
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


def test_where_nothing_else_is_left_all_is_shown() -> None:
    only = frames("threading.py(1002): _bootstrap", "<string>(1): <module>")
    assert of_program(only) == tuple(only)
    assert of_program([]) == ()
