"""*launches*: a call on a thread and the work it put on a device."""

from dataclasses import replace

from builders.trace import TraceBuilder, column, pairs
from tracelink.linking.launch import link_annotations, link_launches
from tracelink.model.communications import Calls
from tracelink.model.events import EventKind, TrackKind


def test_equal_correlation_links_a_call_to_kernels_copies_and_memsets() -> None:
    build = TraceBuilder()
    stream = build.track(TrackKind.STREAM, "7")
    edges = []
    for number, kind in enumerate([EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET], start=1):
        call = build.event(EventKind.RUNTIME, "call", number * 10, number * 10 + 2, correlation=number)
        work = build.event(kind, "work", number * 10 + 5, number * 10 + 9, stream, correlation=number)
        edges.append((call, work))

    links = link_launches(build.build())

    assert pairs(links.edges) == edges
    assert (links.report.linked, links.report.candidates, links.report.unlinked) == (3, 3, {})


def test_a_graph_launch_launches_all_its_kernels() -> None:
    build = TraceBuilder()
    stream = build.track(TrackKind.STREAM, "7")
    call = build.event(EventKind.RUNTIME, "cudaGraphLaunch", 0, 5, correlation=9)
    kernels = [
        build.event(EventKind.KERNEL, "k", 10 * n, 10 * n + 5, stream, correlation=9) for n in (1, 2, 3)
    ]
    links = link_launches(build.build())
    assert pairs(links.edges) == [(call, kernel) for kernel in kernels]
    assert links.report.notes == {"launched together with others (graphs)": 2}


def test_work_without_a_recorded_call_says_why() -> None:
    build = TraceBuilder()
    stream = build.track(TrackKind.STREAM, "7")
    build.event(EventKind.KERNEL, "before the window", 0, 5, stream, correlation=1)
    build.event(EventKind.KERNEL, "without an id", 5, 9, stream)
    report = link_launches(build.build()).report
    assert (report.linked, report.candidates) == (0, 2)
    assert report.unlinked == {"no correlation": 1, "launched outside the recording": 1}


def test_arrows_of_the_producer_are_compared_not_followed() -> None:
    build = TraceBuilder()
    stream = build.track(TrackKind.STREAM, "7")
    build.event(EventKind.RUNTIME, "cudaLaunchKernel", 0, 5, correlation=1)
    build.event(EventKind.KERNEL, "k", 6, 9, stream, correlation=1)
    trace = replace(build.build(), launch_flows=column([1, 2]))
    assert link_launches(trace).report.notes == {
        "arrows in the file that agree": 1,
        "arrows in the file to no device work": 1,
    }


def test_an_annotation_leads_to_its_shadow_on_the_device() -> None:
    build = TraceBuilder()
    stream = build.track(TrackKind.STREAM, "7")
    annotation = build.event(EventKind.ANNOTATION, "ProfilerStep#1", 0, 50, external_id=4)
    shadow = build.event(EventKind.GPU_ANNOTATION, "ProfilerStep#1", 10, 60, stream, external_id=4)
    assert pairs(link_annotations(build.build(), Calls.empty()).edges) == [(annotation, shadow)]
