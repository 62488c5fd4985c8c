"""How the `tokengraft` command ends: 0 ok, 1 error, 2 usage, 3 unsound graft, 4 a check failed,
130 interrupted.

The rest is imported inside `run`, so that Ctrl-C ends even the imports quietly.
"""

from __future__ import annotations

import errno
import gc
import re
import sys
from typing import Any, NoReturn

#: Commands that write all of their files or none.
_WHOLE = ("audit", "compare", "plan", "insert", "graft", "evaluate", "report")
_KEPT = {
    "audit": "What was counted is kept: run the command again to go on.",
    "plan": "Text that was counted is kept; the choice of tokens starts over.",
    "reproduce": "What was counted or measured is kept: run the command again to go on.",
}


def run() -> None:
    """Run the command line; every expected failure ends in one message and a non-zero exit."""
    try:
        from tokengraft.cli.app import app
        from tokengraft.cli.console import speak_any_language, warn_of_encoders
        from tokengraft.core.errors import TokengraftError
    except KeyboardInterrupt:
        sys.exit(130)
    speak_any_language()
    warn_of_encoders()
    # Vocabularies are millions of small objects, which the garbage collector would scan repeatedly.
    gc.set_threshold(100_000, 50, 100)
    try:
        app()
    except TokengraftError as error:
        _end(str(error), error.exit_code)
    except OSError as error:
        if error.errno is None:
            raise
        _end(_system(error))
    except RuntimeError as error:
        # Only what has imported torch can run out of a GPU's memory.
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(error, torch.cuda.OutOfMemoryError):
            raise
        _end(_full_card(torch, str(error)))
    except SystemExit as end:
        if end.code == 130:
            # On a terminal ^C is already on the line.
            start = "\n" if sys.stderr.isatty() else ""
            _say(f"{start}Interrupted. {_kept(sys.argv[1:])}".rstrip())
        raise


def _end(message: str, code: int = 1) -> NoReturn:
    _say(message, "Error:")
    sys.exit(code)


def _say(message: str, mark: str = "") -> None:
    from tokengraft.cli.console import stderr

    if mark:
        stderr.print(f"[bold red]{mark}[/bold red]", end=" ")
    stderr.print(message, markup=False, highlight=False)


def _verb(arguments: list[str]) -> str:
    return next((word for word in arguments if not word.startswith("-")), "")


def _kept(arguments: list[str]) -> str:
    """A sentence on what an interrupted command leaves behind."""
    verb = _verb(arguments)
    if verb != "graft":
        return _KEPT.get(verb, "")
    if "--text" not in arguments:
        return "Nothing was written."
    return "What was learned is kept: run the same command again to go on."


def _system(error: OSError) -> str:
    """A message on what the system refused, and what is left of the result."""
    reason = error.strerror or str(error)
    message = f"{reason}." if error.filename is None else f"{error.filename}: {reason}."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        message += " Make room, or name another place (--out, --checkpoint-dir)."
    if _verb(sys.argv[1:]) in _WHOLE:
        return f"{message} Nothing half-written was left."
    return f"{message} Every file that was written is whole, but some may be missing."


def _full_card(torch: Any, message: str) -> str:
    """A message on what to do when a GPU runs out of memory, and how much there was."""
    named = re.search(r"GPU (\d+)", message)
    device = int(named.group(1)) if named else 0
    try:
        free, total = torch.cuda.mem_get_info(device)
        room = (free + torch.cuda.memory_reserved(device)) / 2**30
        had = f"; {room:.1f} of its {total / 2**30:.1f} GiB could be had, others hold the rest"
    except (RuntimeError, AssertionError, ValueError):
        had = ""
    return (
        f"GPU cuda:{device} does not have enough memory for this{had}. Free the card, name another "
        "one such as --device cuda:1, or take --device cpu. No result was written."
    )


if __name__ == "__main__":
    run()
