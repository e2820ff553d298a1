"""BPF system calls, and programs and maps loaded from an ELF object as clang writes it."""

import contextlib
import ctypes
import os
import platform
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from trimtab.core import TrimtabError

_LIBC = ctypes.CDLL(None, use_errno=True)
_CALL = {"x86_64": 321, "aarch64": 280}
_MAP_CREATE, _MAP_LOOKUP, _MAP_UPDATE, _MAP_DELETE = 0, 1, 2, 3
_PROGRAM_LOAD, _PROGRAM_TRY = 5, 10
_PROGRAM_OF_ID, _MAP_OF_ID, _DESCRIBE = 13, 14, 15
_MAP_LOOKUP_BATCH, _MAP_UPDATE_BATCH = 24, 26
_CLASSIFIER = 3  # the type of programs that tc runs
_NOT_PERMITTED, _NO_ENTRY = 1, 2
_ATTRIBUTES = 128  # bytes; longer than any form below, the rest is zero
_MOST_MAPS = 8
_AT_ONCE = 4096  # entries read with one call


class BpfError(TrimtabError):
    """The kernel refused something about BPF; the sentence says what and why."""


@dataclass(frozen=True, slots=True)
class MapForm:
    """What a map is made with; sizes in bytes."""

    kind: int
    key: int
    value: int
    entries: int
    flags: int


class BpfMap:
    """A map in the kernel by its file descriptor, which is closed with it."""

    def __init__(self, descriptor: int, form: MapForm) -> None:
        self.descriptor = descriptor
        self._form = form

    @classmethod
    def make(cls, name: str, form: MapForm) -> "BpfMap":
        """A new, empty one."""
        fields = struct.pack(
            "=7I16s", form.kind, form.key, form.value, form.entries, form.flags, 0, 0, name[:15].encode()
        )
        return cls(_call(_MAP_CREATE, fields, f"make the map {name}"), form)

    @classmethod
    def of_id(cls, number: int) -> "tuple[str, BpfMap]":
        """One that exists, and its name."""
        descriptor = _call(_MAP_OF_ID, struct.pack("=I", number), f"open the map {number}")
        kind, _, key, value, entries, flags, name = struct.unpack(
            "=6I16s", _described(descriptor, bytes(40), "a map")
        )
        return name.rstrip(b"\0").decode(), cls(descriptor, MapForm(kind, key, value, entries, flags))

    def close(self) -> None:
        """Let go of it; the programs that use it keep it."""
        os.close(self.descriptor)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        value = ctypes.create_string_buffer(self._form.value)
        try:
            self._element(_MAP_LOOKUP, key, value, "read a map")
        except FileNotFoundError:
            return None
        return value.raw

    def set(self, key: bytes, value: bytes) -> None:
        """One entry, new or not."""
        self._element(_MAP_UPDATE, key, ctypes.create_string_buffer(value, len(value)), "write a map")

    def update(self, entries: Mapping[bytes, bytes]) -> None:
        """Many entries, new or not, with one call."""
        if not entries:
            return
        keys, values = b"".join(entries.keys()), b"".join(entries.values())
        self._batch(_MAP_UPDATE_BATCH, None, None, _buffer(keys), _buffer(values), len(entries))

    def delete(self, keys: Iterable[bytes]) -> None:
        """Those keys, as far as they are there."""
        for key in keys:
            try:
                self._element(_MAP_DELETE, key, None, "delete from a map")
            except FileNotFoundError:
                continue

    def entries(self) -> dict[bytes, bytes]:
        """All there are."""
        form, place, found = self._form, ctypes.create_string_buffer(8), dict[bytes, bytes]()
        keys, values = (ctypes.create_string_buffer(_AT_ONCE * size) for size in (form.key, form.value))
        start, ended = None, False
        while not ended:
            count, ended = self._batch(_MAP_LOOKUP_BATCH, start, place, keys, values, _AT_ONCE)
            names, told = keys.raw[: count * form.key], values.raw[: count * form.value]
            found.update(zip(_pieces(names, form.key), _pieces(told, form.value), strict=True))
            start = place
        return found

    def _element(
        self, command: int, key: bytes, value: ctypes.Array[ctypes.c_char] | None, what: str
    ) -> None:
        kept = _buffer(key)
        _call(command, struct.pack("=IxxxxQQQ", self.descriptor, _address(kept), _address(value), 0), what)

    def _batch(
        self,
        command: int,
        start: ctypes.Array[ctypes.c_char] | None,
        place: ctypes.Array[ctypes.c_char] | None,
        keys: ctypes.Array[ctypes.c_char],
        values: ctypes.Array[ctypes.c_char],
        count: int,
    ) -> tuple[int, bool]:
        """How many entries the kernel dealt with, and whether there are no more."""
        addresses = (_address(start), _address(place), _address(keys), _address(values))
        attributes = _attributes(struct.pack("=QQQQIIQQ", *addresses, count, self.descriptor, 0, 0))
        ended = False
        try:
            _called(command, attributes, "read a map" if place else "write a map")
        except FileNotFoundError:
            ended = True
        return struct.unpack_from("=I", attributes, 32)[0], ended


