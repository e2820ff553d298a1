"""The batch size in a command: the profile's gives way to the configuration's."""

import re

_OPTION = r"--(?:per[-_]device[-_])?(?:train[-_])?(?:micro[-_])?(?:batch[-_]?size|batch|bs)|-b"


def with_batch_size(command: tuple[str, ...], batch_size: int) -> tuple[tuple[str, ...], bool]:
    """The command with its batch-size option set, and whether it had one (`--batch-size 32`, `-b32`, …)."""
    words, found = list(command), False
    for index, word in enumerate(words):
        joined = re.fullmatch(rf"((?:{_OPTION})=|-b)\d+", word)
        apart = re.fullmatch(_OPTION, word) and index + 1 < len(words)
        if joined:
            words[index] = f"{joined[1]}{batch_size}"
            found = True
        elif apart and re.fullmatch(r"\d+", words[index + 1]):
            words[index + 1] = str(batch_size)
            found = True
    return tuple(words), found
