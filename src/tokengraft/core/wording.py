"""Words that several places say alike."""


def counted(count: int, what: str) -> str:
    """`1 language`, `1,204 languages`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
