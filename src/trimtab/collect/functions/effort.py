"""How long to measure each size, and who gets the next turn."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """At least `least` invocations of each size and `seconds` of them, in turns of `turn` seconds or longer.

    Hosts are faster at one time than at another. So sizes take short turns, whoever has the least done of
    its own measurement next: every size's invocations are spread evenly over the same time, and what the
    host does cancels out of the ratios between sizes.
    """

    least: int = 8
    seconds: float = 3.0
    turn: float = 0.05  # s; longer where an invocation is, or where the law says so
    ceiling: float = 30.0  # s of one size, its warm-up included, after which `barely` invocations have to do
    barely: int = 3

    def progress(self, invocations: int, seconds: float, spent: float) -> float:
        """How much of a size's measurement is done, 1 for all, after so many invocations in so many seconds.

        `spent` are all seconds this size has cost, the warm-up too.
        """
        return max(min(invocations / self.least, seconds / self.seconds), spent / self.ceiling)
