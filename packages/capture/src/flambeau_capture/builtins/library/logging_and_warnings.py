"""Warnings and logging as side effects of compiled code.

In: calls of `warnings.warn` and of loggers. Out: None, and an entry in the log of effects.
Invariant: a message names the line that the program wrote it on. What is not known at capture time
(a tensor in the message, a filter that turns warnings into errors) is a graph break, and so is what
ends in code or a list of the program's own, which may be read before the frame ends: only what ends
in Python's own writing to streams is put off, or anything where the user wants one graph.
"""

from __future__ import annotations

import functools
import io
import logging
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.effects.side_effects import DeferredCall
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import (
    Args,
    Kwargs,
    NotConcrete,
    Tracer,
    Value,
    needing,
    objects_of,
)
from flambeau_capture.values.constant import LITERALS, Constant, evaluate
from flambeau_capture.values.functions.call_rules import answers, describe_call, handles
from flambeau_capture.values.higher_order.context_managers import ContextManager
from flambeau_capture.values.objects.exceptions import ExceptionValue
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.tensors.graph_calls import warn_at

_LEVELS: dict[Callable[..., Any], int | None] = {
    logging.Logger.log: None,
    logging.Logger.debug: logging.DEBUG,
    logging.Logger.info: logging.INFO,
    logging.Logger.warning: logging.WARNING,
    logging.Logger.error: logging.ERROR,
    logging.Logger.critical: logging.CRITICAL,
}


def _known(value: Value) -> Constant | None:
    """A value as a constant that cannot change; None if it is no such thing."""
    try:
        plain = value.as_python()
    except NotConcrete:
        return None
    return Constant(plain) if _frozen(plain) else None


def _frozen(plain: Any) -> bool:
    if isinstance(plain, tuple):
        return all(_frozen(item) for item in plain)
    return type(plain) in LITERALS or isinstance(plain, type)


def _none_is_an_error(module: Any) -> bool:
    return all(row[0] != "error" for row in module.filters)


def _is_shown_by_python(module: Any) -> bool:
    """Whether warnings are written to a stream; neither recorded nor given to the program."""
    shows = (module.showwarning, module._showwarnmsg_impl)
    return all(
        isinstance(show, types.FunctionType) and show.__globals__ is vars(module) for show in shows
    )


def _is_logged_by_python(level: int, logger: Any) -> bool:
    """Whether a logger's message ends in no code but Python's, which writes it to streams."""
    if not logger.isEnabledFor(level):
        return True
    passed, handlers = [logger], list(logger.handlers)
    while passed[-1].propagate and passed[-1].parent is not None:
        passed.append(passed[-1].parent)
        handlers += passed[-1].handlers
    handlers = handlers or [logging.lastResort]
    filters = [each for one in (logger, *handlers) for each in getattr(one, "filters", ())]
    formats = [getattr(handler, "formatter", None) for handler in handlers]
    streams = [getattr(handler, "stream", None) for handler in handlers]
    own = [logger, *handlers, *filters, *(each for each in formats if each is not None)]
    return (
        all(type(each).__module__ == "logging" for each in own)
        and all(
            each is None or each in (sys.stderr, sys.stdout) or isinstance(each, io.IOBase)
            for each in streams
        )
        and logging.getLogRecordFactory() is logging.LogRecord
    )


def put_off(tx: Tracer, where: Any, shown: str, ends_well: Callable[[Any], bool]) -> None:
    """Assume that a message may wait for the end of the frame; a graph break where it may not."""
    if tx.options.nopython:
        return
    redirected = tx.scope_of(vars(sys)).written.keys() & {"stdout", "stderr"}
    if redirected or not ends_well(where):
        raise Break("FB0023", f"{shown}, which code of the program receives")
    source = ConstantSource(where, "logged")
    tx.guard(source, "CALL", ends_well, "gives messages to no code of the program")


