"""The ways to search that can be chosen by name.

A method is a file here with a class, and a line in `METHODS`.
"""

from trimtab.recommend.tuning.method import Method
from trimtab.recommend.tuning.methods.cherrypick import CherryPick
from trimtab.recommend.tuning.methods.ernest import Ernest
from trimtab.recommend.tuning.methods.ours import Ours
from trimtab.recommend.tuning.methods.random_search import RandomSearch
from trimtab.recommend.tuning.methods.trees import Trees

METHODS: dict[str, Method] = {
    method.name: method for method in (Ours(), CherryPick(), Trees(), Ernest(), RandomSearch())
}
