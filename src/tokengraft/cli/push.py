"""`tokengraft push`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokengraft.cli.console import print_json, stdout

_SHOWN = 12  # files that are named


def push(
    folder: Annotated[
        Path, typer.Argument(help="A graft, a page or site, an audit, plan or comparison.")
    ],
    repo: Annotated[str, typer.Argument(help="Where to: owner/name on the hub.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = (
        False
    ),
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only say what would be sent; so it is anyway where no token is."
        ),
    ] = False,
    message: Annotated[str | None, typer.Option(help="Commit message on the hub.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was sent as JSON.")] = False,
) -> None:
    """Send a result to a hub, with its card.

    A graft goes to a model repository, a page to a static space, any other
    result to a dataset. A graft whose files are not those it was verified
    with is not sent.

    [bold]Examples[/bold]

      tokengraft push grafted/ me/llama-3.2-1b-shan

      tokengraft push site/ me/how-much-my-language-pays --dry-run
    """
    from tokengraft.api.push import push as send

    sent = send(folder, repo, private=private, dry_run=dry_run, message=message)
    if json:
        files = dict(sent.files)
        about = {"repo": sent.repo, "kind": sent.kind, "url": sent.url, "why": sent.why}
        print_json({**about, "files": files})
        return
    for name, size in sent.files[:_SHOWN]:
        stdout.print(f"{size:>14,}  {name}", markup=False)
    if len(sent.files) > _SHOWN:
        stdout.print(f"{'…':>14}  and {len(sent.files) - _SHOWN:,} more")
    stdout.print(str(sent), markup=False)
