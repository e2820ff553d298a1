"""What tenants may be promised."""

import pytest

from trimtab.core import BadInputError
from trimtab.schedule.quota import Quotas, jain_index
from trimtab.store import Tenant


@pytest.mark.parametrize(
    ("tenants", "sentence"),
    [
        (
            [Tenant("a", "b"), Tenant("b", "c"), Tenant("c", "a")],
            "tenants are in a circle: a → b → c → a; one of them must have no parent",
        ),
        ([Tenant("a", "a")], "tenants are in a circle: a → a; one of them must have no parent"),
        (
            [Tenant("lab", guarantee=8), Tenant("x", "lab", 6), Tenant("y", "lab", 4)],
            "x and y below lab are guaranteed 10 accelerators, more than the 8 of lab itself; raise its"
            " guarantee or lower theirs",
        ),
        ([Tenant("x", "labb"), Tenant("lab")], "which is no tenant (did you mean lab?)"),
        ([Tenant("x"), Tenant("x")], "tenant x is named twice; once is enough"),
        ([Tenant("x", guarantee=-1)], "tenant x: a guarantee is 0 or more accelerators, not -1"),
        ([Tenant("x", guarantee=float("nan"))], "tenant x: a guarantee is 0 or more accelerators, not nan"),
        ([Tenant("x", weight=0)], "tenant x: a weight is above 0, not 0"),
        ([Tenant("x", guarantee=5, limit=4)], "tenant x: the limit 4 is below the guarantee 5"),
    ],
)
def test_what_cannot_be_promised_is_refused(tenants: list[Tenant], sentence: str) -> None:
    with pytest.raises(BadInputError) as error:
        Quotas(tenants)
    assert sentence in str(error.value)


def test_a_line_goes_to_the_top() -> None:
    quotas = Quotas([Tenant("all", guarantee=9), Tenant("lab", "all", 5), Tenant("x", "lab", 5)])
    assert [tenant.name for tenant in quotas.line("x")] == ["x", "lab", "all"]
    assert quotas.line("stranger") == (Tenant("stranger"),)


@pytest.mark.parametrize(
    ("shares", "index"), [([3, 3, 3], 1.0), ([1, 0, 0, 0], 0.25), ([], 1.0), ([0, 0], 1.0), ([2, 1], 0.9)]
)
def test_jains_index(shares: list[float], index: float) -> None:
    assert jain_index(shares) == pytest.approx(index)
