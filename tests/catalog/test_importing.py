"""Importing price lists: what is taken, what is counted, and what is refused with nothing changed."""

import gzip
import os
from datetime import date
from pathlib import Path

import pytest

from trimtab.catalog import find_accelerator, import_offers, load_offers
from trimtab.core import BadInputError, NotFoundError, Offer

DATA = Path(os.environ.get("TRIMTAB_DATA") or Path(__file__).parents[3] / "shared" / "data")
HEADER = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,"
    "GpuInfo,Price,SpotPrice,Region,AvailabilityZone"
)
AWS = f"""{HEADER}
p9.large,H100-SXM,1.0,16.0,128.0,,6.0,2.5,us-east-1,us-east-1a
p9.large,H100-SXM,1.0,16.0,128.0,,5.0,3.5,us-east-1,us-east-1b
p9.large,H100-SXM,1.0,16.0,128.0,,7.0,,eu-west-1,eu-west-1a
m9.small,,,2.0,8.0,,0.1,0.04,us-east-1,us-east-1a
"""
DAY = date(2026, 8, 22)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def imported(cloud: str) -> dict[str, Offer]:
    return {o.key: o for o in load_offers().where(cloud=cloud)}


def test_zones_collapse_to_the_lowest_price_and_names_to_the_catalogs_own(tmp_path: Path) -> None:
    (report,) = import_offers([written(tmp_path / "aws" / "vms.csv", AWS)], price_date=DAY)
    offers = imported("aws")
    assert (report.provider, report.offers, report.regions) == ("aws", 3, 2)
    p9 = offers["aws/us-east-1/p9.large"]
    assert (p9.price, p9.spot_price) == (5.0 / 3600, 2.5 / 3600)
    assert (p9.accelerator, p9.accelerators, p9.vcpus, p9.memory) == ("H100", 1, 16.0, 128 * 2**30)
    assert p9.price_date == DAY
    assert offers["aws/eu-west-1/p9.large"].spot_price is None
    assert offers["aws/us-east-1/m9.small"].accelerator is None


def test_without_a_date_prices_are_as_old_as_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "aws" / "vms.csv", AWS)
    os.utime(path, (1_600_000_000, 1_600_000_000))
    (report,) = import_offers([path])
    assert report.price_date == date(2020, 9, 13)


def test_a_folder_of_provider_folders_and_one_of_them(tmp_path: Path, home: Path) -> None:
    written(tmp_path / "v8" / "aws" / "vms.csv", AWS)
    written(tmp_path / "v8" / "lambda" / "vms.csv", AWS.replace("SpotPrice", "Other"))
    written(tmp_path / "v8" / "lambda" / "images.csv", "not,about,prices")
    written(tmp_path / "v8" / "common" / "metadata.csv", "not,about,prices")
    reports = import_offers([tmp_path / "v8"])
    assert [r.provider for r in reports] == ["aws", "lambda"]
    assert sorted(p.name for p in (home / "catalog").iterdir()) == ["aws.npz", "lambda.npz"]
    assert all(o.spot_price is None for o in imported("lambda").values())
    assert [r.provider for r in import_offers([tmp_path / "v8"], provider="Lambda")] == ["lambda"]
    assert [r.provider for r in import_offers([tmp_path / "v8" / "aws"])] == ["aws"]


def test_a_list_of_several_providers_may_be_compressed(tmp_path: Path) -> None:
    text = (
        "Cloud,InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Region,Price,SpotPrice\n"
        "AWS,p9.large,H100,1,16,128,us-east-1,6,\n"
        "seeweb,gpu1,L4,1,8,32,,0.5,\n"
    )
    path = tmp_path / "prices.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    assert [r.provider for r in import_offers([path])] == ["aws", "seeweb"]
    assert list(imported("seeweb")) == ["seeweb/default/gpu1"]
    assert [r.provider for r in import_offers([path], provider="aws")] == ["aws"]
    with pytest.raises(BadInputError, match="no usable price for gcp"):
        import_offers([path], provider="gcp")