def load_program(name: str, instructions: bytes, license_name: str) -> int:
    """The file descriptor of a program for tc, checked by the kernel."""
    code, license_text = _buffer(instructions), _buffer(license_name.encode() + b"\0")
    log = ctypes.create_string_buffer(1 << 16)
    what = (_CLASSIFIER, len(instructions) // 8, _address(code), _address(license_text))
    form = struct.Struct("=IIQQIIQII16s")
    try:
        return _call(_PROGRAM_LOAD, form.pack(*what, 0, 0, 0, 0, 0, name[:15].encode()), f"load {name}")
    except BpfError as error:
        told = form.pack(*what, 1, len(log), _address(log), 0, 0, name[:15].encode())
        with contextlib.suppress(BpfError):  # once more, to hear why
            os.close(_call(_PROGRAM_LOAD, told, f"load {name}"))
        said = log.value.decode(errors="replace").strip().splitlines()
        raise BpfError(f"{error}{': ' + said[-1] if said else ''}") from None


def program_of_id(number: int) -> int:
    """The file descriptor of a program that the kernel has."""
    return _call(_PROGRAM_OF_ID, struct.pack("=I", number), f"open the program {number}")


def number_of(program: int) -> int:
    """The number by which the kernel knows a program."""
    return int(struct.unpack_from("=I", _described(program, bytes(80), "a program"), 4)[0])


def run_program(program: int, packet: bytes) -> tuple[int, bytes]:
    """The verdict on a packet that goes nowhere (-1 for none), and the packet as the program left it."""
    given, left = _buffer(packet), ctypes.create_string_buffer(len(packet))
    fields = struct.pack(
        "=IIIIQQII", program, 0, len(packet), len(left), _address(given), _address(left), 1, 0
    )
    attributes = _attributes(fields)
    _called(_PROGRAM_TRY, attributes, "try a program")
    return struct.unpack_from("=i", attributes, 4)[0], left.raw


def maps_of(program: int) -> dict[str, BpfMap]:
    """The maps a program uses, by name."""
    numbers = (ctypes.c_uint32 * _MOST_MAPS)()
    asked = bytearray(80)
    struct.pack_into("=IQ", asked, 52, _MOST_MAPS, ctypes.addressof(numbers))
    count = struct.unpack_from("=I", _described(program, bytes(asked), "a program"), 52)[0]
    return dict(BpfMap.of_id(number) for number in numbers[:count])


def _described(descriptor: int, asked: bytes, what: str) -> bytes:
    answer = _buffer(asked)
    _call(_DESCRIBE, struct.pack("=IIQ", descriptor, len(asked), _address(answer)), f"describe {what}")
    return answer.raw


def _call(command: int, fields: bytes, what: str) -> int:
    return _called(command, _attributes(fields), what)


def _called(command: int, attributes: ctypes.Array[ctypes.c_char], what: str) -> int:
    number = _CALL.get(platform.machine())
    if number is None:
        raise BpfError(f"the BPF plane knows the processors {' and '.join(_CALL)}, not {platform.machine()}")
    answer = _LIBC.syscall(number, command, attributes, len(attributes))
    if answer >= 0:
        return int(answer)
    error = ctypes.get_errno()
    if error == _NO_ENTRY:
        raise FileNotFoundError(error, os.strerror(error))
    hint = "; that takes root" if error == _NOT_PERMITTED else ""
    raise BpfError(f"the kernel did not {what}: {os.strerror(error).lower()}{hint}")


def _attributes(fields: bytes) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(fields, _ATTRIBUTES)


def _buffer(content: bytes) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(content, len(content))


def _address(buffer: ctypes.Array[ctypes.c_char] | None) -> int:
    return ctypes.addressof(buffer) if buffer is not None else 0


def _pieces(content: bytes, size: int) -> list[bytes]:
    return [content[place : place + size] for place in range(0, len(content), size)]


SOURCE = "fast_path.bpf.c"
_MAP_FORM = struct.Struct("=5I")
_SYMBOL = struct.Struct("=IBBHQQ")
_RELOCATION = struct.Struct("=QQ")
_FROM_A_MAP = 1  # in the register field of a 64-bit load: what it loads is a map's descriptor


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the file."""

    name: str
    content: bytes


def sections(elf: bytes) -> list[Section]:
    """The parts of a little-endian 64-bit ELF file, in its order."""
    start, size, count, of_names = struct.unpack_from("=Q10xHHH", elf, 0x28)
    heads = [struct.unpack_from("=IIQQQQIIQQ", elf, start + size * number) for number in range(count)]
    names = heads[of_names][4]
    return [Section(_text(elf, names + head[0]), elf[head[4] : head[4] + head[5]]) for head in heads]


class LoadedPrograms:
    """The package's programs in the kernel, sharing one set of maps; use as a context.

    They and the maps stay in the kernel for as long as something runs them.
    """

    def __init__(self, programs: dict[str, int], maps: dict[str, BpfMap]) -> None:
        self.programs = programs
        self.maps = maps

    @classmethod
    def load(cls, elf: bytes) -> "LoadedPrograms":
        """Load all programs of an ELF object, with new, empty maps."""
        parts = sections(elf)
        by_name = {part.name: part for part in parts}
        symbols = _symbols(by_name)
        loaded = cls({}, {})
        try:
            for name, (number, place) in symbols.items():
                if number == parts.index(by_name["maps"]):
                    form = MapForm(*_MAP_FORM.unpack_from(by_name["maps"].content, place))
                    loaded.maps[name] = BpfMap.make(name, form)
            license_name = by_name["license"].content.rstrip(b"\0").decode()
            for part in parts:
                if part.name.startswith("tc/"):
                    name = part.name.removeprefix("tc/")
                    code = loaded._linked(part.content, by_name.get(f".rel{part.name}"), list(symbols))
                    loaded.programs[name] = load_program(name, code, license_name)
        except BaseException:
            loaded.close()
            raise
        return loaded

    @classmethod
    def of(cls, programs: dict[str, int]) -> "LoadedPrograms":
        """As it runs already: the programs' descriptors are taken over, and their maps opened."""
        return cls(programs, maps_of(next(iter(programs.values()))))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all; what is attached goes on."""
        for descriptor in self.programs.values():
            os.close(descriptor)
        for each in self.maps.values():
            each.close()

    def _linked(self, code: bytes, relocations: Section | None, symbols: list[str]) -> bytes:
        """The code with this kernel's descriptors in the places of maps."""
        linked = bytearray(code)
        for place, info in _RELOCATION.iter_unpack(relocations.content if relocations else b""):
            linked[place + 1] = linked[place + 1] & 0x0F | _FROM_A_MAP << 4
            struct.pack_into("=I", linked, place + 4, self.maps[symbols[info >> 32]].descriptor)
        return bytes(linked)


def _symbols(by_name: dict[str, Section]) -> dict[str, tuple[int, int]]:
    """Each symbol's part of the file and place in it, in the table's order; nameless ones get a number."""
    names, found = by_name[".strtab"].content, dict[str, tuple[int, int]]()
    for number, (name, _, _, part, place, _) in enumerate(_SYMBOL.iter_unpack(by_name[".symtab"].content)):
        found[_text(names, name) or f"#{number}"] = (part, place)
    return found


def _text(content: bytes, place: int) -> str:
    return content[place : content.index(b"\0", place)].decode()
