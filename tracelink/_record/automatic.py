"""A capture of a program that does not know of it: `tracelink run`, and TRACELINK_CAPTURE in the environment.

It begins when the program creates the default process group, or else with the first step of an optimizer. Each step of
the optimizer that stepped first ends a step.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from types import MethodType, ModuleType, TracebackType
from typing import Any

import msgspec

from tracelink._model.errors import UsageError
from tracelink._record import environment
from tracelink._record.files import LOG
from tracelink._record.hooks import OPTIMIZERS
from tracelink._record.options import USUAL_STEPS
from tracelink._record.session import Capture, capture


class Automatic:
    """The capture of this process, from its environment."""

    def __init__(self) -> None:
        self._capture: Capture | None = None
        self._failed = False
        self._counted: weakref.ref[Any] | None = None
        self._thread = 0

    def begin(self) -> Capture | None:
        """The capture, which begins now if it has not yet; None if the environment makes no sense."""
        if self._capture is not None or self._failed:
            return self._capture
        try:
            made = from_environment()
        except UsageError as error:
            self._failed = True
            LOG.warning("tracelink capture: %s: %s", environment.FOLDER, error)
            return None
        self._capture = made
        self._thread = threading.get_ident()
        made.__enter__()
        Ending(made).install()
        return made

    def stepped(self, optimizer: Any) -> None:
        """An optimizer ended a step."""
        running = self._capture or self.begin()
        if running is None:
            return
        if self._counted is None:
            self._counted = weakref.ref(optimizer)
        if self._counted() is optimizer and threading.get_ident() == self._thread:
            running.step()


AUTOMATIC = Automatic()


def from_environment() -> Capture:
    """The capture that the environment asks for."""
    text = os.environ.get(environment.OPTIONS) or "{}"
    try:
        options = msgspec.json.decode(text, type=dict[str, Any])
        return capture(
            Path(os.environ[environment.FOLDER]), os.environ.get(environment.STEPS) or USUAL_STEPS, **options
        )
    except (msgspec.DecodeError, TypeError) as error:
        raise UsageError(
            f"{environment.OPTIONS}: {error}", advice='Write, for example, {"stacks": true}.'
        ) from error


def attach(module: ModuleType) -> None:
    """Hooks into a module of torch that was just imported."""
    torch = sys.modules.get("torch")
    if torch is not None and environment.FOLDER in os.environ:
        environment.drop_older_names(torch, Path(os.environ[environment.FOLDER]))
    if module.__name__ == OPTIMIZERS:
        _count_steps(module)
    else:
        _begin_with_process_group(module)


def _count_steps(module: Any) -> None:
    """Wraps `step` of every optimizer that is made from now on.

    Not a hook of torch: hooks run within the annotation of the step, in which nothing can be started or stopped whole.
    """
    kind = module.Optimizer
    original: Callable[..., None] = kind.__init__

    @wraps(original)
    def __init__(optimizer: Any, *arguments: Any, **options: Any) -> None:  # noqa: N807
        original(optimizer, *arguments, **options)
        if "step" not in vars(optimizer):
            optimizer.step = MethodType(_counted(type(optimizer).step), optimizer)

    kind.__init__ = __init__


def _counted(step: Callable[..., Any]) -> Callable[..., Any]:
    def counted(optimizer: Any, *arguments: Any, **options: Any) -> Any:
        result = step(optimizer, *arguments, **options)
        AUTOMATIC.stepped(optimizer)
        return result

    code = counted.__code__
    wrapped: Any = wraps(step)(counted)
    wrapped._torchdynamo_disable = (
        True  # torch.compile does not trace this function, only the one that it calls
    )
    with suppress(AttributeError, ImportError):
        from torch._C._dynamo.eval_frame import skip_code

        skip_code(code)
    return wrapped


def _begin_with_process_group(module: Any) -> None:
    original: Callable[..., Any] = module.init_process_group

    @wraps(original)
    def init_process_group(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        if threading.current_thread() is threading.main_thread():
            AUTOMATIC.begin()
        return result

    module.init_process_group = init_process_group


class Ending:
    """Ends a capture with its process, and knows the exception that ends it."""

    def __init__(self, running: Capture) -> None:
        self._running = running
        self._error: tuple[type[BaseException], BaseException, TracebackType | None] | None = None
        self._report = sys.excepthook

    def install(self) -> None:
        """Is called at the end of the process from now on."""
        sys.excepthook = self._hook
        atexit.register(self._end)

    def _hook(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self._error = (kind, error, trace)
        self._report(kind, error, trace)

    def _end(self) -> None:
        self._running.__exit__(*(self._error or (None, None, None)))
