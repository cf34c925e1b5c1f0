"""Types of numbers: torch's names for C++ ones, and their sizes."""

import pytest

from tracelink.model.operations import BY_CPP_NAME, ITEM_BYTES, item_bytes, type_named


@pytest.mark.parametrize(
    ("cpp_name", "name", "size"),
    [
        ("float", "Float", 4),
        ("double", "Double", 8),
        ("c10::Half", "Half", 2),
        ("c10::BFloat16", "BFloat16", 2),
        ("c10::Float8_e4m3fn", "Float8_e4m3fn", 1),
        ("long", "Long", 8),
        ("long int", "Long", 8),
        ("short int", "Short", 2),
        ("signed char", "Char", 1),
        ("unsigned char", "Byte", 1),
        ("bool", "Bool", 1),
        ("long unsigned int", "UInt64", 8),
        ("c10::complex<float>", "ComplexFloat", 8),
        ("c10::qint8", "QInt8", 1),
        ("c10::bits16", "Bits16", 2),
    ],
)
def test_a_type_by_its_cpp_name(cpp_name, name, size):
    assert (type_named(cpp_name), item_bytes(name)) == (name, size)


def test_a_type_that_torch_may_get_one_day_keeps_its_text_and_has_no_size():
    assert type_named("c10::Float2") == "c10::Float2"
    assert item_bytes("c10::Float2") is None


def test_every_type_has_a_size_and_keeps_its_own_name():
    assert set(BY_CPP_NAME.values()) <= set(ITEM_BYTES)
    assert {name: type_named(name) for name in ITEM_BYTES} == {name: name for name in ITEM_BYTES}
