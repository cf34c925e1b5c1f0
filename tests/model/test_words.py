"""Names of kernels in words."""

from __future__ import annotations

import time

import pytest

from tracelink._model.text import kernel_in_words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "void at::native::some_kernel<4, at::native::AddFunctor<float>>",
            "at::native::some_kernel<AddFunctor>",
        ),
        ("ncclDevKernel_AllReduce_Sum_f32(ncclDevComm*)", "ncclDevKernel_AllReduce_Sum_f32"),
    ],
)
def test_kernel_with_what_it_computes(name: str, words: str) -> None:
    assert kernel_in_words(name) == words


@pytest.mark.parametrize("name", ["k<" + "a" * 50_000, "k<" + "Functo" * 8_300, "k<" + "a<" * 25_000])
def test_50_kb_of_a_name_take_linear_time(name: str) -> None:
    before = time.process_time()
    kernel_in_words(name)
    assert time.process_time() - before < 0.5
