"""What people type and what they read: units at the edge, SI inside."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from trimtab.core import BadInputError
from trimtab.core.units import (
    format_bandwidth,
    format_bytes,
    format_duration,
    format_flop,
    format_flop_rate,
    format_money,
    format_price,
    parse_bandwidth,
    parse_bytes,
    parse_duration,
    parse_flop_rate,
    parse_memory_size,
    parse_money,
    parse_price,
    parse_rate,
)

Parse = Callable[[str], float]
Format = Callable[[float], str]


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_duration, "4h", 14400.0),
        (parse_duration, "1h30m", 5400.0),
        (parse_duration, "1H 30M", 5400.0),
        (parse_duration, "90 s", 90.0),
        (parse_duration, "250ms", 0.25),
        (parse_duration, "30 µs", 30e-6),
        (parse_duration, "30us", 30e-6),
        (parse_duration, "1.5d", 129600.0),
        (parse_duration, "2w", 1209600.0),
        (parse_duration, "1e3s", 1000.0),
        (parse_duration, "42", 42.0),
        (parse_duration, " .5 ", 0.5),
        (parse_bytes, "16GiB", 16 * 2.0**30),
        (parse_bytes, "16 gib", 16 * 2.0**30),
        (parse_bytes, "512 MB", 512e6),
        (parse_bytes, "1.5T", 1.5e12),
        (parse_bytes, "1e3", 1000.0),
        (parse_bytes, "7B", 7.0),
        (parse_bytes, "2EB", 2e18),
        (parse_money, "$12.10", 12.10),
        (parse_money, "12.10", 12.10),
        (parse_money, "40 USD", 40.0),
        (parse_money, "$1,234,567.50", 1234567.50),
        (parse_price, "$3.20/h", 3.20 / 3600),
        (parse_price, "3.20", 3.20 / 3600),
        (parse_price, "$3.20 / Hour", 3.20 / 3600),
        (parse_price, "$0.001/s", 0.001),
        (parse_price, "$48/d", 48 / 86400),
        (parse_flop_rate, "312 TFLOP/s", 312e12),
        (parse_flop_rate, "312TFLOPS", 312e12),
        (parse_flop_rate, "19.5e12", 19.5e12),
        (parse_flop_rate, "5 flop/s", 5.0),
        (parse_bandwidth, "25Gbit/s", 25e9 / 8),
        (parse_bandwidth, "25Gbit", 25e9 / 8),
        (parse_bandwidth, "100Gbps", 100e9 / 8),
        (parse_bandwidth, "900 GB/s", 900e9),
        (parse_bandwidth, "900GBps", 900e9),
        (parse_bandwidth, "2GiB/s", 2 * 2.0**30),
        (parse_bandwidth, "1e9", 1e9),
    ],
)
def test_what_people_type_is_understood(parse: Parse, text: str, value: float) -> None:
    assert parse(text) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_duration, ""),
        (parse_duration, "   "),
        (parse_duration, "soon"),
        (parse_duration, "4x"),
        (parse_duration, "4h30"),
        (parse_duration, "-4h"),
        (parse_duration, "1h-30m"),
        (parse_duration, "nan"),
        (parse_duration, "1e400"),
        (parse_duration, "1e400h"),
        (parse_bytes, ""),
        (parse_bytes, "lots"),
        (parse_bytes, "16 GiBs"),
        (parse_bytes, "16 Qi"),
        (parse_bytes, "-1GB"),
        (parse_bytes, "1,5GB"),
        (parse_bytes, "1e308T"),
        (parse_money, ""),
        (parse_money, "12 EUR"),
        (parse_money, "$-3"),
        (parse_money, "1,50"),
        (parse_money, "1,2345"),
        (parse_money, "$1e999"),
        (parse_price, ""),
        (parse_price, "$3.20/"),
        (parse_price, "$3.20/year"),
        (parse_price, "$3.20 an hour"),
        (parse_price, "cheap/h"),
        (parse_price, "$3.20/h/h"),
        (parse_flop_rate, "312 TFLIP/s"),
        (parse_flop_rate, "312 XFLOP/s"),
        (parse_flop_rate, "fast"),
        (parse_flop_rate, "1e999"),
        (parse_bandwidth, "25 Gbaud"),
        (parse_bandwidth, "wide"),
        (parse_bandwidth, "25 Xbit/s"),
        (parse_bandwidth, "1e999 GB/s"),
    ],
)
def test_what_cannot_be_understood_is_refused_by_name(parse: Parse, text: str) -> None:
    with pytest.raises(BadInputError) as refusal:
        parse(text)
    sentence = str(refusal.value)
    assert f'"{text}"' in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("parse", [parse_duration, parse_bytes, parse_money, parse_price, parse_bandwidth])
@given(text=st.text(st.sampled_from("019.eE+-hmsgib$/, ∞")))
def test_any_text_gives_a_finite_amount_or_a_refusal(parse: Parse, text: str) -> None:
    try:
        value = parse(text)
    except BadInputError:
        return
    assert 0.0 <= value < math.inf


@pytest.mark.parametrize(
    ("format_", "value", "text"),
    [
        (format_duration, 30e-6, "30 µs"),
        (format_duration, 0.25, "250 ms"),
        (format_duration, 4.2, "4.2 s"),
        (format_duration, 42.0, "42 s"),
        (format_duration, 60.0, "1m"),
        (format_duration, 65.0, "1m05s"),
        (format_duration, 5400.0, "1h30m"),
        (format_duration, 14400.0, "4h"),
        (format_duration, 3 * 86400.0 + 4 * 3600, "3d4h"),
        (format_duration, 2 * 86400.0, "2d"),
        (format_duration, -90.0, "-1m30s"),
        (format_duration, math.inf, "∞"),
        (format_bytes, 16 * 2.0**30, "16 GiB"),
        (format_bytes, 1.5 * 2.0**20, "1.5 MiB"),
        (format_bytes, 1010 * 2.0**30, "1010 GiB"),
        (format_bytes, 12.0, "12 B"),
        (format_bytes, -1024.0, "-1 KiB"),
        (format_money, 12.1, "$12.10"),
        (format_money, 0.0123, "$0.0123"),
        (format_money, 0.0000019374, "$0.00000194"),
        (format_money, 1e-15, "$0.00"),
        (format_money, 0.0, "$0.00"),
        (format_money, 1234.5, "$1,234.50"),
        (format_money, 12345.4, "$12,345"),
        (format_money, -5.0, "-$5.00"),
        (format_money, math.inf, "∞"),
        (format_bytes, math.inf, "∞"),
        (format_bytes, -math.inf, "∞"),
        (format_flop_rate, math.nan, "∞ FLOP/s"),
        (format_price, 3.2 / 3600, "$3.20/h"),
        (format_flop_rate, 312e12, "312 TFLOP/s"),
        (format_flop_rate, 2e21, "2000 EFLOP/s"),
        (format_flop, 24.3e9, "24.3 GFLOP"),
        (format_flop, 7.0, "7 FLOP"),
        (format_bandwidth, 900e9, "900 GB/s"),
    ],
)
def test_what_people_read_is_short(format_: Format, value: float, text: str) -> None:
    assert format_(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (999.7e-6, "1 ms"),
        (0.0009995, "1 ms"),
        (0.9998, "1 s"),
        (9.97, "10 s"),
        (59.7, "1m"),
        (3599.8, "1h"),
        (47 * 3600 + 3599.0, "2d"),
    ],
)
def test_a_duration_just_below_the_next_unit_is_rounded_into_it(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def _printed_step(seconds: float) -> float:
    """The distance between neighbouring durations as they are printed around `seconds`."""
    if seconds < 0.9995:
        return seconds / 100
    return next(
        step for limit, step in ((9.95, 0.1), (3600, 1), (172800, 60), (math.inf, 3600)) if seconds < limit
    )


@given(st.floats(1e-6, 1e9))
def test_a_duration_is_read_back_within_what_was_printed(seconds: float) -> None:
    text = format_duration(seconds)
    assert parse_duration(text) == pytest.approx(seconds, rel=0, abs=0.501 * _printed_step(seconds))
    assert format_duration(parse_duration(text)) == text


@given(st.floats(0, 1e18))
def test_an_amount_of_memory_is_read_back_within_three_digits(count: float) -> None:
    text = format_bytes(count)
    assert parse_bytes(text) == pytest.approx(count, rel=0.00501, abs=0.501)
    assert "e+" not in text


@given(st.floats(0, 1e12))
def test_money_is_read_back_within_its_printed_digits(dollars: float) -> None:
    step = 1e-4 if dollars < 0.1 else 0.01 if dollars < 9999.995 else 1.0
    assert parse_money(format_money(dollars)) == pytest.approx(dollars, rel=1e-12, abs=0.501 * step)


@given(st.floats(0.1 / 3600, 2.0))
def test_a_price_is_read_back_to_the_cent_per_hour(price: float) -> None:
    assert parse_price(format_price(price)) * 3600 == pytest.approx(price * 3600, abs=0.00501)


@pytest.mark.parametrize(
    ("text", "per_hour"),
    [("0.05/h", 0.05), ("1/30d", 1 / 720), ("2 per day", 1 / 12), ("3", 3), ("1/s", 3600)],
)
def test_a_rate_is_times_over_a_period(text: str, per_hour: float) -> None:
    assert parse_rate(text) * 3600 == pytest.approx(per_hour)


@pytest.mark.parametrize("text", ["", "often", "-1/h", "1/0h", "1/moon", "/h", "1/h/h"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="rate"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("format_", "parse"), [(format_flop_rate, parse_flop_rate), (format_bandwidth, parse_bandwidth)]
)
@given(value=st.floats(1e-3, 1e24))
def test_a_rate_is_read_back_within_three_digits(format_: Format, parse: Parse, value: float) -> None:
    assert parse(format_(value)) == pytest.approx(value, rel=0.00501)


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [("128MB", 128), ("128MiB", 128), ("1GB", 1024), ("1 GiB", 1024), ("0.5g", 512), ("1073741824", 1024)],
)
def test_platforms_of_functions_count_in_powers_of_two(text: str, megabytes: int) -> None:
    assert parse_memory_size(text) == megabytes


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1024", r'"1024" is not a memory size for a function; did you mean 1024MB\?'),
        ("0MB", '"0MB" is not a memory size for a function, such as 512MB'),
        ("0", "such as 512MB"),
        ("1e9GB", '"1e9GB" is not a memory size'),
        ("2EB", '"2EB" is not a memory size'),
        ("-1GB", '"-1GB" is not an amount of memory'),
        ("1GX", '"1GX" is not an amount of memory'),
        ("", "is not an amount of memory"),
        ("nan", "is not an amount of memory"),
    ],
)
def test_what_no_platform_sells_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        parse_memory_size(text)


@given(st.integers(1, 999_999))
def test_a_size_is_the_same_however_it_is_written(megabytes: int) -> None:
    written = (f"{megabytes}MB", f"{megabytes} mib", f"{megabytes * 1024}KB", f"{megabytes / 1024!r}GB")
    assert {parse_memory_size(text) for text in written} == {megabytes}
