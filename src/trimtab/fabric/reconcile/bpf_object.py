"""Programs and maps out of an ELF file as clang writes it, put into the kernel without any other tool."""

import os
import struct
from dataclasses import dataclass
from importlib import resources
from typing import Self

from trimtab.fabric.reconcile.bpf_call import BpfMap, MapForm, load_program, maps_of

SOURCE = "fast_path.bpf.c"
OBJECT = "fast_path.bpf.o"
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
    def load(cls) -> "LoadedPrograms":
        """Afresh, with empty maps."""
        parts = sections(resources.files(__package__).joinpath(OBJECT).read_bytes())
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
