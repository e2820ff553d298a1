"""Tuning a job of a SPEC from beginning to end: what is known of it, its trials, what to rent."""

from collections.abc import Callable
from dataclasses import dataclass, field

from trimtab.collect import read_spec
from trimtab.core import BadInputError, did_you_mean
from trimtab.tune.job_local import kept_at, local_run
from trimtab.tune.job_source import JobSource
from trimtab.tune.prior import OURS, begin, check_method
from trimtab.tune.session import Begun, Done, Ledger, Limits, Session, Tuned
from trimtab.tune.state import Identity, Subject, open_state
from trimtab.tune.trials import Effort

OBJECTIVES = ("cost", "time")
News = str | Begun | Done
"""What is told as it goes: a sentence, a trial that begins, one that is done."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants tuned, and how."""

    source: JobSource
    objective: str = "cost"
    limits: Limits = field(default_factory=Limits)
    method: str = OURS

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            near = did_you_mean(self.objective, OBJECTIVES)
            raise BadInputError(
                f'the objective is "{self.objective}"{near}; it should be one of {", ".join(OBJECTIVES)}'
            )
        check_method(self.method)


def tune(asked: Asked, ledger: Ledger, tell: Callable[[News], None] = lambda news: None) -> Tuned:
    """Try configurations of the job for real until that is not worth its price, and recommend one."""
    source = asked.source
    spec = read_spec(source.spec)
    effort = Effort(spec.window, spec.patience)
    place, space = source.place_and_space(spec, asked.objective)
    others = source.others()
    identity = Identity.of(space, asked.objective, place.name, effort, spec.price_date)
    with open_state(identity, source.state) as state:
        if state.trials:
            tell(f"going on with {len(state.trials)} earlier trials of {state.path}")
        local = local_run(space.job, spec, others, tell)
        state.about(Subject(space.setups, space.job.length, spec.price_date, kept_at(space.job).name))
        prior = begin(asked.method, space, asked.objective, local, others)
        tell(prior.note)
        session = Session(space, asked.objective, prior, place, effort, state, ledger)
        return session.run(asked.limits, tell)
