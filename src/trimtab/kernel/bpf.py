"""BPF system calls, and programs and maps loaded from an ELF object as clang writes it."""

import contextlib
import ctypes
import os
import platform
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trimtab.core import TrimtabError
from trimtab.kernel.closing import Closing

_LIBC = ctypes.CDLL(None, use_errno=True)
_SYSTEM_CALL = {"x86_64": 321, "aarch64": 280}
_MAP_CREATE, _MAP_LOOKUP, _MAP_UPDATE, _MAP_DELETE = 0, 1, 2, 3
_PROGRAM_LOAD, _PROGRAM_TEST_RUN = 5, 10
_PROGRAM_OF_ID, _MAP_OF_ID, _DESCRIBE = 13, 14, 15
_MAP_LOOKUP_BATCH, _MAP_UPDATE_BATCH = 24, 26
_CLASSIFIER = 3  # the type of programs that tc runs
_NOT_PERMITTED, _NO_ENTRY = 1, 2
_ATTRIBUTES = 128  # bytes; longer than any request below, the rest is zero
_MOST_MAPS = 8
_AT_ONCE = 4096  # entries read with one call

_MAP_FORM = struct.Struct("=5I")
_SYMBOL = struct.Struct("=IBBHQQ")
_RELOCATION = struct.Struct("=QQ")
_FROM_A_MAP = 1  # in the register field of a 64-bit load: the operand is a map's descriptor

Buffer = ctypes.Array[ctypes.c_char]


class BpfError(TrimtabError):
    """The kernel refused a BPF system call; the message says which and why."""


@dataclass(frozen=True, slots=True)
class MapForm:
    """Type of a map, sizes of keys and values in bytes, most entries, and flags."""

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
        """A new, empty map."""
        fields = struct.pack(
            "=7I16s", form.kind, form.key, form.value, form.entries, form.flags, 0, 0, name[:15].encode()
        )
        return cls(_call(_MAP_CREATE, fields, f"make the map {name}"), form)

    @classmethod
    def of_id(cls, number: int) -> "tuple[str, BpfMap]":
        """An existing map, with its name."""
        descriptor = _call(_MAP_OF_ID, struct.pack("=I", number), f"open the map {number}")
        kind, _, key, value, entries, flags, name = struct.unpack(
            "=6I16s", _describe(descriptor, bytes(40), "a map")
        )
        return name.rstrip(b"\0").decode(), cls(descriptor, MapForm(kind, key, value, entries, flags))

    def close(self) -> None:
        """Close the descriptor; programs that use the map keep it."""
        os.close(self.descriptor)

    def get(self, key: bytes) -> bytes | None:
        value = ctypes.create_string_buffer(self._form.value)
        try:
            self._element(_MAP_LOOKUP, key, value, "read a map")
        except FileNotFoundError:
            return None
        return value.raw

    def set(self, key: bytes, value: bytes) -> None:
        self._element(_MAP_UPDATE, key, _buffer(value), "write a map")

    def update(self, entries: Mapping[bytes, bytes]) -> None:
        """Set many entries with one call."""
        if entries:
            keys, values = b"".join(entries.keys()), b"".join(entries.values())
            self._batch(_MAP_UPDATE_BATCH, None, None, _buffer(keys), _buffer(values), len(entries))

    def delete(self, keys: Iterable[bytes]) -> None:
        """Delete these keys; absent ones are skipped."""
        for key in keys:
            with contextlib.suppress(FileNotFoundError):
                self._element(_MAP_DELETE, key, None, "delete from a map")

    def entries(self) -> dict[bytes, bytes]:
        """All entries."""
        form, position, entries = self._form, ctypes.create_string_buffer(8), dict[bytes, bytes]()
        keys, values = (ctypes.create_string_buffer(_AT_ONCE * size) for size in (form.key, form.value))
        start, ended = None, False
        while not ended:
            count, ended = self._batch(_MAP_LOOKUP_BATCH, start, position, keys, values, _AT_ONCE)
            key_rows = _split(keys.raw[: count * form.key], form.key)
            value_rows = _split(values.raw[: count * form.value], form.value)
            entries.update(zip(key_rows, value_rows, strict=True))
            start = position
        return entries

    def _element(self, command: int, key: bytes, value: Buffer | None, action: str) -> None:
        key_buffer = _buffer(key)
        fields = struct.pack("=IxxxxQQQ", self.descriptor, _address(key_buffer), _address(value), 0)
        _call(command, fields, action)

    def _batch(
        self,
        command: int,
        start: Buffer | None,
        position: Buffer | None,
        keys: Buffer,
        values: Buffer,
        count: int,
    ) -> tuple[int, bool]:
        """The number of entries that the kernel read or wrote, and whether there are no more."""
        addresses = (_address(start), _address(position), _address(keys), _address(values))
        attributes = _attributes(struct.pack("=QQQQIIQQ", *addresses, count, self.descriptor, 0, 0))
        ended = False
        try:
            _system_call(command, attributes, "read a map" if position else "write a map")
        except FileNotFoundError:
            ended = True
        return struct.unpack_from("=I", attributes, 32)[0], ended


