"""*backward of*: arrows first, else sequence numbers."""

from builders.trace import TraceBuilder, pairs
from tracelink.linking.launch import link_backward
from tracelink.model.events import TrackKind


def test_the_arrows_in_the_file_are_followed() -> None:
    build = TraceBuilder()
    forward = build.op("aten::mm", 0, 5, sequence=7, backward_flow_out=1)
    backward = build.op("MmBackward0", 10, 20, sequence=7, forward_thread=1, backward_flow_in=1)
    build.op("MmBackward0 inner", 11, 19, sequence=7, forward_thread=1)
    links = link_backward(build.build())
    assert pairs(links.edges) == [(backward, forward)]
    assert (links.report.linked, links.report.candidates, links.report.notes) == (1, 1, {})


def test_without_arrows_the_outermost_backward_meets_the_latest_forward() -> None:
    build = TraceBuilder()
    worker = build.track(TrackKind.THREAD, "101")
    build.op("aten::linear", 0, 9, sequence=7)
    forward = build.op("aten::addmm", 1, 8, sequence=7)
    backward = build.op("evaluate_function: AddmmBackward0", 20, 30, worker, sequence=7, forward_thread=1)
    build.op("AddmmBackward0", 21, 29, worker, sequence=7, forward_thread=1)
    links = link_backward(build.build())
    assert pairs(links.edges) == [(backward, forward)]


def test_a_backward_without_a_recorded_forward_is_counted() -> None:
    build = TraceBuilder()
    build.op("MmBackward0", 10, 20, sequence=7, forward_thread=1)
    report = link_backward(build.build()).report
    assert (report.linked, report.candidates) == (0, 1)
    assert report.unlinked == {"its forward operator was not recorded": 1}


def test_sequence_numbers_of_another_thread_do_not_count() -> None:
    build = TraceBuilder()
    loader = build.track(TrackKind.THREAD, "102")
    forward = [build.op("aten::mm", n * 10, n * 10 + 5, sequence=n) for n in (1, 2, 3)]
    build.op("aten::stack", 37, 38, loader, sequence=3)
    backward = [
        build.op("MmBackward0", 100 - n * 10, 105 - n * 10, sequence=n, forward_thread=1) for n in (1, 2, 3)
    ]
    assert pairs(link_backward(build.build()).edges) == sorted(zip(backward, forward, strict=True))
