"""Types of numbers, by the names that torch gives them, and how many bytes each takes."""

from __future__ import annotations

ITEM_BYTES = {
    "Byte": 1,
    "Char": 1,
    "Short": 2,
    "Int": 4,
    "Long": 8,
    "UInt16": 2,
    "UInt32": 4,
    "UInt64": 8,
    "Half": 2,
    "Float": 4,
    "Double": 8,
    "BFloat16": 2,
    "Bool": 1,
    "ComplexHalf": 4,
    "ComplexFloat": 8,
    "ComplexDouble": 16,
    "Float8_e4m3fn": 1,
    "Float8_e4m3fnuz": 1,
    "Float8_e5m2": 1,
    "Float8_e5m2fnuz": 1,
    "Float8_e8m0fnu": 1,
    "Float4_e2m1fn_x2": 1,
    "QInt8": 1,
    "QUInt8": 1,
    "QInt32": 4,
    "QUInt4x2": 1,
    "QUInt2x4": 1,
    "Bits1x8": 1,
    "Bits2x4": 1,
    "Bits4x2": 1,
    "Bits8": 1,
    "Bits16": 2,
}

BY_CPP_NAME = {
    "unsigned char": "Byte",
    "signed char": "Char",
    "char": "Char",
    "short": "Short",
    "short int": "Short",
    "int": "Int",
    "long": "Long",
    "long int": "Long",
    "long long": "Long",
    "unsigned short": "UInt16",
    "short unsigned int": "UInt16",
    "unsigned int": "UInt32",
    "unsigned long": "UInt64",
    "long unsigned int": "UInt64",
    "float": "Float",
    "double": "Double",
    "bool": "Bool",
    "c10::complex<c10::Half>": "ComplexHalf",
    "c10::complex<float>": "ComplexFloat",
    "c10::complex<double>": "ComplexDouble",
}
"""Compilers differ in how they spell the integers."""

BY_FOLDED_NAME = {name.lower(): name for name in ITEM_BYTES}


def type_named(cpp_name: str) -> str:
    """torch's name of a C++ type: `Float` of `float`, `BFloat16` of `c10::BFloat16`; else the text itself."""
    if known := BY_CPP_NAME.get(cpp_name):
        return known
    return BY_FOLDED_NAME.get(cpp_name.removeprefix("c10::").lower(), cpp_name)


def item_bytes(name: str) -> int | None:
    """The bytes of one number of a type by torch's name; None where the type is not known."""
    return ITEM_BYTES.get(name)
