"""Lines of a job that are none of a step."""

import itertools

from hypothesis import given, strategies as st
from trimtab_bench.fabric.gloo_jobs import Collective, Marks

OUTPUT = b"""hello
loaded 20 seconds 0.0120
ready time 1731712345.123
step 21 loss 0.4 time 1731712346.0
saved 30 seconds 0.034
saved thirty seconds 0.034
collective all_reduce bytes 65536 times 20 seconds 0.000184 worst 0.000412 rate 3.56e+08
"""


@given(st.lists(st.integers(0, len(OUTPUT)), max_size=8))
def test_output_may_come_in_any_pieces(cuts: list[int]) -> None:
    marks = Marks()
    places = [0, *sorted(cuts), len(OUTPUT)]
    for begin, end in itertools.pairwise(places):
        marks.feed(OUTPUT[begin:end])
    assert marks.ready == 1731712345.123
    assert marks.loaded == {20: 0.012}
    assert marks.saved == {30: 0.034}
    assert marks.collectives == [Collective("all_reduce", 65536, 20, 0.000184, 0.000412, 3.56e8)]


@given(st.binary(max_size=200))
def test_nothing_that_is_printed_is_too_strange(output: bytes) -> None:
    Marks().feed(output + b"\n")
