"""What the paper proposes and our own measurements found to lose, each still working.

`import tokengraft.paper` adds the rows: methods (`paper.knn` …), plan modes (`paper`,
`paper.likelihood` …) and output policies (`paper.shared` …). Besides there are `adapt_input`, a
trained map in front of a model; `equiprobable`, what a language would pay with strings of its own;
and `tokengraft reproduce`. The page docs/paper.md has all of it. Nothing in tokengraft imports this
package; such a name, or `tokengraft paper`, loads it.
"""

from __future__ import annotations

from typing import Any

from tokengraft.core.options import Later
from tokengraft.paper import methods, modes, policies

for _part in (methods, modes, policies):
    _part.register()

_NAMES = {"InputAdapted": "adapting", "adapt_input": "adapting", "equiprobable": "tunstall"}


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return Later(f"{__name__}.{_NAMES[name]}:{name}").load()