class WarningFilters(ContextManager):
    """`warnings.catch_warnings`, which does not record. While it is entered under capture, Python's
    filters are as the program has set them. filters: those that it has set since, first ones first
    in the module's list; calls: the calls that set them."""

    live: Any = None

    def __init__(self, named: dict[str, Any]) -> None:
        super().__init__(warnings.catch_warnings)
        self.named = named
        self.calls: list[tuple[Any, ...]] = []
        self.filters: list[Any] = []

    def enter(self, tx: Tracer) -> Value:
        before = [*warnings.filters]
        self.inside, self.live = True, warnings.catch_warnings(**self.named)
        self.live.__enter__()
        tx.entered.append(self)
        self._note(before)
        return Constant(None)

    def leave(self, tx: Tracer) -> None:
        tx.entered.remove(self)
        self.live.__exit__(None, None, None)
        self.live, self.inside = None, False
        tx.heap.log(DeferredCall(_filtered, []))

    def record_exit(self, tx: Tracer) -> None:
        """The graph has no part in it."""

    def set(self, tx: Tracer, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        before = [*warnings.filters]
        evaluate(tx, fn, *args, **kwargs)
        self.calls.append((fn, tuple(args), tuple(kwargs.items())))
        self._note(before)
        tx.heap.changed()

    def _note(self, before: Sequence[Any]) -> None:
        if list(warnings.filters) != before:
            self.filters.append(warnings.filters[0])

    def ignores(self, text: str, kind: type[Warning], module: str, lineno: int) -> bool:
        """Whether a filter of its own is the first to fit a warning, and ignores it."""
        for row in warnings.filters:
            if row not in self.filters:
                return False
            action, words, category, place, line = row
            if (words is not None and not words.match(text)) or not issubclass(kind, category):
                continue
            if (place is None or place.match(module)) and line in (0, lineno):
                return bool(action == "ignore")
        return False

    def reconstruct(self, writer: Any) -> None:
        made = [Constant(tuple(self.named.items())), Constant(tuple(self.calls))]
        with writer.building(self):
            writer.call(_filtering, [*made, Constant(self.inside)])


def _filtered() -> None:
    """What has been said once may be said again after filters have been changed."""
    with warnings.catch_warnings():
        pass


def _filtering(named: Any, calls: Any, inside: bool) -> Any:
    made = warnings.catch_warnings(**dict(named))
    if inside:
        made.__enter__()
        for fn, args, kwargs in calls:
            fn(*args, **dict(kwargs))
    return made


@handles(warnings.catch_warnings)
def _catch(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    shown = f"call_function {describe_call(warnings.catch_warnings, args)}"
    with needing("FB0023", lambda error: f"{shown} with {error}"):
        named = {name: value.as_python() for name, value in kwargs.items()}
    if args or named.pop("record", False) or named.get("module") is not None:
        raise Break("FB0023", shown)
    evaluate(tx, warnings.catch_warnings, **named)
    return WarningFilters(named)


def _set_filter(fn: Any) -> None:
    @handles(fn)
    def handler(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        shown = f"call_function {describe_call(fn, args)}"
        inside = tx.entered[-1] if tx.entered else None
        if not isinstance(inside, WarningFilters):  # filters that stay
            raise Break("FB0023", shown)
        with needing("FB0023", lambda error: f"{shown} with {error}"):
            plain, named = objects_of(args, kwargs)
        if named.get("append") or len(plain) > (3 if fn is warnings.simplefilter else 5):
            raise Break("FB0023", shown)
        inside.set(tx, fn, plain, named)
        return Constant(None)


for _fn in (warnings.simplefilter, warnings.filterwarnings):
    _set_filter(_fn)


@handles(warnings.warn)
def _warn(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("message", "category", "stacklevel"), args), **kwargs)
    message, category = given["message"], given.get("category")
    level = given.get("stacklevel", Constant(1)).as_python()
    frame = tx.caller(int(level))
    shown = describe_call(warnings.warn, args)
    if set(given) - {"message", "category", "stacklevel"} or frame is None:
        raise Break("FB0023", f"call_function {shown}")
    if not _none_is_an_error(warnings):
        raise Break("FB0023", f"call_function {shown} while a filter makes warnings errors")
    if isinstance(message, ExceptionValue):
        category, text = tx.wrap_new(message.cls), _known(message.text(tx, "__str__"))
    else:
        text = _known(message)
    if text is None or not isinstance(text.value, str):
        raise Break("FB0023", f"call_function {shown}")
    inside = next((one for one in tx.entered[::-1] if isinstance(one, WarningFilters)), None)
    if inside is not None:
        module = str(frame.namespace.get("__name__") or "<string>")
        kind = (None if category is None else category.as_python()) or UserWarning
        if inside.ignores(text.value, kind, module, frame.lineno):
            return Constant(None)
        raise Break("FB0023", f"call_function {shown} inside catch_warnings")
    put_off(tx, warnings, f"call_function {shown}", _is_shown_by_python)
    if not tx.options.nopython:
        now = tx.get_attr(tx.wrap(warnings, ConstantSource(warnings)), "showwarning").as_python()
        if now is not warnings.showwarning:
            raise Break("FB0023", f"call_function {shown}, which code of the program receives")
    kind = UserWarning if category is None else category.as_python()
    tx.guard(
        ConstantSource(warnings, "warnings"), "CALL", _none_is_an_error, "makes no warning an error"
    )
    where = [Constant(frame.filename), Constant(frame.lineno), Constant(frame.namespace)]
    parts = [text, Constant(kind or UserWarning), *where]
    tx.heap.log(DeferredCall(warn_at, parts, writes=True))
    return Constant(None)


def log_record(level: int | None, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`logger.info(message, *values)` and its like; `logger.log(level, ...)` if level is None."""
    shown = f"call_function {describe_call(logging.Logger.log, args)}"
    logger, rest = args[0], list(args[1:])
    if level is None:
        number = _known(rest.pop(0))
        level = None if number is None else number.value
    known = [_known(value) for value in rest]
    frame = tx.caller(1)
    if not isinstance(logger, ObjectValue) or logger.real is None:
        raise Break("FB0023", shown)
    if not isinstance(level, int) or kwargs:
        raise Break("FB0023", shown)
    if frame is None or not known or any(value is None for value in known):
        raise Break("FB0023", shown)
    put_off(tx, logger.real, shown, functools.partial(_is_logged_by_python, level))
    values = Constant(tuple(value.value for value in known[1:] if value is not None))
    message = Constant(known[0].value if known[0] is not None else "")
    where = [Constant(frame.filename), Constant(frame.lineno), Constant(frame.name)]
    given = [logger, Constant(level), message, values, *where]
    tx.heap.log(DeferredCall(_log_later, given, writes=True))
    return Constant(None)


def _log_later(
    logger: logging.Logger,
    level: int,
    text: Any,
    values: Any,
    filename: str,
    lineno: int,
    function: str,
) -> None:
    if logger.isEnabledFor(level):
        record = logger.makeRecord(
            logger.name, level, filename, lineno, text, values, None, function
        )
        logger.handle(record)


for _method, _level in _LEVELS.items():
    handles(_method)(functools.partial(log_record, _level))


def _has_handlers(root: Any) -> bool:
    return bool(root.handlers)


def _root_record(level: int | None, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`logging.info(message, *values)` and its like, once the root logger has handlers."""
    root = logging.root
    if not _has_handlers(root):
        raise Break("FB0023", "a message of the root logger, which has no handlers yet")
    source = ConstantSource(root, "root logger")
    tx.guard(source, "CALL", _has_handlers, "has handlers")
    return log_record(level, tx, [tx.wrap(root, source), *args], kwargs)


for _name in ("debug", "info", "warning", "error", "critical"):
    handles(getattr(logging, _name))(
        functools.partial(_root_record, _LEVELS[getattr(logging.Logger, _name)])
    )


@handles(logging.getLogger)
def _get_logger(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    name = _known(args[0]) if args else Constant(None)
    if name is None or kwargs:
        raise Break("FB0023", "logging.getLogger")
    found = logging.getLogger(name.value)
    return tx.wrap(found, ConstantSource(found, "logger"))


def _answers(method: str, args: tuple[Any, ...], answer: Any, logger: logging.Logger) -> bool:
    """A guard's question: a method of a logger still gives the same answer."""
    return bool(getattr(logger, method)(*args) == answer)


answers(
    {
        logging.Logger.isEnabledFor: lambda tx, args, kwargs: _ask(tx, "isEnabledFor", args),
        logging.Logger.getEffectiveLevel: lambda tx, args, kwargs: _ask(
            tx, "getEffectiveLevel", args
        ),
    }
)


def _ask(tx: Tracer, method: str, args: Args) -> Value:
    logger = args[0]
    known = [_known(value) for value in args[1:]]
    if not isinstance(logger, ObjectValue) or logger.real is None or None in known:
        raise Break("FB0023", f"call_method {method} of {logger.describe()}")
    plain = tuple(value.value for value in known if value is not None)
    answer = evaluate(tx, getattr(logger.real, method), *plain)
    question = functools.partial(_answers, method, plain, answer)
    where = ConstantSource(logger.real, "logger")
    tx.guard(where, "CALL", question, f".{method}{plain} == {answer!r}")
    return Constant(answer)


def logged_once(tx: Tracer, cached: Any, args: Args, kwargs: Kwargs) -> Value | None:
    """A method of loggers under functools.lru_cache, so that a message comes once."""
    if not args or not issubclass(args[0].cls, logging.Logger):
        return None
    known = [_known(value) for value in args[1:]]
    if kwargs or None in known:
        raise Break("FB0023", f"call_function {describe_call(cached.__wrapped__, args)}")
    shown, logger = f"call_function {describe_call(cached.__wrapped__, args)}", args[0]
    if not isinstance(logger, ObjectValue) or logger.real is None:
        raise Break("FB0023", shown)
    put_off(tx, logger.real, shown, functools.partial(_is_logged_by_python, logging.CRITICAL))
    plain = [args[0], *(value for value in known if value is not None)]
    tx.heap.log(DeferredCall(cached, plain, writes=True))
    return Constant(None)
