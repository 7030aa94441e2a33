"""What open uploads cost: dollars for a GiB and month, by storage class.

Parts of an open upload are billed as stored bytes, in the class that the upload was created for,
from the first part on (Amazon S3 user guide, "Multipart upload and pricing"). Parts for GLACIER and
DEEP_ARCHIVE wait in "staging storage", which is billed as STANDARD. Storage classes have no minimum
size or duration for parts.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from magic_committer.errors import OptionError

GiB = 1024**3
"""Amazon's bills say GB and mean this number of bytes."""
STANDARD = "STANDARD"
"""The class of an upload if the store does not tell it."""


@dataclass(frozen=True, slots=True)
class Prices:
    """A price list.

    Attributes:
        name: where the prices are from, for people.
        per_gib_month: US dollars, by storage class.
    """

    name: str
    per_gib_month: Mapping[str, float]

    def month(self, size: int | None, storage_class: str) -> float | None:
        """Dollars a month for ``size`` bytes. None: the size or the price of the class is not
        known."""
        price = self.per_gib_month.get(storage_class or STANDARD)
        return None if size is None or price is None else size / GiB * price


US_EAST_1 = Prices(
    "Amazon S3 list prices, us-east-1, April 2025, first 50 TB",
    {
        STANDARD: 0.023,
        "REDUCED_REDUNDANCY": 0.024,
        "INTELLIGENT_TIERING": 0.023,  # parts are billed as its frequent access tier
        "STANDARD_IA": 0.0125,
        "ONEZONE_IA": 0.01,
        "GLACIER_IR": 0.004,
        "GLACIER": 0.023,  # staging storage
        "DEEP_ARCHIVE": 0.023,  # staging storage
        "EXPRESS_ONEZONE": 0.11,
    },
)
"""From Amazon's public price page ("Amazon S3 pricing"). The last change that this list knows is
EXPRESS_ONEZONE in April 2025."""


def read_prices(path: Path) -> Prices:
    """Read a price list from a file: storage classes and dollars for a GiB and month, in TOML or,
    with the suffix ``.json``, JSON. A class that it does not name keeps its price in `US_EAST_1`.

    ::

        STANDARD = 0.021
        MY_CLASS = 0.002

    Raises:
        OptionError: the file cannot be read, or holds something other than numbers from 0 on.
    """
    try:
        data = path.read_bytes()
        found = orjson.loads(data) if path.suffix == ".json" else tomllib.loads(data.decode())
    except OSError as error:
        raise OptionError(f"the prices in {path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # from either format, and from text that is not UTF-8
        raise OptionError(f"the prices in {path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise OptionError(f"{path} is no table of storage classes and prices")
    for name, price in found.items():
        if isinstance(price, bool) or not isinstance(price, int | float) or not price >= 0:
            raise OptionError(f"{path}: {name} = {price!r} is no price: write dollars, e.g. 0.023")
    others = US_EAST_1.per_gib_month.keys() - found
    name = f"{path}; of classes that it does not name: {US_EAST_1.name}" if others else str(path)
    return Prices(name, {**US_EAST_1.per_gib_month, **found})
