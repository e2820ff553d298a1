"""A prediction's reasons in words, as the command prints them and the report repeats them."""

import math

from trimtab.core import format_duration, format_money
from trimtab.predict.fewshot.foundation.prediction import Prediction
from trimtab.predict.fewshot.foundation.prices import price_note


def signed(seconds: float) -> str:
    """A part of a time: "+81.3 ms", "-2 s"."""
    return ("-" if seconds < 0 else "+") + format_duration(abs(seconds))


def cost_scale(answer: Prediction) -> tuple[float, str]:
    """How many runs to price, and what to call them: one invocation costs too little to read."""
    return (1e6, "1M") if answer.request.of_function else (1.0, "a run")


def cost_words(dollars: float, answer: Prediction) -> str:
    """The cost of one run as people read it: "$2.06 for 1M"."""
    runs, what = cost_scale(answer)
    return f"{format_money(dollars * runs)} for {what}"


def likeness(answer: Prediction) -> str:
    """How unlike the known runs are to anything that was learned from: by their numbers and by embedding."""
    found = answer.guarded
    said = "Nothing that was learned from can be compared with it."
    if math.isfinite(found.unlike):
        said = f"It is {found.unlike:.1f} standard deviations from the most alike application learned from."
    if found.score is not None:
        alike = f"; most alike: {', '.join(found.alike)}" if found.alike else ""
        said += f" {found.score:.0%} of applications never seen were nearer to those learned from{alike}."
    return said


def explained(answer: Prediction, where: str) -> list[str]:
    """Why this time and this cost, a line for each part."""
    line = answer.at(where)
    time = format_duration(line.time.value)
    if line.known:
        lines = [f"{line.configuration} takes {time}, as measured"]
    else:
        parts = answer.contributions(where)
        width = max(len(part.name) for part in parts)
        lines = [f"{line.configuration} takes {time}:"]
        lines += [f"  {part.name:{width}}  {signed(part.value)}" for part in parts]
    if line.cost and line.price:
        runs, _ = cost_scale(answer)
        shares = [
            f"{format_money(part.value * runs)} for {part.name}" for part in line.price.parts(line.time.value)
        ]
        made_of = f": {', '.join(shares)}" if len(shares) > 1 else ""
        lines.append(f"  and costs {cost_words(line.cost.value, answer)}{made_of}")
        lines.append(f"  at {price_note(answer.environment)}")
    return lines
