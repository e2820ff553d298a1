"""The programs: compiled from the source beside them, and doing what it says, one packet at a time."""

import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from trimtab.fabric.reconcile.bpf_plane import fast_path
from trimtab.kernel.bpf import (
    BpfError,
    BpfMap,
    LoadedPrograms,
    MapForm,
    load_program,
    run_program,
    sections,
)

GO_ON, DROP, REDIRECTED = -1, 2, 7
MAC = bytes([2, 0, 0, 0, 0, 1])
LOOPBACK = 0x0AFF0001
SOURCE = "fast_path.bpf.c"


@pytest.fixture
def loaded() -> Iterator[LoadedPrograms]:
    try:
        programs = LoadedPrograms.load(fast_path())
    except BpfError as error:
        pytest.skip(str(error))
    with programs:
        programs.maps["remotes"].set(MAC, bytes([10, 255, 0, 2]))
        tell(programs)
        yield programs


def tell(programs: LoadedPrograms, alive: float = 60.0) -> None:
    until = time.monotonic_ns() + int(alive * 1e9)
    programs.maps["settings"].set(bytes(4), struct.pack("=Q6I", until, 1, 100, LOOPBACK, 4789, 14789, 0))


def frame(to: bytes, protocol: int = 0x0800) -> bytes:
    return to + bytes([2, 0, 0, 0, 0, 9]) + struct.pack(">H", protocol) + bytes(50)


def packet(port: int, source: int = LOOPBACK, protocol: int = 17, checksum: int = 0) -> bytes:
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, 50, 0, 0, 64, protocol, 0, source, LOOPBACK + 1)
    udp = struct.pack(">HHHH", 50000, port, 30, checksum)
    return bytes(12) + b"\x08\x00" + ip + udp + bytes(22)


def test_the_object_is_the_sources(tmp_path: Path) -> None:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")
    version = subprocess.run(["clang", "-dumpversion"], capture_output=True, text=True, check=True).stdout
    if not version.startswith("14."):
        pytest.skip("the object was compiled with clang 14")
    folder = resources.files("trimtab.fabric.reconcile")
    made = tmp_path / "made.o"
    with resources.as_file(folder.joinpath(SOURCE)) as source:
        headers = next(Path("/usr/include").glob("*-linux-gnu"))
        command = [
            "clang",
            "-O2",
            "-Wall",
            "-Werror",
            "-target",
            "bpf",
            "-I",
            str(headers),
            "-c",
            str(source),
        ]
        subprocess.run([*command, "-o", str(made)], check=True, timeout=60)
    compiled, shipped = sections(made.read_bytes()), sections(fast_path())
    for name in ("tc/send", "tc/leave", "tc/refuse", "maps", "license", ".reltc/send", ".reltc/leave"):
        assert compiled[name] == shipped[name], f"{name} is not what {SOURCE} says; compile it again"


def test_a_known_mac_is_sent_at_once_and_others_go_on_to_the_bridge(loaded: LoadedPrograms) -> None:
    verdicts = {
        to: run_program(loaded.programs["send"], frame(to))[0]
        for to in (MAC, bytes([2, 0, 0, 0, 0, 2]), bytes([255] * 6), bytes([1, 0, 0, 0, 0, 1]))
    }
    assert list(verdicts.values()) == [REDIRECTED, GO_ON, GO_ON, GO_ON]


def test_it_steps_aside_when_nobody_renews_its_trust(loaded: LoadedPrograms) -> None:
    tell(loaded, alive=-1)
    assert run_program(loaded.programs["send"], frame(MAC))[0] == GO_ON


def test_only_packets_of_the_sender_change_their_port(loaded: LoadedPrograms) -> None:
    verdict, left = run_program(loaded.programs["leave"], packet(14789))
    assert (verdict, left) == (GO_ON, packet(4789))
    for other in (
        packet(14788),
        packet(14789, source=LOOPBACK + 5),
        packet(14789, protocol=6),
        packet(14789, checksum=7),
        frame(MAC, 0x86DD),
        packet(14789)[:40],
    ):
        assert run_program(loaded.programs["leave"], other) == (GO_ON, other)


def test_nothing_gets_in_by_the_sender(loaded: LoadedPrograms) -> None:
    assert run_program(loaded.programs["refuse"], frame(MAC))[0] == DROP


def test_a_map_holds_many(loaded: LoadedPrograms) -> None:
    remotes = loaded.maps["remotes"]
    many = {bytes([2, 1, 0, *number.to_bytes(3, "big")]): number.to_bytes(4, "big") for number in range(5000)}
    remotes.update(many)
    assert remotes.entries() == many | {MAC: bytes([10, 255, 0, 2])}
    remotes.delete([*many, *many])
    assert remotes.entries() == {MAC: bytes([10, 255, 0, 2])}
    assert remotes.get(bytes(6)) is None


def test_a_map_that_is_full_says_so(loaded: LoadedPrograms) -> None:
    small = BpfMap.make("small", MapForm(1, 4, 4, 2, 0))
    with pytest.raises(BpfError, match="map"):
        small.update({number.to_bytes(4, "big"): bytes(4) for number in range(3)})
    small.close()


def test_a_program_the_kernel_refuses_says_why(loaded: LoadedPrograms) -> None:
    with pytest.raises(BpfError, match=r"endless: .*: .+"):
        load_program("endless", bytes([5, 0, 255, 255, 0, 0, 0, 0]) + bytes([0x95, *bytes(7)]), "Apache-2.0")
