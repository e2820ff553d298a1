"""Reading published price lists: CSV files with a provider's instances, one row per zone or region."""

import csv
import gzip
import io
import math
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trimtab.core import BadInputError

REQUIRED = ("InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "Price", "Region")
"""The columns a price list must have. It may have SpotPrice too, and Cloud if it lists several providers."""

NO_REGION = "default"
"""The region of a provider that names none."""


@dataclass(frozen=True, slots=True)
class PriceRow:
    """One priced line. Memory in GiB, prices in $/h; `instance` is "" for an accelerator sold by itself."""

    cloud: str
    region: str
    instance: str
    accelerator: str
    accelerators: float
    vcpus: float | None
    memory: float | None
    price: float
    spot_price: float | None


@dataclass(frozen=True, slots=True)
class PriceList:
    """Contents of a price list: usable rows, and numbers of unusable ones, by provider."""

    rows: dict[str, list[PriceRow]]
    invalid: Counter[str]
    unpriced: Counter[str]


def read_price_list(path: Path, owner: str | None = None, only: str | None = None) -> PriceList:
    """The rows of `path` (.csv or .csv.gz).

    `owner` is the provider of a list that does not name providers itself; of one that does, `only` that
    provider's rows are taken.
    """
    lines = _lines(path)
    column = {name: position for position, name in enumerate(_header(path, lines))}
    if "Cloud" not in column and owner is None:
        raise BadInputError(f"{path} does not say which provider it is about; add --provider, such as aws")
    result = PriceList({}, Counter(), Counter())
    for line in lines:
        cell = {name: line[at].strip() if at < len(line) else "" for name, at in column.items()}
        cloud = cell["Cloud"].lower() if "Cloud" in column else owner or ""
        if any(line) and only in (None, cloud):
            _add(result, cloud, cell)
    if not result.rows:
        about = f" for {only}" if only is not None else ""
        raise BadInputError(f"{path} has no usable price{about}; it should hold one priced instance a row")
    return result


def _add(result: PriceList, cloud: str, cell: dict[str, str]) -> None:
    if not cell["Price"]:
        result.unpriced[cloud] += 1
        return
    try:
        row = _row(cloud, cell)
    except ValueError:
        result.invalid[cloud] += 1
        return
    result.rows.setdefault(cloud, []).append(row)


def _row(cloud: str, cell: dict[str, str]) -> PriceRow:
    """A row from its cells; ValueError where a number is missing, negative or no number."""
    instance, accelerator = cell["InstanceType"], cell["AcceleratorName"]
    if not cloud or not (instance or accelerator):
        raise ValueError("a row about nothing")
    price = _amount(cell["Price"])
    spot = _amount(cell["SpotPrice"]) if cell.get("SpotPrice") else None
    return PriceRow(
        cloud=cloud,
        region=cell["Region"] or NO_REGION,
        instance=instance,
        accelerator=accelerator,
        accelerators=_count(cell["AcceleratorCount"]) if accelerator else 0.0,
        vcpus=_amount(cell["vCPUs"]) if instance or cell["vCPUs"] else None,
        memory=_amount(cell["MemoryGiB"]) if instance or cell["MemoryGiB"] else None,
        price=price,
        spot_price=spot,
    )


def _amount(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{text} is not an amount")
    return value


def _count(text: str) -> float:
    value = _amount(text)
    if value == 0:
        raise ValueError("an accelerator that is not there")
    return value


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except FileNotFoundError:
        raise BadInputError(f"there is no file {path}; give a vms.csv or a folder that holds one") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise BadInputError(f"{path} is a damaged gzip file; fetch it again") from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise BadInputError(f"{path} is not text; a price list is a CSV file in UTF-8") from None


def _lines(path: Path) -> Iterator[list[str]]:
    try:
        yield from csv.reader(io.StringIO(_text(path), newline=""))
    except csv.Error as error:
        raise BadInputError(f"{path} is not a CSV file: {error}") from None


def _header(path: Path, lines: Iterator[list[str]]) -> list[str]:
    header = [name.strip() for name in next(lines, [])]
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        raise BadInputError(
            f"{path} is not a price list: its first line lacks {', '.join(missing)}; "
            f"it should name the columns {','.join(REQUIRED)}"
        )
    return header
