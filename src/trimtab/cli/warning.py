"""What a user should know although the command goes on: one sentence on standard error."""


def warn(sentence: str) -> None:
    """Say it, beside whatever the command prints."""
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True).print(f"trimtab: {sentence}", markup=False)
