"""`tracelink._model.operations`."""

from __future__ import annotations

import pytest

from tracelink._model.operations import (
    BY_CPP_NAME,
    COLLECTIVE_ANNOTATION,
    COLLECTIVE_KERNEL,
    COLLECTIVE_OPERATOR,
    ITEM_BYTES,
    item_bytes,
    operation_of,
    peers_of,
    type_named,
)

# Names of what ranks do together, as each source spells them.


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("allreduce", "all_reduce"),
        ("nccl:all_reduce", "all_reduce"),
        ("gloo:sparse_all_reduce", "all_reduce"),
        ("c10d::allreduce_", "all_reduce"),
        ("c10d::_allgather_base_", "all_gather"),
        ("nccl:_all_gather_base", "all_gather"),
        ("c10d::allgather_into_tensor_coalesced_", "all_gather"),
        ("c10d::reduce_scatter_tensor_coalesced_", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("c10d::alltoall_base_", "all_to_all"),
        ("_c10d_functional::wait_tensor", "wait"),
        ("nccl:send 1->2", "send"),
        ("c10d::recv_any_source_", "recv"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("nccl:new_window", "new_window"),
    ],
)
def test_the_operation_behind_a_name(name, operation):
    assert operation_of(name) == operation


@pytest.mark.parametrize(
    ("name", "peers"),
    [
        ("nccl:send 1->2", (1, 2)),
        ("nccl:recv 3<-0", (0, 3)),
        ("nccl2:send 10->127", (10, 127)),
        ("nccl:recv 3<-?", None),
        ("gloo:send", None),
        ("nccl:all_reduce", None),
        ("nccl:send 5->99999999999999999999", None),
    ],
)
def test_who_sends_to_whom(name, peers):
    assert peers_of(name) == peers


@pytest.mark.parametrize(
    ("pattern", "named", "others"),
    [
        (
            COLLECTIVE_OPERATOR,
            (
                "c10d::allreduce_",
                "_c10d_functional::all_reduce",
                "c10d_functional::all_reduce",
                "record_param_comms",
            ),
            ("aten::add", "record_param_comms_more", "torch/distributed/distributed_c10d.py(1): all_reduce"),
        ),
        (
            COLLECTIVE_ANNOTATION,
            ("nccl:all_reduce", "gloo:send", "nccl2:barrier", "nccl-lazy:send 0->1", "ucc:allgather"),
            ("forward:nccl", "nccl.py(1): send", "nccl: tuned", "glooy:send"),
        ),
        (
            COLLECTIVE_KERNEL,
            ("ncclDevKernel_Generic", "rcclGenericKernel", "hcom_allReduce__1", "cross_device_reduce_2stage"),
            ("gemm", "reduce_kernel"),
        ),
    ],
)
def test_what_a_name_is_of(pattern, named, others):
    assert [name for name in (*named, *others) if pattern.search(name)] == list(named)


# Types of numbers: torch's names for C++ ones, and their sizes.


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
