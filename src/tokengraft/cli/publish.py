"""`tokengraft report`, `playground` and `push`: results as a page, live in a browser, on a hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokengraft.cli.console import drawing, print_json, stdout, warn
from tokengraft.cli.options import RULE, ForceOption, TokenizersOption, check_out, holds_page

_NAMED = 12  # files that are listed before they are sent


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folders that audit, compare, plan, graft or evaluate wrote, or folders of such."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help=f"Folder to write. {RULE}")] = Path(
        "page"
    ),
    force: ForceOption = False,
    tokenizers: TokenizersOption = None,
    corpus: Annotated[
        str | None,
        typer.Option(help="Text for “See the tokens”: a name or path. Default: the run's own."),
    ] = None,
    site: Annotated[
        bool,
        typer.Option(
            "--site",
            help="Write a folder for static hosting: besides the page, one for each language at an "
            "address of its own, preview pictures for links, and a playground that tokenizes in "
            "the browser, so that it needs no server.",
        ),
    ] = False,
    address: Annotated[
        str | None,
        typer.Option(
            help="With --site: where it will be found, such as https://example.org/tokens. Link "
            "previews and the sitemap need full addresses."
        ),
    ] = None,
) -> None:
    """Make one self-contained page: index.html, no network, ready for a static hub space.

    It shows whatever it is given: what languages pay, what a plan would change,
    how a graft turned out. Open it in any browser, or send it to someone.

    [bold]Examples[/bold]

      tokengraft report audit/ --out site/

      tokengraft report audit/ plan.json grafted/ evaluation/ -o site/

      tokengraft report audit/ -o site/ --site --address https://example.org
    """
    from tokengraft.api.report import page_of
    from tokengraft.render.page.build import save_page

    check_out(out, holds_page, force)
    with drawing() as progress:
        page = page_of(
            runs, tokenizers=tokenizers or (), corpus=corpus, site=site, address=address,
            progress=progress,
        )  # fmt: skip
    path = save_page(page, out)
    warn(*page.notes)
    stdout.print(page.title, style="bold", markup=False)
    stdout.print(f"{path} ({path.stat().st_size / 1e6:.1f} MB)", markup=False)


def playground(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Runs to show below the box, as for `report`.")
    ] = None,
    tokenizer: Annotated[
        list[str] | None,
        typer.Option(
            "--tokenizer",
            "-t",
            help="A tokenizer of yours besides the bundled ones: a graft's folder, a file, a hub "
            "id; repeat for more.",
        ),
    ] = None,
    tokenizers: TokenizersOption = None,
    port: Annotated[int, typer.Option(help="Port; 0 takes any free one.", min=0, max=65535)] = 8181,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Type text and see how every tokenizer cuts it; nothing leaves this machine.

    The address to open is printed; Ctrl-C ends it.

    [bold]Examples[/bold]

      tokengraft playground

      tokengraft playground audit/ --tokenizer grafted/
    """
    from tokengraft.api.report import collect
    from tokengraft.render.page.playground import is_loopback, make_server, serve

    server = make_server(
        collect(runs or ()), tokenizer or (), host=host, port=port, tokenizers=tokenizers or ()
    )
    if not is_loopback(host):
        warn(f"{host} can be reached from other machines: anyone who reaches it can use it.")
    stdout.print(f"Playground: {server.address} (Ctrl-C ends it)", markup=False)
    serve(server)


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
            "--dry-run",
            help="Only say what would be sent. Without a hub token, a push does no more than "
            "that, and exits with 1.",
        ),
    ] = False,
    message: Annotated[str | None, typer.Option(help="Commit message on the hub.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was sent as JSON.")] = False,
) -> None:
    """Send a result to a hub, with its card.

    A graft goes to a model repository, a page to a static space, any other
    result to a dataset. A graft whose files have changed since it was verified
    is not sent.

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
    else:
        for name, size in sent.files[:_NAMED]:
            stdout.print(f"{size:>14,}  {name}", markup=False)
        if len(sent.files) > _NAMED:
            stdout.print(f"{'…':>14}  and {len(sent.files) - _NAMED:,} more")
        stdout.print(str(sent), markup=False)
    if sent.url is None and not dry_run:
        raise typer.Exit(1)
