"""The declaration of a use case, shared by the command line, the API, the client and the dashboard.

An operation is a method of an `Area`, marked with the HTTP method and path that serve it and with the
permissions it needs. Its signature is the request: parameters named in the path are taken from there, the
others from the query (GET) or from the JSON body. Their types, with pydantic's `Field` for bounds and
descriptions, become the request's schema, and the return type the answer's. Keyword-only parameters are for
callers in this process.
"""

import inspect
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, ParamSpec, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, create_model

from trimtab.core import Clock, Engine, to_plain, within_grammar
from trimtab.kernel import SteadyClock
from trimtab.serve.access import Principal
from trimtab.store import Role, Store

if TYPE_CHECKING:
    from trimtab.schedule import SchedulerStatus
    from trimtab.serve.operations.decisions import OutcomeLearner

AUDIT = "audit"
"""Kind of the events that say who wrote what."""

PAGE_LIMIT = 500
"""Items of a page, at most, over HTTP."""

_SCHEDULER_CACHE = 1.0  # s
_PATH_PARAMETER = re.compile(r"\{(\w+)\}")

_encode_strictly = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=sorted).encode
_encode = json.JSONEncoder(separators=(",", ":"), default=sorted).encode


def encoded(value: Any) -> bytes:
    """JSON of plain data or of the vocabulary; infinity is 1e999, NaN null, a set a sorted list."""
    plain = to_plain(value)
    try:
        return _encode_strictly(plain).encode()
    except ValueError:
        return within_grammar(_encode(plain), nan="null").encode()


P = ParamSpec("P")
T = TypeVar("T")

Limit = Annotated[int, Field(ge=1, le=PAGE_LIMIT, description="Items of the page.")]
After = Annotated[str | None, Field(max_length=200, description="The `next` of the page before.")]
EventAfter = Annotated[
    str | None, Field(pattern="^[0-9]{1,18}$", description="The `next` of the page before: an event's id.")
]
ShortText = Annotated[str | None, Field(max_length=100)]
Text = Annotated[str | None, Field(max_length=200)]
Since = Annotated[float | None, Field(description="At or after, in seconds since 1970.")]
Until = Annotated[float | None, Field(description="Before, in seconds since 1970.")]


class QueryModel(BaseModel):
    """Base of queries: unknown names are refused, so that a misspelt filter does not show everything."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class BodyModel(BaseModel):
    """Base of bodies: forbids unknown fields and converts no types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


@dataclass(frozen=True, slots=True)
class OnWire:
    """In a parameter's `Annotated`: its type in a request, while callers in this process pass plain data."""

    type: Any


@dataclass(frozen=True)
class Operation:
    """The declaration of one use case.

    - `least`, `fleet`: the role that may call it, and whether the token must be for all tenants.
    - `status`: of a successful answer; 0 for the usual one, which is 201 for POST and 200 for others.
    - `stored`: its results can be read as the JSON texts that the store keeps.
    - `slow`: it reads more than a row or a page, or computes for long.
    - `prepare`: the method that computes, outside the transaction and with the same arguments, what is to be
      written; its result is passed as the keyword argument `prepared`.
    - `tagged`: the answer has an ETag.
    - `condition`: the caller may ("optional") or must ("required") name the state to be changed.
    - `answer`, `show`, `read`: the answer's type if it is not the return type, and the functions from the
      result to the answer and back.
    - `kept`: the function from the result to the answer for a repeated request, if that is another.
    - `content_key`: a client that repeats it with equal content within a day changes nothing.
    """

    area: "type[Area]"
    name: str
    function: Callable[..., Any]
    method: str
    path: str
    least: Role = Role.VIEWER
    fleet: bool = False
    status: int = 0
    stored: bool = False
    slow: bool = False
    prepare: str = ""
    tagged: bool = False
    condition: str = ""
    answer: Any = None
    show: Callable[[Any], Any] | None = None
    read: Callable[[Any], Any] | None = None
    kept: Callable[[Any], Any] | None = None
    content_key: bool = False

    def authorize(self, principal: Principal) -> None:
        """Raise ForbiddenError if the principal may not call it."""
        principal.require(self.area.scope, "write" if self.writes else "read", self.least, self.fleet)

    @property
    def id(self) -> str:
        """Name that is unique among all operations, as in jobs_submit."""
        return f"{self.area.name}_{self.name}"

    @property
    def success(self) -> int:
        return self.status or (201 if self.method == "POST" else 200)

    @cached_property
    def writes(self) -> bool:
        return self.method != "GET"

    @cached_property
    def path_names(self) -> tuple[str, ...]:
        return tuple(_PATH_PARAMETER.findall(self.path))

    @cached_property
    def result(self) -> Any:
        """Type of the answer: as declared, else the return type."""
        return self.answer or inspect.signature(self.function).return_annotation

    @cached_property
    def request(self) -> tuple[inspect.Parameter, ...]:
        """Parameters that are sent in the query or the body."""
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        sent = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return tuple(one for one in parameters if one.kind is sent and one.name not in self.path_names)

    @cached_property
    def model(self) -> type[BaseModel] | None:
        """Schema of the query or the body; None if the operation takes neither."""
        if not self.request:
            return None
        fields: dict[str, Any] = {
            one.name: (_on_wire(one.annotation), ... if one.default is one.empty else one.default)
            for one in self.request
        }
        name = "".join(part.title() for part in (self.name, *self.area.name.split("_"), "request"))
        base = BodyModel if self.writes else QueryModel
        return create_model(name, __base__=base, __doc__=inspect.getdoc(self.function), **fields)

    @cached_property
    def summary(self) -> str:
        return (inspect.getdoc(self.function) or "").partition("\n")[0]


