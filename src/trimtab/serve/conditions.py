"""Changes that name the state they are of: two who change a thing at once do not both succeed unseen."""

from trimtab.serve.errors import ChangedError, ConditionMissingError


def matches(condition: str, current: bytes | None) -> bool:
    """Whether an If-Match or If-None-Match names the current tag; None: there is nothing."""
    if current is None:
        return False
    tags = [each.strip().removeprefix("W/") for each in condition.split(",")]
    return "*" in tags or current.decode() in tags


def require_match(condition: str, current: bytes | None) -> None:
    """Refuse a change of what is no longer as the caller saw it."""
    if not matches(condition, current):
        raise ChangedError("it is not as you saw it any more; read it again")


def require_condition(if_match: str | None, if_none_match: str | None, current: bytes | None) -> None:
    """Refuse a change without a condition, or whose condition does not hold."""
    if if_match is None and if_none_match is None:
        raise ConditionMissingError("say If-Match with the ETag you read, or If-None-Match: * to make one")
    if if_match is not None:
        require_match(if_match, current)
    if if_none_match is not None and matches(if_none_match, current):
        raise ChangedError("there is one already; read it, and say If-Match")
