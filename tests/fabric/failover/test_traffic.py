"""Where traffic should go: laws that hold whatever fails, is written, lost or said, in simulated time."""

from hypothesis import given, settings, strategies as st

from trimtab.core import SimulatedClock
from trimtab.fabric.failover.routes import Hop, Route, Traffic, Uplinks, chosen

DEVICES = ("p1", "p2", "p3")
HOPS = {device: Hop(device, f"172.16.{number}.3") for number, device in enumerate(DEVICES, start=1)}
PREFIXES = ("10.255.0.2/32", "10.255.0.3/32")
ALL = tuple(HOPS.values())


def route(prefix: str) -> Route:
    return Route(prefix, (prefix, 254, 20))


class World:
    """A kernel and a routing daemon, as far as routes go; `traffic` hears all they say, or not."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.traffic = Traffic(Uplinks(DEVICES, hold=2.0))
        self.kernel: dict[str, tuple[Hop, ...]] = {}
        self.daemon: dict[str, tuple[Hop, ...]] = {}
        self.dead: dict[str, set[str]] = {device: set() for device in DEVICES}

    def daemon_writes(self, prefix: str, devices: tuple[str, ...], heard: bool = True) -> None:
        self.daemon[prefix] = self.kernel[prefix] = tuple(sorted(HOPS[device] for device in devices))
        if heard:
            self.traffic.written(route(prefix), self.kernel[prefix])

    def daemon_removes(self, prefix: str, heard: bool = True) -> None:
        self.daemon.pop(prefix, None)
        self.kernel.pop(prefix, None)
        if heard:
            self.traffic.removed(route(prefix).key, self.clock.now())

    def fails(self, device: str, witness: str) -> None:
        self.dead[device].add(witness)
        self.traffic.uplinks.down(device, witness, self.clock.monotonic())

    def recovers(self, device: str, witness: str) -> None:
        self.dead[device].discard(witness)
        self.traffic.uplinks.up(device, witness, self.clock.monotonic())

    def settle(self) -> None:
        """Everything is asked for, as in each settle period."""
        mark = self.traffic.mark()
        kernel = {route(prefix).key: (route(prefix), hops) for prefix, hops in self.kernel.items()}
        self.traffic.dumped(kernel, mark, self.clock.now())
        self.traffic.believed(dict(self.daemon), self.traffic.mark())
        self.write()

    def write(self) -> None:
        for changed, hops, create in self.traffic.changes(self.clock.monotonic()):
            if create or changed.prefix in self.kernel:
                self.kernel[changed.prefix] = hops

    def check(self) -> None:
        for prefix, wanted in self.daemon.items():
            used = self.kernel.get(prefix, ())
            assert used, "a destination with a path is never without one"
            assert set(used) <= set(wanted)
            if any(not self.dead[hop.device] for hop in wanted):
                assert not any(self.dead[hop.device] for hop in used)


devices = st.sampled_from(DEVICES)
witnesses = st.sampled_from(["bfd", "carrier"])
steps = st.one_of(
    st.tuples(st.just("fails"), devices, witnesses),
    st.tuples(st.just("recovers"), devices, witnesses),
    st.tuples(
        st.just("daemon_writes"),
        st.sampled_from(PREFIXES),
        st.sets(devices, min_size=1).map(tuple),
        st.booleans(),
    ),
    st.tuples(st.just("daemon_removes"), st.sampled_from(PREFIXES), st.booleans()),
    st.tuples(st.just("advance"), st.floats(0, 40)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=40))
def test_whatever_happens_no_path_is_lost_and_no_dead_one_used(happened: list[tuple]) -> None:
    world = World()
    for name, *given_values in happened:
        if name == "advance":
            world.clock.advance(*given_values)
        else:
            getattr(world, name)(*given_values)
        world.write()
        if name.startswith("daemon") and not given_values[-1]:
            world.settle()  # what was not heard is seen in the next settle period
        world.check()


@settings(max_examples=100, deadline=None)
@given(st.lists(steps, max_size=30))
def test_when_all_is_well_for_long_enough_the_kernel_has_what_the_daemon_wants(happened: list[tuple]) -> None:
    world = World()
    for name, *given_values in happened:
        (world.clock.advance if name == "advance" else getattr(world, name))(*given_values)
        world.write()
    for device in DEVICES:
        for witness in ("bfd", "carrier"):
            world.recovers(device, witness)
    world.clock.advance(16 * 2.0)
    world.settle()
    assert world.kernel == world.daemon


@given(st.sets(st.sampled_from(ALL), min_size=1), st.sets(devices), st.sets(devices), st.sets(devices))
def test_the_best_of_what_is_there_is_chosen(
    hops: set[Hop], dead: set[str], held: set[str], lost: set[str]
) -> None:
    used = chosen(tuple(sorted(hops)), dead, held, lost)
    assert used
    assert set(used) <= hops
    for worse in (dead, dead | lost, dead | lost | held):
        if any(hop.device not in worse for hop in hops):
            assert all(hop.device not in worse for hop in used)


def test_what_the_daemon_removed_unheard_does_not_come_back() -> None:
    world = World()
    world.daemon_writes(PREFIXES[0], ("p1", "p2"))
    world.daemon_removes(PREFIXES[0], heard=False)
    world.fails("p1", "bfd")
    world.write()
    world.settle()
    assert world.kernel == {}


def test_a_path_the_kernel_dropped_silently_is_put_back() -> None:
    """After a flap of the carrier zebra believes in two next hops while the kernel has one."""
    world = World()
    world.daemon_writes(PREFIXES[0], ("p1", "p2"))
    world.kernel[PREFIXES[0]] = (HOPS["p2"],)
    world.traffic.written(route(PREFIXES[0]), (HOPS["p2"],))
    world.settle()
    assert world.kernel[PREFIXES[0]] == (HOPS["p1"], HOPS["p2"])


def test_a_route_the_kernel_dropped_silently_is_put_back() -> None:
    world = World()
    world.daemon_writes(PREFIXES[0], ("p1", "p2"))
    del world.kernel[PREFIXES[0]]
    world.settle()
    assert world.kernel[PREFIXES[0]] == (HOPS["p1"], HOPS["p2"])
    assert not world.traffic.gone


def test_an_answer_older_than_what_was_heard_since_changes_nothing() -> None:
    world = World()
    world.daemon_writes(PREFIXES[0], ("p1", "p2"))
    mark, old = world.traffic.mark(), dict(world.daemon)
    world.daemon_writes(PREFIXES[0], ("p2",))
    assert world.traffic.believed(old, mark) == 0
    world.traffic.dumped({}, mark, 0.0)
    world.write()
    assert world.kernel[PREFIXES[0]] == (HOPS["p2"],)
    world.daemon_removes(PREFIXES[0])
    assert world.traffic.believed(old, mark) == 0


def test_what_another_host_lost_is_avoided_towards_it_alone_and_for_a_while() -> None:
    world = World()
    for prefix in PREFIXES:
        world.daemon_writes(prefix, ("p1", "p2"))
    assert world.traffic.lost_through(PREFIXES[0], frozenset({"p1"}), until=3.0)
    assert not world.traffic.lost_through("10.9.9.9/32", frozenset({"p1"}), until=3.0)
    world.write()
    assert world.kernel[PREFIXES[0]] == (HOPS["p2"],)
    assert world.kernel[PREFIXES[1]] == (HOPS["p1"], HOPS["p2"])
    assert world.traffic.next_change(0.0) == 3.0
    world.clock.advance(3.0)
    world.write()
    assert world.kernel[PREFIXES[0]] == (HOPS["p1"], HOPS["p2"])


def test_a_host_that_disappears_is_gone_since_then_until_it_returns() -> None:
    world = World()
    world.daemon_writes(PREFIXES[0], ("p1", "p2"))
    world.clock.advance(100)
    world.daemon_removes(PREFIXES[0])
    world.clock.advance(100)
    assert world.traffic.gone == {PREFIXES[0]: 100.0}
    assert world.traffic.hops() == {}
    world.daemon_writes(PREFIXES[0], ("p1",))
    assert world.traffic.gone == {}


def test_a_withdrawal_that_was_not_heard_is_not_undone() -> None:
    world = World()
    world.daemon_writes(PREFIXES[0], ("p1", "p2"))
    world.daemon_writes(PREFIXES[0], ("p2",), heard=False)
    world.traffic.dumped(
        {route(PREFIXES[0]).key: (route(PREFIXES[0]), (HOPS["p2"],))}, world.traffic.mark(), 0.0
    )
    world.write()
    assert world.kernel[PREFIXES[0]] == (HOPS["p2"],)
