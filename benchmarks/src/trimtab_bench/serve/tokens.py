"""Tokens for who asks: a user of each tenant, and an admin of all."""

from trimtab.store import Role, Store
from trimtab_bench.serve import world
from trimtab_bench.serve.world import EVERYBODY, TENANTS


def make_tokens(store: Store) -> dict[str, str]:
    """Their texts by tenant."""
    names = [world.tenant(number) for number in range(TENANTS)]
    made = {name: store.tokens.make("bench", name, Role.USER)[1] for name in names}
    return made | {EVERYBODY: store.tokens.make("bench", EVERYBODY, Role.ADMIN)[1]}
