"""The six invariants of a grafted folder, proved by loading it afresh beside its base."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokengraft.core.errors import MissingExtra, ModelError, TokengraftError, panics_as_errors
from tokengraft.core.progress import OnProgress, Progress
from tokengraft.core.untrusted import refuse_code
from tokengraft.corpus import udhr
from tokengraft.grafting import small_files
from tokengraft.grafting.manifest import outputs, read_manifest
from tokengraft.grafting.output_policies import DEFAULT, OutputPolicy, recorded
from tokengraft.grafting.same_size import grown
from tokengraft.grafting.verify import lanes as verify_lanes
from tokengraft.grafting.verify import loading as verify_load
from tokengraft.grafting.verify import protected as verify_protected
from tokengraft.grafting.verify import small_files as verify_files
from tokengraft.grafting.verify import tensors as verify_tensors
from tokengraft.grafting.verify import tokens as verify_tokens
from tokengraft.grafting.verify.loading import PlainModels, same_size
from tokengraft.grafting.verify.protected import Moved
from tokengraft.languages.codes import script_of
from tokengraft.model.checkpoint import Checkpoint, read_checkpoint, read_if_there, read_json
from tokengraft.model.embedding_tables import Tables, find_layout, is_encoder, is_tied
from tokengraft.model.folder import CONFIG, MANIFEST, refuse_adapter
from tokengraft.model.tokenizer_files import TOKENIZER, TOKENIZER_CONFIG, base_tokenizer
from tokengraft.tokenizer import sentence_piece
from tokengraft.tokenizer.insert import first_free_id
from tokengraft.tokenizer.pre_tokenizer import is_relaxed
from tokengraft.tokenizer.transformers_classes import rebuilt

#: Languages in many scripts that every check includes, whether planned for or not.
_WORLD = ("eng_Latn", "fra_Latn", "rus_Cyrl", "arb_Arab", "hin_Deva", "zho_Hans", "jpn_Jpan")

#: Protected text, of kinds not trained on, may move by this many times what was promised: KL, and
#: the share of positions where another token is the likeliest.
_TOLERATED = 3.0
_MOST = 1.0  # nats; a manifest whose promise tolerates more than that would excuse any change
_ROUNDED = 0.01  # nats: more than rounded norms explain, where a body has lanes


@dataclass(frozen=True)
class Check:
    """One invariant: whether it holds, and what was seen."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class Report:
    """Every check that was made, in the order of the invariants."""

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether all of them hold."""
        return all(check.passed for check in self.checks)

    def lines(self) -> list[str]:
        """One line per check, for people."""
        return [f"{'ok  ' if c.passed else 'FAIL'}  {c.name}: {c.detail}" for c in self.checks]


def verify(
    folder: Path,
    base: Path,
    texts: Iterable[str] | None = None,
    moved: Mapping[str, Moved] | None = None,
    *,
    models: PlainModels | None = None,
    progress: OnProgress | None = None,
) -> Report:
    """Check `folder` against the `base` model it was grafted from.

    1 old weights, 2 round trip, 3 untouched text, 4 no dead rows, 5 preserved, 6 loads; then the
    output policy and, if present, `tokenizer.model` and the manifest. `texts` are lines to check on
    (the planning text is best); without them, the bundled UDHR in the planned languages and a few
    others. A same-size graft is checked as it was before `grafting.same_size`, and then as it is,
    which reports the ids that changed their meaning. `moved` is the result of `protected.measure`,
    if it is known already; `models` says where models are run. Anything wrong with the folder,
    damaged files included, is a failed check; ModelError only if there is no such folder or the
    base cannot be read.
    """
    if not folder.is_dir():
        raise ModelError(f"no folder {folder}")
    refuse_adapter(folder)
    if special := verify_files.special_file(folder):
        return Report((Check("preserved", False, special),))
    places = None
    with contextlib.suppress(ModelError):  # its own check reports a damaged manifest
        places = (read_manifest(folder) or {}).get("places")
    models = models or PlainModels()
    try:
        return _verify(folder, base, texts, moved, places, models, progress)
    finally:
        models.drop()


def _verify(
    folder: Path,
    base: Path,
    texts: Iterable[str] | None,
    moved: Mapping[str, Moved] | None,
    places: Any,
    models: PlainModels,
    progress: OnProgress | None,
) -> Report:
    if places is None:
        return Verification(folder, base, texts, models, moved, progress).report()
    try:
        weights = [shard.path.name for shard in read_checkpoint(folder).shards]
        if wrong := verify_files.strange_file(base, folder, weights):
            raise ModelError(wrong)
        with grown(folder, base) as whole:
            seen = Verification(whole, base, texts, models, None, progress)
            checks = [check for check in seen.report().checks if check.name != "manifest"]
            about = seen.layout, places, seen.encoded, seen.new.start
            checks.append(checked("same size", lambda: same_size(models, folder, base, *about)))
    except MissingExtra:
        raise
    except Exception as error:
        checks = [_failed("same size", error)]
    files = (read_manifest(folder) or {})["files"]
    checks.append(checked("manifest", lambda: verify_files.hash_difference(folder, files)))
    return Report(tuple(checks))


def check_lines(languages: Iterable[str]) -> list[str]:
    """UDHR lines in these languages, in all that share a non-Latin script, and in a few others."""
    corpus = udhr.load()
    wanted = {*languages, *_WORLD}
    scripts = set(map(script_of, languages)) - {"Latn"}
    return corpus.lines(
        *(code for code in corpus.languages if code in wanted or script_of(code) in scripts)
    )


class Verification:
    """Reads each part of the folder when a check first needs it, so that each check fails alone."""

    def __init__(
        self,
        folder: Path,
        base: Path,
        texts: Iterable[str] | None,
        models: PlainModels | None = None,
        moved: Mapping[str, Moved] | None = None,
        progress: OnProgress | None = None,
    ) -> None:
        self.folder, self.base, self.moved = folder, base, moved
        self.models, self.progress = models or PlainModels(), progress
        self.texts = None if texts is None else list(texts)
        self.old_config = read_json(base / CONFIG)
        self.old: Checkpoint = read_checkpoint(base)
        self.layout: Tables = find_layout(self.old_config, self.old)
        self.old_tokenizer = base_tokenizer(base)

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """The graft's config; with lanes, as if it had none."""
        config = read_json(self.folder / CONFIG)
        return verify_lanes.narrow_config(self.old_config, config) if self.lanes else config

    @functools.cached_property
    def lanes(self) -> int:
        """By how many dimensions the graft is wider than its base."""
        with contextlib.suppress(ModelError):  # checks that need the config report it
            return verify_lanes.lanes_in(self.old_config, read_json(self.folder / CONFIG))
        return 0

    @functools.cached_property
    def manifest(self) -> dict[str, Any] | None:
        return read_manifest(self.folder)

    @functools.cached_property
    def checkpoint(self) -> Checkpoint:
        """The graft's weights; with lanes, only what was there before them."""
        whole = read_checkpoint(self.folder)
        return verify_lanes.Narrow.of(whole, self.old, self.layout) if self.lanes else whole

    @functools.cached_property
    def pair(self) -> verify_tokens.Pair:
        return verify_tokens.Pair(self.old_tokenizer, read_json(self.folder / TOKENIZER))

    @functools.cached_property
    def new(self) -> range:
        return range(first_free_id(self.pair.base), first_free_id(self.pair.new))

    @functools.cached_property
    def encoded(self) -> verify_tokens.EncodedBoth:
        said: Mapping[str, Any] = {}
        with contextlib.suppress(ModelError):  # its own check reports a damaged manifest
            said = self.manifest or {}
        lines = check_lines(said.get("languages", ())) if self.texts is None else self.texts
        # Words that emitted the new tokens when they were planned; whether they do is checked here.
        return self.pair.encode([*lines, *said.get("examples", ())])

    @functools.cached_property
    def rows(self) -> int:
        table = self.checkpoint.tensors.get(self.layout.input.name)
        return table.shape[0] if table and table.shape else 0

    @functools.cached_property
    def untied(self) -> bool:
        """Whether a tied base was given a separate head; only a policy that trains one may."""
        if not self.trains or not self.layout.tied:
            return False
        return not is_tied(self.config, self.layout.head_name in self.checkpoint.tensors)

    @functools.cached_property
    def trains(self) -> bool:
        """Whether output rows were trained, by the policy in the manifest, if there is one."""
        return self.manifest is not None and recorded(self.manifest["output"]["policy"]).trains

    @functools.cached_property
    def trained(self) -> tuple[str, ...]:
        """Tensors that the manifest says were trained, besides new rows; never a table.

        With lanes, none: old weights are all there, and only the norms are scaled.
        """
        if self.lanes:
            return ()
        with contextlib.suppress(ModelError):  # its own check reports a damaged manifest
            said = (self.manifest or {}).get("trained", {})
            movable = self.old.tensors.keys() - {table.name for table in self.layout.tables}
            return tuple(name for name in said.get("tensors", ()) if name in movable)
        return ()

    @functools.cached_property
    def tokenizer(self) -> Any:
        return verify_load.load_tokenizer(self.folder)

    def report(self) -> Report:
        steps: list[tuple[str, Callable[[], tuple[bool, str]]]] = [
            ("old weights", self._weights),
            ("round trip", lambda: verify_tokens.round_trip(self.pair, self.encoded)),
            ("untouched text", self.untouched),
            ("no dead rows", self._dead),
            ("preserved", self._preserved),
            ("loads", self._loads),
            ("output policy", self._output),
        ]
        if (self.folder / sentence_piece.SENTENCEPIECE).is_file():
            steps.append((sentence_piece.SENTENCEPIECE, self._pieces))
        if self.trained or self.lanes:
            steps.append(("protected text", self._protected))
        if (self.folder / MANIFEST).is_file():
            steps.append(("manifest", self._manifest))
        checks = []
        for done, (name, step) in enumerate(steps):
            if self.progress is not None:
                self.progress(Progress(f"verifying: {name}", done, len(steps)))
            checks.append(checked(name, step))
        return Report(tuple(checks))

    def _weights(self) -> tuple[bool, str]:
        first = first_free_id(self.old_tokenizer)
        if self.lanes:
            return self._lanes(first)
        wrong = verify_tensors.other_weights(
            self.old, self.checkpoint, self.layout, first, self.untied, self.trained
        )
        count = len(self.old.tensors)
        if wrong or not self.trained:
            return wrong is None, wrong or f"{count} tensors, every old row and byte the same"
        moved, most = verify_tensors.moved(self.old, self.checkpoint, self.trained)
        return True, (
            f"{moved} of {count} tensors were trained and moved by {most:.2%} of their size at "
            "most; every old row and all others are the same bytes"
        )

    def _lanes(self, first: int) -> tuple[bool, str]:
        """Old weights within wider ones, and nothing that could act where no new token is."""
        norms = verify_lanes.norms(self.old)
        wrong = (
            verify_lanes.config_difference(self.old_config, read_json(self.folder / CONFIG))
            or verify_lanes.leak(self.old, read_checkpoint(self.folder), self.layout, self.new)
            or verify_tensors.other_weights(
                self.old, self.checkpoint, self.layout, first, self.untied, norms
            )
        )
        return wrong is None, wrong or (
            f"{len(self.old.tensors)} tensors, every old row and byte the same within wider ones "
            f"({self.lanes} lanes), but for {len(norms)} norms, scaled and rounded; all that could "
            "act on text without new tokens is 0"
        )

    def untouched(self) -> tuple[bool, str]:
        old, new = self.pair.ids()
        moved = [token for token, number in old.items() if new.get(token) != number]
        if moved:
            return False, f"the token {moved[0]!r} had id {old[moved[0]]}, has {new.get(moved[0])}"
        return verify_tokens.untouched(self.pair, self.encoded, self.new)

    def _dead(self) -> tuple[bool, str]:
        if not len(self.new):
            return False, "there is no new token: the vocabulary is the base's, this is no graft"
        names = [self.layout.input.name]
        if self.untied or (self.trains and self.layout.head is not None):
            names.append(self.layout.head_name)
        for name in names:
            if dead := verify_tensors.dead_rows(self.checkpoint, name, self.new):
                return False, f"{len(dead)} new tokens have no usable row, first id {dead[0]}"
        tables = self.old, self.checkpoint, self.layout, self.new
        if wrong := verify_tensors.outsized_row(*tables) or verify_tensors.loud_bias(*tables):
            return False, wrong
        seen = {i for ids in self.encoded.new for i in ids if i in self.new}
        left = verify_tokens.unproven(self.pair, self.new, self.encoded.lines, seen)
        if left:
            return False, (
                f"{len(left)} of {len(self.new)} new tokens were emitted nowhere, first ids "
                f"{left[:5]}; if the check text is small, give the planning text"
            )
        built = len(self.new) - len(seen)
        return True, (
            f"{len(self.new):,} new tokens: {len(seen):,} emitted on the check text, "
            f"{built:,} on text built around them"
        )

    def _preserved(self) -> tuple[bool, str]:
        weights = [shard.path.name for shard in self.checkpoint.shards]
        wrong = (
            verify_files.strange_file(self.base, self.folder, weights)
            or verify_files.config_difference(
                self.old_config, self.config, self.layout, self.rows, self.untied
            )
            or self._table_difference()
            or verify_files.generation_difference(self.base, self.folder)
            or self.tokenizer_difference()
        )
        if wrong:
            return False, wrong
        spare = max(0, self.layout.rows - self.new.stop)
        kind = "tied" if self.layout.tied else "untied"
        kind = "tied before, a head of its own now" if self.untied else kind
        return (
            True,
            f"{kind}, {self.layout.rows:,} rows to {self.rows:,}, {spare:,} padding rows kept",
        )

    def _table_difference(self) -> str | None:
        tables = {table.name: table for table in self.layout.tables}
        if self.untied:  # from which the head's old and padding rows come, if it had no copy
            tables.setdefault(self.layout.head_name, self.layout.input)
        for name, table in tables.items():
            copy = self.checkpoint.tensors.get(name)
            if copy is None or copy.shape[0] < table.shape[0]:
                return f"{name} shrank from {table.shape[0]} rows"
            if copy.shape[0] != max(self.layout.rows, self.new.stop):
                return f"{name} has {copy.shape[0]} rows for ids up to {self.new.stop - 1}"
            row = verify_tensors.different_row(
                self.old, table, self.checkpoint, copy,
                min(self.new.stop, table.shape[0]), table.shape[0],
            )  # fmt: skip
            if row is not None:
                return f"padding row {row} of {name} differs"
        return None

    def tokenizer_difference(self) -> str | None:
        """What the tokenizer's files changed besides adding tokens, or None."""
        tokenizers = self.pair.base, self.pair.new
        return (
            verify_files.tokenizer_difference(*tokenizers, self.new)
            or verify_files.insertion_difference(*tokenizers, self.new)
            or self._foreign_token()
            or verify_files.frame_difference(self.base, *tokenizers)
            or verify_files.settings_difference(self.base, self.folder, *tokenizers)
            or self._trait_difference()
        )

    def _foreign_token(self) -> str | None:
        if self.manifest is None or self.pair.literal:
            return None
        tokenizers = self.pair.base, self.pair.new
        return verify_files.foreign_token(*tokenizers, self.new, self.manifest["languages"])

    def _trait_difference(self) -> str | None:
        try:
            base = verify_load.load_tokenizer(self.base)
        except MissingExtra:
            raise
        except Exception:
            return None  # some bases load only with their slow tokenizer; their files were compared
        had, has = (verify_load.tokenizer_traits(t) for t in (base, self.tokenizer))
        # A graft writes out its class's default tokens, which some transformers versions lack.
        had = {name: value for name, value in had.items() if value is not None}
        return verify_files.first_difference(had, {name: has[name] for name in had})

    def read_otherwise(self) -> tuple[str | None, str]:
        """How transformers reads text otherwise than tokenizer.json, and what is not promised."""
        lossy = rebuilt(self.config, is_relaxed(self.pair.new))
        about = self.encoded.lines, self.encoded.new, lossy
        return verify_load.read_otherwise(self.tokenizer, self.folder, *about)

    def _loads(self) -> tuple[bool, str]:
        for name in (CONFIG, TOKENIZER_CONFIG):
            refuse_code(read_if_there(self.folder / name), name)
        wrong, limit = self.read_otherwise()
        if wrong is not None:
            return False, wrong
        ids = [*self.new[:1], *self.new[-1:], 0]
        tied, width = self.layout.tied and not self.untied, self.layout.width + self.lanes
        layout = replace(self.layout, tied=tied, width=width)
        wrong, whole = verify_load.examine(self.models, self.folder, layout, self.rows, ids)
        if wrong:
            return False, wrong
        import transformers

        how = "" if whole else " (frame only: the weights exceed the free memory)"
        return True, f"transformers {transformers.__version__}, no remote code{how}{limit}"

    def _output(self) -> tuple[bool, str]:
        """Generation bars what the policy says, as far as the policy is known."""
        if is_encoder(self.old_config):
            same = verify_load.same_states(self.models, self.base, self.folder, self.tokenizer)
            return same, f"an encoder: English is {'' if same else 'not '}read as by the base"
        manifest = self.manifest
        own, said = map(small_files.barred_ids, (self.base, self.folder))
        least = {*own, *range(self.layout.rows, self.new.start)}
        barred = said & set(self.new)
        policy: OutputPolicy | None
        if manifest is not None:
            output = manifest["output"]
            policy, wanted = recorded(output["policy"]), least | set(output["barred"])
            if range(*output["new"]) != self.new:
                return False, f"the manifest's new ids are {output['new']}, not {self.new}"
            if not policy.writes:
                wanted |= set(self.new)
            if manifest.get("earlier", []) != outputs(read_manifest(self.base)):
                return False, "the manifest does not say what the base's own new tokens may do"
            tokenizers, rows = (self.pair.base, self.pair.new), self.layout.rows
            if wrong := verify_tokens.wrong_first_part(
                *tokenizers, self.new, rows, output["first_parts"]
            ):
                return False, wrong
        elif 0 < len(barred) < len(self.new):
            return False, f"{len(barred)} of {len(self.new)} new ids are barred: no policy does so"
        else:
            policy, wanted = (recorded(DEFAULT) if barred else None), said | least
        if missing := sorted(wanted - said):
            return False, f"generation config does not bar {len(missing)} ids, first {missing[0]}"
        if extra := sorted(said - wanted):
            return False, f"generation config bars {len(extra)} ids too many, first {extra[0]}"
        if policy is None:
            return True, (
                f"not checked: without {MANIFEST} the policy is unknown; "
                "as it stands, generation may emit the new tokens"
            )
        guess = "" if manifest else f" (taken from what is barred: no {MANIFEST})"
        exact = self.models.fit(self.base) and self.models.fit(self.folder)  # in float32
        if policy.trains and exact:
            spare = [*range(self.new.start, min(self.new.stop, self.layout.rows))]
            before, after = self._greedy(spare)
            same = before == after
            kept = "equals the base's" if same else "differs: evaluate tells how often"
            return True, f"{policy.name}: {len(said)} ids barred, greedy English output {kept}"
        if policy.writes or not exact:
            return True, f"{policy.name}{guess}: {len(said)} ids barred from generation"
        # The base could emit its spare rows, which new tokens have taken over: bar them there too.
        spare = [i for i in said if i < self.layout.rows]
        before, after = self._greedy(spare)
        if self.trained or self.lanes:
            why = "norms were rounded" if self.lanes else "the body was trained"
            kept = "equals the base's" if before == after else f"differs: {why}"
            return True, f"{policy.name}{guess}: greedy English output {kept}"
        if before != after:
            return False, f"greedy English gives ids {after[:12]}, the base {before[:12]}"
        return True, f"{policy.name}{guess}: greedy English output equals the base's"

    def _greedy(self, spare: Sequence[int]) -> tuple[list[int], list[int]]:
        """Greedy English by the base, with its `spare` rows barred, and by the graft."""
        before = verify_load.greedy(self.models, self.base, self.tokenizer, spare)
        return before, verify_load.greedy(self.models, self.folder, self.tokenizer)

    def _pieces(self) -> tuple[bool, str]:
        """`tokenizer.model`, the vocabulary in SentencePiece's format, read by SentencePiece."""
        model = (self.folder / sentence_piece.SENTENCEPIECE).read_bytes()
        lines = self.encoded.lines
        otherwise = sentence_piece.read_otherwise(model, self.pair.new, lines)
        said = otherwise or f"SentencePiece gives {len(lines)} lines the same ids"
        return otherwise is None, said

    def _protected(self) -> tuple[bool, str]:
        """How far protected text moved: reported, and a failure if it is far more than promised."""
        if self.lanes:
            moved = self.moved or self._measured(self.new)
            moves = "; ".join(f"{kind}: {one}" for kind, one in moved.items()) or "not measured"
            said = f"{moves} (rounding is all that may move it)"
            return all(one.kl <= _ROUNDED for one in moved.values()), said
        manifest = self.manifest or {}
        promised = manifest["trained"]["promised"]
        kl, top1 = promised["kl"], promised["top1"]
        if not (0 < _TOLERATED * kl <= _MOST and 0 <= top1 < 1):
            return False, f"what was trained may move text by KL {kl}, top-1 {top1}: no promise"
        untaught = () if self.trains else self.new
        moved = self.moved or self._measured(untaught)
        if not moved:
            return True, "not measured: no text for it, or no memory for both models"
        moves = "; ".join(f"{kind}: {one}" for kind, one in moved.items())
        moves += f" on text that was not trained on (aimed at: KL {kl:g}, top-1 {top1:g})"
        kept = all(
            one.kl <= _TOLERATED * kl and 1 - one.top1 <= _TOLERATED * (1 - top1)
            for one in moved.values()
        )
        return kept, moves

    def _measured(self, untaught: Sequence[int]) -> dict[str, Moved]:
        return verify_protected.measure(self.models, self.folder, self.base, untaught)

    def _manifest(self) -> tuple[bool, str]:
        return verify_files.hash_difference(self.folder, (self.manifest or {})["files"])


def checked(name: str, step: Callable[[], tuple[bool, str]]) -> Check:
    """The step's outcome; an exception is a failed check, except for a missing extra."""
    try:
        with panics_as_errors("checking"):
            return Check(name, *step())
    except MissingExtra:
        raise
    except Exception as error:
        return _failed(name, error)


def _failed(name: str, error: Exception) -> Check:
    if isinstance(error, TokengraftError):
        return Check(name, False, str(error))
    said = next(iter(str(error).splitlines()), "")[:200]
    return Check(name, False, f"{type(error).__name__}: {said}")