def test_unusable_rows_are_counted_and_the_rest_is_kept(tmp_path: Path) -> None:
    text = AWS + (
        "bad.price,,,2,8,,-1,,us-east-1,a\n"
        "bad.number,,,two,8,,1,,us-east-1,a\n"
        "bad.infinite,,,2,8,,inf,,us-east-1,a\n"
        "bad.memory,,,2,,,1,,us-east-1,a\n"
        "bad.count,T4,0,2,8,,1,,us-east-1,a\n"
        ",,,,,,1,,us-east-1,a\n"
        "short,row\n"
        "no.price,,,2,8,,,,us-east-1,a\n"
        "free,,,2,8,,0,,us-east-1,a\n"
        "slice,L4,0.25,2,8,,1,,us-east-1,a\n"
        "odd,Abacus 9000,1,2,8,,1,,us-east-1,a\n"
        "\n"
    )
    (report,) = import_offers([written(tmp_path / "aws" / "vms.csv", text)])
    assert (report.offers, report.invalid, report.unpriced) == (4, 6, 2)
    assert report.left_out == {"shares of an accelerator": 1, "offers without a price above zero": 1}
    assert report.unknown_accelerators == {"Abacus 9000": 1}
    assert [o.instance for o in load_offers().where(accelerator="abacus 9000")] == ["odd"]
    assert find_accelerator("Abacus 9000") is None


def test_google_accelerators_are_priced_with_their_machines(tmp_path: Path) -> None:
    rows = [
        "a2-highgpu-1g,,,12,85,,0.74,0.43,us-central1,a",
        "a2-highgpu-1g,,,12,85,,0.75,0.42,us-central1,b",
        "n1-standard-16,,,16,60,,0.76,0.15,us-central1,a",
        "g2-standard-4,,,4,16,,0.15,0.09,us-central1,a",
        "a4-highgpu-8g,,,224,3968,,0.0,0.0,us-central1,a",
        ",A100,1.0,,,,2.93,1.69,us-central1,a",
        ",T4,2.0,,,,0.7,0.38,us-central1,a",
        ",B200,8.0,,,,90,,us-central1,a",
        ",V100,8.0,,,,20,10,us-central1,a",
        ",tpu-v3-8,1.0,,,,8,2,us-central1,a",
        ",tpu-v3-32,1.0,,,,32,9,us-central1,a",
        ",tpu-v6e-4,1.0,,,,10.8,2.6,us-central1,a",
    ]
    text = "\n".join([HEADER, *rows])
    (report,) = import_offers([written(tmp_path / "gcp" / "vms.csv", text)])
    offers = {o.instance: o for o in imported("gcp").values()}
    assert set(offers) == {
        "a2-highgpu-1g",
        "n1-standard-16",
        "n1-standard-16+T4x2",
        "a4-highgpu-8g",
        "tpu-v3-8",
        "tpu-v6e-4",
    }
    assert offers["a2-highgpu-1g"].price * 3600 == pytest.approx(3.67)
    assert (offers["a2-highgpu-1g"].spot_price or 0) * 3600 == pytest.approx(2.11)
    assert offers["n1-standard-16+T4x2"].price * 3600 == pytest.approx(1.46)
    assert (offers["a4-highgpu-8g"].accelerators, offers["a4-highgpu-8g"].spot_price) == (8, None)
    assert (offers["tpu-v3-8"].accelerator, offers["tpu-v3-8"].accelerators) == ("TPU-v3", 4)
    assert (offers["tpu-v6e-4"].accelerators, offers["tpu-v6e-4"].vcpus) == (4, 180)
    assert report.left_out == {"accelerators without a known machine": 1, "TPU slices of several hosts": 1}


