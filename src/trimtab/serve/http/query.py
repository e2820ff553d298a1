"""What stands after the question mark, as a model says it should."""

from functools import cache
from typing import Any, TypeVar, get_origin
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, ValidationError

from trimtab.serve.problems import InvalidError

Model = TypeVar("Model", bound=BaseModel)
_MOST = 100
_SHOWN = 10


class Asked(BaseModel):
    """Base of all: unknown names are refused, so that a misspelt filter does not show everything."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def query_of(model: type[Model], query: bytes) -> Model:
    """The model from a query string."""
    if not query:
        empty: Model = _default(model)
        return empty
    try:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MOST)
    except ValueError:
        raise InvalidError("the query has too many parts", ()) from None
    several = _lists(model)
    told: dict[str, Any] = {}
    for name, value in pairs:
        if name in several:
            told.setdefault(name, []).append(value)
        elif name in told:
            what = "it stands there twice"
            raise InvalidError(f"query.{name:.40}: {what}", ({"where": f"query.{name:.40}", "what": what},))
        else:
            told[name] = value
    try:
        return model.model_validate(told)
    except ValidationError as error:
        raise invalid(error, "query") from None


@cache
def _lists(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(
        name for name, field in model.model_fields.items() if get_origin(field.annotation) in (list, tuple)
    )


@cache
def _default(model: type[Model]) -> Any:
    return model()


def invalid(error: ValidationError, where: str) -> InvalidError:
    """What is wrong with a part of a request, in one sentence and one by one."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    told = tuple(
        {"where": ".".join((where, *map(str, each["loc"]))), "what": each["msg"]} for each in found[:_SHOWN]
    )
    return InvalidError(f"{told[0]['where']}: {told[0]['what']}", told)
