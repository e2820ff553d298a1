"""What must change, and that doing it is enough."""

from hypothesis import given, settings, strategies as some

from trimtab.fabric.reconcile.planes import Changes, difference, host_text, mac_bytes, mac_text

macs = some.integers(0, 7).map(lambda number: bytes([2, 0, 0, 0, 0, number]))
tables = some.dictionaries(macs, some.integers(1, 3).map(lambda number: bytes([10, 255, 0, number])))


def done(changes: Changes, actual: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return {mac: host for mac, host in (actual | dict(changes.put)).items() if mac not in changes.forget}


@settings(deadline=None, max_examples=50)
@given(tables, tables)
def test_the_changes_turn_what_is_into_what_should_be(
    desired: dict[bytes, bytes], actual: dict[bytes, bytes]
) -> None:
    assert done(difference(desired, actual), actual) == desired


@settings(deadline=None, max_examples=50)
@given(tables, tables)
def test_no_change_can_be_left_out(desired: dict[bytes, bytes], actual: dict[bytes, bytes]) -> None:
    changes = difference(desired, actual)
    for mac in changes.put:
        assert actual.get(mac) != desired[mac]
    for mac in changes.forget:
        assert mac in actual
        assert mac not in desired


@settings(deadline=None, max_examples=50)
@given(tables)
def test_what_is_right_is_left_alone(table: dict[bytes, bytes]) -> None:
    assert not difference(table, dict(table))


def test_addresses_are_written_as_people_write_them() -> None:
    assert mac_text(mac_bytes("02:00:0a:64:00:01")) == "02:00:0a:64:00:01"
    assert host_text(bytes([10, 255, 0, 1])) == "10.255.0.1"