def load_program(name: str, instructions: bytes, license_name: str) -> int:
    """The file descriptor of a program for tc, verified by the kernel."""
    code, license_text = _buffer(instructions), _buffer(license_name.encode() + b"\0")
    log = ctypes.create_string_buffer(1 << 16)
    program = (_CLASSIFIER, len(instructions) // 8, _address(code), _address(license_text))
    form = struct.Struct("=IIQQIIQII16s")
    try:
        return _call(_PROGRAM_LOAD, form.pack(*program, 0, 0, 0, 0, 0, name[:15].encode()), f"load {name}")
    except BpfError as error:
        with_log = form.pack(*program, 1, len(log), _address(log), 0, 0, name[:15].encode())
        with contextlib.suppress(BpfError):  # once more, for the verifier's log
            os.close(_call(_PROGRAM_LOAD, with_log, f"load {name}"))
        lines = log.value.decode(errors="replace").strip().splitlines()
        raise BpfError(f"{error}{': ' + lines[-1] if lines else ''}") from None


def program_of_id(number: int) -> int:
    """The file descriptor of a program that the kernel has."""
    return _call(_PROGRAM_OF_ID, struct.pack("=I", number), f"open the program {number}")


def number_of(program: int) -> int:
    """The kernel's number of a program."""
    return int(struct.unpack_from("=I", _describe(program, bytes(80), "a program"), 4)[0])


def run_program(program: int, packet: bytes) -> tuple[int, bytes]:
    """Test a program on a packet that is not sent: its verdict (-1 for none), and the packet afterwards."""
    before, after = _buffer(packet), ctypes.create_string_buffer(len(packet))
    sizes = (len(packet), len(after), _address(before), _address(after))
    attributes = _attributes(struct.pack("=IIIIQQII", program, 0, *sizes, 1, 0))
    _system_call(_PROGRAM_TEST_RUN, attributes, "test a program")
    return struct.unpack_from("=i", attributes, 4)[0], after.raw


def _describe(descriptor: int, request: bytes, kind: str) -> bytes:
    answer = _buffer(request)
    _call(_DESCRIBE, struct.pack("=IIQ", descriptor, len(request), _address(answer)), f"describe {kind}")
    return answer.raw


def _call(command: int, fields: bytes, action: str) -> int:
    return _system_call(command, _attributes(fields), action)


def _system_call(command: int, attributes: Buffer, action: str) -> int:
    number = _SYSTEM_CALL.get(platform.machine())
    if number is None:
        machines = " and ".join(_SYSTEM_CALL)
        raise BpfError(f"the BPF plane supports the processors {machines}, not {platform.machine()}")
    answer = _LIBC.syscall(number, command, attributes, len(attributes))
    if answer >= 0:
        return int(answer)
    error = ctypes.get_errno()
    if error == _NO_ENTRY:
        raise FileNotFoundError(error, os.strerror(error))
    hint = "; that takes root" if error == _NOT_PERMITTED else ""
    raise BpfError(f"the kernel did not {action}: {os.strerror(error).lower()}{hint}")


def _attributes(fields: bytes) -> Buffer:
    return ctypes.create_string_buffer(fields, _ATTRIBUTES)


def _buffer(content: bytes) -> Buffer:
    return ctypes.create_string_buffer(content, len(content))


def _address(buffer: Buffer | None) -> int:
    return ctypes.addressof(buffer) if buffer is not None else 0


def _split(content: bytes, size: int) -> list[bytes]:
    return [content[place : place + size] for place in range(0, len(content), size)]


def sections(elf: bytes) -> dict[str, bytes]:
    """The sections of a little-endian 64-bit ELF file by name, in its order."""
    start, size, count, of_names = struct.unpack_from("=Q10xHHH", elf, 0x28)
    heads = [struct.unpack_from("=IIQQQQIIQQ", elf, start + size * number) for number in range(count)]
    names = heads[of_names][4]
    return {_text(elf, names + head[0]): elf[head[4] : head[4] + head[5]] for head in heads}


class LoadedPrograms(Closing):
    """Programs in the kernel that share one set of maps; use as a context.

    They and the maps stay in the kernel for as long as something runs them.
    """

    def __init__(self, programs: dict[str, int], maps: dict[str, BpfMap]) -> None:
        self.programs = programs
        self.maps = maps

    @classmethod
    def load(cls, elf: bytes) -> "LoadedPrograms":
        """Load all programs of an ELF object, with new, empty maps."""
        parts = sections(elf)
        maps = list(parts).index("maps")
        symbols = dict[str, tuple[int, int]]()  # section and offset, in the table's order
        for number, fields in enumerate(_SYMBOL.iter_unpack(parts[".symtab"])):
            symbols[_text(parts[".strtab"], fields[0]) or f"#{number}"] = (fields[3], fields[4])
        loaded = cls({}, {})
        try:
            for name, (section, offset) in symbols.items():
                if section == maps:
                    form = MapForm(*_MAP_FORM.unpack_from(parts["maps"], offset))
                    loaded.maps[name] = BpfMap.make(name, form)
            license_name = parts["license"].rstrip(b"\0").decode()
            for section_name, content in parts.items():
                if section_name.startswith("tc/"):
                    name = section_name.removeprefix("tc/")
                    relocations = parts.get(f".rel{section_name}", b"")
                    code = loaded._link(content, relocations, list(symbols))
                    loaded.programs[name] = load_program(name, code, license_name)
        except BaseException:
            loaded.close()
            raise
        return loaded

    @classmethod
    def of(cls, programs: dict[str, int]) -> "LoadedPrograms":
        """Programs that run already: takes over their descriptors, and opens their maps."""
        numbers = (ctypes.c_uint32 * _MOST_MAPS)()
        request = bytearray(80)
        struct.pack_into("=IQ", request, 52, _MOST_MAPS, ctypes.addressof(numbers))
        answer = _describe(next(iter(programs.values())), bytes(request), "a program")
        count = struct.unpack_from("=I", answer, 52)[0]
        return cls(programs, dict(BpfMap.of_id(number) for number in numbers[:count]))

    def close(self) -> None:
        """Close all descriptors; attached programs stay."""
        for descriptor in self.programs.values():
            os.close(descriptor)
        for bpf_map in self.maps.values():
            bpf_map.close()

    def _link(self, code: bytes, relocations: bytes, symbols: list[str]) -> bytes:
        """The code with descriptors of the maps in the places of their symbols."""
        linked = bytearray(code)
        for place, info in _RELOCATION.iter_unpack(relocations):
            linked[place + 1] = linked[place + 1] & 0x0F | _FROM_A_MAP << 4
            struct.pack_into("=I", linked, place + 4, self.maps[symbols[info >> 32]].descriptor)
        return bytes(linked)


def _text(content: bytes, place: int) -> str:
    return content[place : content.index(b"\0", place)].decode()
