from collections.abc import Callable
from collections.abc import Set as AbstractSet
from types import CodeType, FunctionType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

ACCESS: dict[str, int]
CHECK: dict[str, int]
SIZE_OP: dict[str, int]

class SkipType: ...

SKIP: SkipType

class Entry:
    code: CodeType
    twin: CodeType
    guards: GuardTree | None
    keepalive: Any
    info: Any
    trial: EntryTrial | None
    plain: bool
    hits: int
    def __init__(
        self, code: CodeType, guards: GuardTree | None, keepalive: Any = None, info: Any = None
    ) -> None: ...

Convert = Callable[
    [CodeType, FunctionType, dict[str, Any], dict[str, Any], "FrameCache"], Entry | SkipType | None
]
OnLimit = Callable[[CodeType, FunctionType, dict[str, Any], dict[str, Any]], object]

class Turn(Protocol):
    @property
    def plain(self) -> bool: ...
    def end(self, finished: bool) -> None: ...

class Trial(Protocol):
    def begin(self) -> Turn | None: ...

class EntryTrial(Protocol):
    def begin(self) -> int: ...
    def end(
        self, entry: Any, plain: bool, seconds: float, period: float, disturbed: bool, result: Any
    ) -> None: ...

class FrameCache:
    convert: Convert
    on_limit: OnLimit | None
    on_stillborn: OnLimit | None
    limit: int
    guards_always: bool
    mode: str
    running: int
    def __init__(self, convert: Convert, *, limit: int = 8) -> None: ...
    def skip_prefixes(self, paths: tuple[str, ...]) -> None: ...
    def entries(self, code: CodeType) -> list[Entry]: ...
    def remove(self, code: CodeType, entry: Entry, counts: bool = True, /) -> None: ...
    def skip(self, code: CodeType) -> None: ...
    def run_plain(self, code: CodeType) -> None: ...
    def set_trial(self, code: CodeType, trial: Trial | None) -> None: ...
    def is_skipped(self, code: CodeType) -> bool: ...
    def codes(self) -> list[CodeType]: ...
    def clear(self) -> None: ...
    def counters(self) -> dict[str, int]: ...

class compiled(Generic[P, R]):
    fn: Callable[P, R]
    cache: FrameCache
    def __init__(self, fn: Callable[P, R], cache: FrameCache) -> None: ...
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any: ...

class disabled(Generic[P, R]):
    fn: Callable[P, R]
    def __init__(self, fn: Callable[P, R]) -> None: ...
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any: ...

class GuardTree:
    node_count: int
    check_count: int
    def __init__(
        self,
        nodes: tuple[tuple[int, int, Any], ...],
        checks: tuple[tuple[int, int, Any], ...],
        slots: int,
        same: tuple[int, ...],
        distinct: tuple[int, ...],
        programs: tuple[tuple[int, ...], ...] = (),
        layout: TensorLayout | None = None,
    ) -> None: ...
    def check(
        self,
        locals: tuple[Any, ...],
        closure: tuple[Any, ...] | None,
        globals: dict[str, Any],
        builtins: dict[str, Any],
    ) -> bool: ...
    def witnesses(self) -> dict[str, int]: ...

class TensorLayout:
    impl: int
    key_set: int
    dtype: int
    device: int
    ndim: int
    dims: int
    autograd_meta: int
    requires_grad: int
    grad_fn: int
    def __init__(
        self,
        impl: int,
        key_set: int,
        dtype: int,
        device: int,
        ndim: int,
        dims: int,
        autograd_meta: int,
        requires_grad: int,
        grad_fn: int,
    ) -> None: ...
    def read(self, tensor: Any) -> dict[str, Any]: ...

class TensorPattern:
    native: bool
    def __init__(
        self,
        cls: type,
        predicate: Callable[[Any], bool],
        layout: TensorLayout | None = None,
        key_set: int = 0,
        dtype: int = 0,
        device: int = 0,
        requires_grad: bool = False,
        sizes: tuple[int | None, ...] = (),
        strides: tuple[int | None, ...] = (),
    ) -> None: ...
    def check(self, value: Any) -> bool: ...

class StatePattern:
    def __init__(
        self,
        probes: tuple[tuple[int, int, int, int], ...],
        variable: tuple[str, bytes, tuple[int, ...]] | None,
        items: tuple[tuple[dict[str, Any], str, Any], ...],
        calls: tuple[tuple[Callable[[], Any], Any], ...],
    ) -> None: ...
    def check(self) -> bool: ...

def set_active(cache: FrameCache | None) -> FrameCache | None: ...
def active() -> FrameCache | None: ...
def set_foreign(setter: Callable[[Any], Any]) -> None: ...
def set_tracing(question: Callable[[], bool]) -> None: ...
def set_continue(cls: type, /) -> None: ...
def drive(going: Callable[..., Any], /) -> Any: ...
def set_functions(functions: tuple[Callable[..., float], ...]) -> None: ...
def set_stance(mode: str) -> str: ...
def stance() -> str: ...
def follow(cls: type, /) -> None: ...
def bears_callback(obj: object, /) -> bool: ...
def same(left: object, right: object) -> bool: ...
def cached_answer(link: object, /) -> Any: ...
def call_cached(
    cached: object, answer: object, raised: bool, args: tuple[Any, ...], kwargs: dict[str, Any], /
) -> Any: ...
def read_bytes(address: int, count: int) -> bytes: ...
def same_set_table(one: object, other: object, /) -> bool: ...
def fill_like(
    target: set[Any], model: AbstractSet[Any], items: tuple[Any, ...] | None = None, /
) -> None: ...
def set_like(
    frozen: bool, model: AbstractSet[Any], items: tuple[Any, ...] | None = None, /
) -> Any: ...
def set_metaclass(cls: type, meta: type, /) -> None: ...
def state_probe_call(address: int, argument: int) -> int: ...
def state_symbol(library: str, name: str) -> int | None: ...
