"""Applications made up at random from segments, the same ones for the same seed."""

import random
from dataclasses import dataclass

from trimtab.collect.functions.segments import SEGMENTS, Inputs, Run, Surroundings

_MOST_SEGMENTS = 4


@dataclass(frozen=True, slots=True)
class Segment:
    """One piece of an application: a kind of work and its own inputs."""

    kind: str
    inputs: Inputs


@dataclass(frozen=True, slots=True)
class Application:
    """A function made of segments that run one after the other."""

    name: str
    segments: tuple[Segment, ...]

    def prepare(self, place: Surroundings) -> Run:
        """Make the inputs; the result runs one invocation."""
        place.chance.seed(self.name)
        runs = [SEGMENTS[segment.kind].prepare(segment.inputs, place) for segment in self.segments]

        def invoke() -> None:
            for run in runs:
                run()

        return invoke


def draw_application(index: int, seed: int = 0) -> Application:
    """The application with that number: one to four segments, drawn with replacement as in FLASH (A.3)."""
    source = random.Random(f"{seed}/{index}")
    kinds = source.choices(sorted(SEGMENTS), k=source.randint(1, _MOST_SEGMENTS))
    segments = tuple(Segment(kind, SEGMENTS[kind].draw(source)) for kind in kinds)
    return Application(f"f{seed}-{index:04d}", segments)