def _on_wire(hint: Any) -> Any:
    metadata = getattr(hint, "__metadata__", ())
    wire = next((item.type for item in metadata if isinstance(item, OnWire)), None)
    if wire is None:
        return hint
    rest = tuple(item for item in metadata if not isinstance(item, OnWire))
    return Annotated[(wire, *rest)] if rest else wire


def operation(method: str, path: str, **declared: Any) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Declare a method of an area as an operation, with the fields of `Operation` as keywords."""

    def declare(function: Callable[P, T]) -> Callable[P, T]:
        def declaration(area: type[Area], name: str) -> Operation:
            return Operation(area, name, function, method, path, **declared)

        @wraps(function)
        def authorized(*args: P.args, **kwargs: P.kwargs) -> T:
            area = cast(Area, args[0])
            area.operations[function.__name__].authorize(area.principal)
            return function(*args, **kwargs)

        authorized.declaration = declaration  # type: ignore[attr-defined]
        return authorized

    return declare


@dataclass(frozen=True, slots=True)
class Backend:
    """Resources of operations: store, clock, engines by URL (each opened once), and the outcome learner.

    Without a learner, the caller that records an outcome of a prediction updates the models itself.
    """

    store: Store
    clock: Clock = field(default_factory=SteadyClock)
    learner: "OutcomeLearner | None" = None
    engines: dict[str, Engine] = field(default_factory=dict)
    _opening: threading.Lock = field(default_factory=threading.Lock)
    _scheduler: list[tuple[float, "SchedulerStatus"]] = field(default_factory=list)

    def scheduler(self) -> "SchedulerStatus":
        """State that the scheduler last published, read at most once a second."""
        from trimtab.schedule import running_scheduler

        now = self.clock.monotonic()
        cached = self._scheduler[-1:]
        if not cached or now - cached[0][0] > _SCHEDULER_CACHE:
            cached = [(now, running_scheduler(self.store, self.clock))]
            self._scheduler[:] = cached
        return cached[0][1]

    def engine(self, url: str) -> Engine:
        from trimtab.engines import engine

        with self._opening:
            if url not in self.engines:
                self.engines[url] = engine(url)
            return self.engines[url]


AREAS: "dict[str, type[Area]]" = {}
"""Every area by its name, which is its attribute of `Service` and `Client`."""


class Area:
    """Operations on one kind of thing, for one principal. A call that is not allowed raises ForbiddenError.

    Methods that are not operations are composed of operations, so that they run in a client too.
    `texts`: operations that are `stored` return JSON texts instead of objects.
    """

    __slots__ = ("backend", "principal", "texts")
    name: ClassVar[str]
    scope: ClassVar[str]
    operations: ClassVar[Mapping[str, Operation]] = {}

    def __init_subclass__(cls, name: str, scope: str = "") -> None:
        cls.name, cls.scope = name, scope or name
        cls.operations = {
            name: method.declaration(cls, name)
            for name, method in vars(cls).items()
            if hasattr(method, "declaration")
        }
        AREAS[name] = cls

    def __init__(self, backend: Backend, principal: Principal, texts: bool = False) -> None:
        self.backend = backend
        self.principal = principal
        self.texts = texts

    def stored(self, objects: Callable[P, T], texts: Callable[P, Any]) -> Callable[P, T]:
        """The function of the store that reads objects, or the one that reads their JSON texts."""
        return texts if self.texts else objects

    def write(
        self, action: str, tenant: str, effect: Callable[[], T], about: Callable[[T], tuple[str, Any]]
    ) -> T:
        """Result of `effect`, written in one transaction with an audit event of the principal.

        `about` returns the event's subject and its detail.
        """
        store, who = self.backend.store, self.principal

        def both() -> T:
            result = effect()
            subject, what = about(result)
            detail = {"who": who.id, "name": who.token.name, "role": who.role.value, "did": action}
            store.events.append(AUDIT, subject, {**detail, "what": what}, self.backend.clock.now(), tenant)
            return result

        return store.write(both)
