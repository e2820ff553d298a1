"""Reads published price lists: CSV files of a provider's instances, one row per zone or region."""

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
"""Required columns. SpotPrice is optional, and Cloud is needed if a list has several providers."""

NO_REGION = "default"
"""Region of a provider without regions."""


@dataclass(frozen=True, slots=True)
class PriceRow:
    """One row. Memory in GiB, prices in $/h; `instance` is "" for an accelerator sold by itself."""

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
    """Usable rows of a price list, and numbers of unusable ones, by provider."""

    rows: dict[str, list[PriceRow]]
    invalid: Counter[str]
    unpriced: Counter[str]


def read_price_list(path: Path, owner: str | None = None, only: str | None = None) -> PriceList:
    """The rows of `path` (.csv or .csv.gz).

    `owner` is the provider of a list without the column Cloud; of a list with it, only rows of the provider
    `only` are read.
    """
    lines = _lines(path)
    header = [name.strip() for name in next(lines, [])]
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        raise BadInputError(
            f"{path} is not a price list: its first line lacks {', '.join(missing)}; "
            f"it should name the columns {','.join(REQUIRED)}"
        )
    column = {name: position for position, name in enumerate(header)}
    if "Cloud" not in column and owner is None:
        raise BadInputError(f"{path} does not say which provider it is about; add --provider, such as aws")
    result = PriceList({}, Counter(), Counter())
    for line in lines:
        cell = {name: line[at].strip() if at < len(line) else "" for name, at in column.items()}
        cloud = cell["Cloud"].lower() if "Cloud" in column else owner or ""
        if not any(line) or only not in (None, cloud):
            continue
        if not cell["Price"]:
            result.unpriced[cloud] += 1
            continue
        try:
            row = _row(cloud, cell)
        except ValueError:
            result.invalid[cloud] += 1
            continue
        result.rows.setdefault(cloud, []).append(row)
    if not result.rows:
        about = f" for {only}" if only is not None else ""
        raise BadInputError(f"{path} has no usable price{about}; it should hold one priced instance a row")
    return result


def _row(cloud: str, cell: dict[str, str]) -> PriceRow:
    """A row from its cells; ValueError where a number is missing, negative or no number."""
    instance, accelerator = cell["InstanceType"], cell["AcceleratorName"]
    if not cloud or not (instance or accelerator):
        raise ValueError("the row has neither an instance nor an accelerator")
    count = _amount(cell["AcceleratorCount"]) if accelerator else 0.0
    if accelerator and count == 0:
        raise ValueError("the row has no accelerators")
    return PriceRow(
        cloud=cloud,
        region=cell["Region"] or NO_REGION,
        instance=instance,
        accelerator=accelerator,
        accelerators=count,
        vcpus=_amount(cell["vCPUs"]) if instance or cell["vCPUs"] else None,
        memory=_amount(cell["MemoryGiB"]) if instance or cell["MemoryGiB"] else None,
        price=_amount(cell["Price"]),
        spot_price=_amount(cell["SpotPrice"]) if cell.get("SpotPrice") else None,
    )


def _amount(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{text} is not an amount")
    return value


def _lines(path: Path) -> Iterator[list[str]]:
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
        yield from csv.reader(io.StringIO(text, newline=""))
    except FileNotFoundError:
        raise BadInputError(f"there is no file {path}; give a vms.csv or a folder that holds one") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise BadInputError(f"{path} is a damaged gzip file; fetch it again") from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise BadInputError(f"{path} is not text; a price list is a CSV file in UTF-8") from None
    except csv.Error as error:
        raise BadInputError(f"{path} is not a CSV file: {error}") from None
