"""Keeping an offer table in a file that loads in milliseconds."""

import os
import tempfile
import zipfile
from dataclasses import fields
from pathlib import Path

import numpy as np

from trimtab.catalog.strings import Strings
from trimtab.catalog.table import OfferTable
from trimtab.core import StorageError


def save_offers(table: OfferTable, path: Path) -> None:
    """Write `table` to `path` as .npz: wholly, or not at all."""
    arrays = {}
    for field in fields(table):
        column = getattr(table, field.name)
        if isinstance(column, Strings):
            arrays[f"{field.name}.codes"] = column.codes
            arrays[f"{field.name}.vocabulary"] = np.array(column.vocabulary, dtype=np.str_)
        else:
            arrays[field.name] = column
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def load_archive(path: Path) -> OfferTable:
    """The table that `save_offers` wrote to `path`."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            columns = {}
            for field in fields(OfferTable):
                if field.type in (Strings, "Strings"):
                    vocabulary = tuple(arrays[f"{field.name}.vocabulary"].tolist())
                    columns[field.name] = Strings(arrays[f"{field.name}.codes"], vocabulary)
                else:
                    columns[field.name] = arrays[field.name]
        return OfferTable(**columns)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise StorageError(
            f"the imported offers in {path} cannot be read ({type(error).__name__}); "
            "import that provider again or remove the file to return to the built-in offers"
        ) from None
