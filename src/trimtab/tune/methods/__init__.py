"""The ways to search that can be chosen by name.

A method is a file here with a class, and a line in `METHODS`.
"""

from trimtab.tune.method import Method
from trimtab.tune.methods.cherrypick import CherryPick
from trimtab.tune.methods.ernest import Ernest
from trimtab.tune.methods.ours import Ours
from trimtab.tune.methods.random_search import RandomSearch
from trimtab.tune.methods.trees import Trees

METHODS: dict[str, Method] = {
    method.name: method for method in (Ours(), CherryPick(), Trees(), Ernest(), RandomSearch())
}
