"""Parts for a token that was UNK: what its letters are called.

    ሰላም → SYLLABLE SA, LAA, ME → salaame → the old tokens of that

A word that a tokenizer could not spell has no parts to average. Unicode's names of letters spell
it in Latin script, roughly as it sounds: names and loan words come out near to how the model knows
them, other words as sounds without a sense. It is where training starts from, and what is left
where there is none.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from tokengraft.tokenizer.adapters import Tokenizer


def transliterate(text: str) -> str:
    """`text` in Latin letters by the names of its characters; marks without a sound are left out.

    A letter's inherent vowel gives way to a vowel sign, and falls where a mark silences it.
    """
    spelled = ""
    inherent = False  # whether the last letter ends in a vowel that is not written
    for character in unicodedata.normalize("NFC", text):
        if character.isascii():
            spelled, inherent = spelled + character, False
            continue
        *kind, sound = unicodedata.name(character, "NOTHING").split()
        silences = {"VIRAMA", "ASAT", "HALANTA", "PULLI"} & {sound}
        if inherent and (silences or "VOWEL" in kind):
            spelled = spelled[:-1]
        digit = unicodedata.digit(character, None)
        if digit is not None:
            spelled += str(digit)
        elif unicodedata.category(character)[0] == "L" or "VOWEL" in kind:
            spelled += "".join(letter for letter in sound.lower() if letter.isalpha())
        inherent = "LETTER" in kind and "VOWEL" not in kind and spelled.endswith("a")
    return spelled


def known_parts(
    parts: Sequence[Sequence[int]], old: Tokenizer, new: Tokenizer
) -> tuple[list[Sequence[int]], int]:
    """The parts, those of UNK replaced by their transliteration's; and how many tokens had none."""
    unknown = old.vocabulary.unknown
    pieces = new.vocabulary.pieces[len(old.vocabulary) :]
    lost = [number for number, one in enumerate(parts) if not unknown.isdisjoint(one)]
    texts = [transliterate(pieces[number].decode("utf-8", "replace")) for number in lost]
    whole: list[Sequence[int]] = list(parts)
    for number, ids in zip(lost, old.encode(texts), strict=True):
        whole[number] = [one for one in ids if one not in unknown] or parts[number]
    return whole, len(lost)
