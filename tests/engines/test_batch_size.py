"""The batch size in a command."""

import pytest

from trimtab.engines.jobfiles.script import with_batch_size


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("--batch-size 32", "--batch-size 64"),
        ("--batch_size=32", "--batch_size=64"),
        ("-b 32", "-b 64"),
        ("-b32", "-b64"),
        ("--per_device_train_batch_size 8", "--per_device_train_batch_size 64"),
        ("--train-batch-size 8 --batch-size 4", "--train-batch-size 64 --batch-size 64"),
    ],
)
def test_an_option_gets_the_configurations_value(before: str, after: str) -> None:
    command, found = with_batch_size(("python", "train.py", *before.split()), 64)
    assert command == ("python", "train.py", *after.split())
    assert found


@pytest.mark.parametrize(
    "words", ["--epochs 3", "--batch-size auto", "--batch-size", "--batch-sizes 3", "-be 3"]
)
def test_a_command_without_one_stays_as_it_is(words: str) -> None:
    before = ("python", "-b", "train.py", *words.split())
    assert with_batch_size(before, 64) == (before, False)
