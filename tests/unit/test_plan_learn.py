"""The learner against a hand-worked example and a slow, obvious twin."""

import math
import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from tokengraft.paper.baselines import by_likelihood
from tokengraft.planning.learn import Learner
from tokengraft.planning.symbols import Symbols, borders, within_character
from tokengraft.tokenizer.pipeline import Encoded


def symbols(letters: str, extra: tuple[str, ...] = (), first_new: int = 1000) -> Symbols:
    names = [*letters, *extra]
    return Symbols(
        ids={name: i for i, name in enumerate(names)},
        names=dict(enumerate(names)),
        first_new=first_new,
        piece=lambda token: token.encode(),
    )


def learner(words: dict[str, int], letters: str) -> Learner:
    known = symbols(letters)
    counts = np.array([[n] for n in words.values()], np.int64)
    return Learner(Encoded.of([known.ids[c] for c in w] for w in words), counts, counts, known)


def names(learned: Learner) -> list[tuple[str, str]]:
    known = learned.symbols.names
    return [(known[s.left], known[s.right]) for s in learned.steps]


def run(learned: Learner, budget: int) -> None:
    while learned.spent < budget and (key := learned.best()) is not None:
        learned.take(key)


def test_worked_by_hand() -> None:
    # ab occurs 5 + 2 times, bc 5, abc leaves ab alone in "abd": so ab, then abc.
    learned = learner({"abc": 5, "abd": 2}, "abcd")
    run(learned, 2)
    assert names(learned) == [("a", "b"), ("ab", "c")]
    assert learned.lengths.tolist() == [1, 2]
    assert learned.totals.tolist() == [5 * 1 + 2 * 2]
    # "ab" + "d" would leave no "ab" at all, so it waits for ever.
    assert learned.best() is None


def test_runs_are_merged_from_the_left() -> None:
    learned = learner({"aaaaa": 3}, "a")
    run(learned, 1)
    assert learned.lengths.tolist() == [3]
    assert [learned.symbols.names[s] for s in learned.spell(0)] == ["aa", "aa", "a"]


def test_a_known_string_costs_nothing_and_its_old_merges_follow() -> None:
    known = symbols("abc", ("ab", "abc"))
    old = (0, 3, 2)  # ab + c -> abc
    known.old_merges = lambda part: [old] if part in old[1:] else []
    counts = np.array([[4]], np.int64)
    learned = Learner(Encoded.of([[0, 1, 2]]), counts, counts, known)
    step = learned.take(learned.best())
    assert (step.result, step.spends, learned.spent) == (3, False, 0)
    assert learned.lengths.tolist() == [1]


def slow_twin(words: dict[str, int], budget: int) -> list[tuple[str, str]]:
    split = {word: list(word) for word in words}
    made: list[tuple[str, str]] = []
    order = {name: i for i, name in enumerate(sorted({c for w in words for c in w}))}
    while len(made) < budget:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, parts in split.items():
            for pair in pairwise(parts):
                pairs[pair] += words[word]
        result = {a + b for a, b in made}
        choice = None
        for pair in sorted(pairs, key=lambda p: (-pairs[p], order[p[0]], order[p[1]])):
            if pairs[pair] < 2:
                break
            trial = {word: merged(parts, pair) for word, parts in split.items()}
            used = Counter()
            for word, parts in trial.items():
                for part in parts:
                    used[part] += words[word]
            if all(used[part] for part in pair if part in result):
                choice = pair
                break
        if choice is None:
            break
        made.append(choice)
        order[choice[0] + choice[1]] = 1000 + len(made)
        split = trial
    return made


def merged(parts: list[str], pair: tuple[str, str]) -> list[str]:
    out: list[str] = []
    for part in parts:
        if out and (out[-1], part) == pair and not out[-1].startswith("\0"):
            out[-1] = "\0" + out[-1] + part
        else:
            out.append(part)
    return [part.replace("\0", "") for part in out]


@pytest.mark.parametrize("seed", range(12))
def test_agrees_with_the_slow_twin(seed: int) -> None:
    rng = random.Random(seed)
    letters = "abcde"
    words = {
        "".join(rng.choice(letters) for _ in range(rng.randint(1, 9))): rng.randint(1, 9)
        for _ in range(40)
    }
    used = "".join(sorted({c for w in words for c in w}))
    learned = learner(words, used)
    expected = slow_twin(words, 12)
    strings = [a + b for a, b in expected]
    if len(set(strings)) < len(strings):
        pytest.skip("two pairs of one string: the twin does not replay merges")
    run(learned, 12)
    assert names(learned) == expected


def likeliest(words: dict[str, int], budget: int) -> list[tuple[str, str]]:
    """The paper's formula by brute force, over every pair at every step."""
    split, made = {word: list(word) for word in words}, []
    while len(made) < budget:
        single: Counter[str] = Counter()
        for word, parts in split.items():
            for part in parts:
                single[part] += words[word]
        n, scores = single.total(), {}
        for pair in {pair for parts in split.values() for pair in pairwise(parts)}:
            trial = {word: merged(parts, pair) for word, parts in split.items()}
            together = sum(words[w] * (len(split[w]) - len(trial[w])) for w in words)
            rest = n - together
            formula = together * math.log(together / (single[pair[0]] * single[pair[1]]))
            scores[pair] = formula - rest * math.log(max(1, rest)), trial
        if not scores:
            break
        made.append(max(scores, key=lambda pair: scores[pair][0]))
        split = scores[made[-1]][1]
    return made


@pytest.mark.parametrize("seed", range(8))
def test_wordpiece_takes_the_pair_after_which_text_is_likeliest(seed: int) -> None:
    rng = random.Random(seed)
    words = {
        "".join(rng.choices("abcd", [8, 4, 2, 1], k=rng.randint(2, 9))): rng.randint(5, 99)
        for _ in range(30)
    }
    expected = likeliest(words, 3)
    learned = learner(words, "".join(sorted(set("".join(words)))))
    choose = by_likelihood(learned, 3, 1)
    for _ in range(3):
        learned.take(choose(learned))
    assert names(learned) == expected


def test_wordpiece_prefers_common_pairs_to_rare_ones_of_rare_parts() -> None:
    """By count(ab) / (count(a) count(b)), `xy` would be first: it never stands apart."""
    learned = learner({"ab": 900, "a": 100, "b": 100, "xy": 2}, "abxy")
    assert learned.take(by_likelihood(learned, 1, 1)(learned))
    assert names(learned) == [("a", "b")]


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        ("अ".encode(), (True, True)),
        ("अ".encode()[:2], (True, False)),
        ("अ".encode()[1:], (False, True)),
        (" अ".encode()[:3], (True, False)),
        (b"\x85\xe0\xa4", (False, False)),
        (b"a", (True, True)),
    ],
)
def test_borders(piece: bytes, expected: tuple[bool, bool]) -> None:
    assert borders(piece) == expected


def test_within_character() -> None:
    letter = "अ".encode()
    assert within_character(letter) and within_character(b" " + letter)
    assert within_character(letter[:2]) and within_character(letter[1:])
    assert not within_character(letter * 2) and not within_character(letter[1:] + letter)