def test_known_errors_of_published_lists_are_put_right(tmp_path: Path) -> None:
    text = f"{HEADER}\nStandard_ND96isr_H100_v5,H100,12,96,1900,,98,,eastus,\n"
    import_offers([written(tmp_path / "azure" / "vms.csv", text)])
    assert imported("azure")["azure/eastus/Standard_ND96isr_H100_v5"].accelerators == 8


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "lacks InstanceType"),
        (b"a,b,c\n1,2,3\n", "is not a price list: its first line lacks InstanceType"),
        (AWS.replace("vCPUs", "cpus").encode(), r"lacks vCPUs; it should name the columns"),
        (HEADER.encode(), "has no usable price"),
        (f"{HEADER}\nx,,,2,8,,-1,,r,z\n".encode(), "has no usable price"),
        (f"{HEADER}\nx,,,2,8,,0,,r,z\n".encode(), "no offer of aws that can be rented"),
        (gzip.compress(AWS.encode(), mtime=0)[:-20], "damaged gzip"),
        (gzip.compress(AWS.encode(), mtime=0)[:-8] + b"\0" * 8, "damaged gzip"),
        (b"\x89PNG\xff\xfe\x00", "is not text"),
        (b'"' + b"x" * 200_000, "is not a CSV file"),
    ],
)
def test_a_file_that_is_no_price_list_is_refused_and_nothing_changes(
    tmp_path: Path, home: Path, content: bytes, message: str
) -> None:
    good = written(tmp_path / "lambda" / "vms.csv", AWS)
    bad = tmp_path / "aws" / "vms.csv"
    bad.parent.mkdir()
    bad.write_bytes(content)
    with pytest.raises(BadInputError, match=message):
        import_offers([good, bad])
    assert not home.exists()


def test_paths_and_providers_that_do_not_exist_are_refused(tmp_path: Path, home: Path) -> None:
    anonymous = written(tmp_path / "prices.csv", AWS)
    with pytest.raises(BadInputError, match="there is no file"):
        import_offers([tmp_path / "aws.csv"])
    with pytest.raises(BadInputError, match="add --provider"):
        import_offers([anonymous])
    with pytest.raises(NotFoundError, match='no provider is called "azur"; did you mean azure'):
        import_offers([anonymous], provider="azur")
    with pytest.raises(BadInputError, match="no price list of a known provider"):
        import_offers([tmp_path])
    with pytest.raises(NotFoundError, match="no provider is called"):
        import_offers([written(tmp_path / "nowhere" / "vms.csv", AWS).parent])
    text = AWS.replace("InstanceType", "Cloud,InstanceType").replace("\np9", "\n../../etc,p9")
    with pytest.raises(NotFoundError, match=r'"\.\./\.\./etc"'):
        import_offers([written(tmp_path / "several.csv", text)])
    assert not home.exists()
    assert [r.provider for r in import_offers([anonymous], provider="AWS")] == ["aws"]


def test_a_provider_in_two_lists_is_refused(tmp_path: Path, home: Path) -> None:
    path = written(tmp_path / "aws" / "vms.csv", AWS)
    with pytest.raises(BadInputError, match="aws is in more than one"):
        import_offers([path, path])
    assert not home.exists()


def test_a_real_snapshot_of_published_prices() -> None:
    path = DATA / "prices" / "prices.csv.gz"
    if not path.exists():
        pytest.skip(f"{path} is not here; set TRIMTAB_DATA to the folder with prices/")
    reports = {r.provider: r for r in import_offers([path], price_date=DAY)}
    table = load_offers()
    assert len(reports) >= 20
    assert len(table.where(cloud=list(reports))) == sum(r.offers for r in reports.values()) > 8000
    assert sum(r.invalid for r in reports.values()) == 0
    assert sum(r.unpriced for r in reports.values()) == 71
    assert table.price.min() > 0
    eight = table.where(accelerator="H100", min_accelerators=8, cloud=["aws", "gcp", "azure"])
    assert 40 < eight.price.min() * 3600 < eight.price.max() * 3600 < 150
    assert (table.accelerators[table.accelerator.matches(["Abacus"])] == 0).all()
