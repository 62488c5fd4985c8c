"""A name and an explanation in plain words for every measure."""

from __future__ import annotations

_PLACES = ", same places only"
_HALF = "the second half of a line"

# measure → name, and an explanation that ends with the best value
PLAIN = {
    "kl": (
        "How far the next guess moved (KL)",
        "How far the graft’s guess about what comes next is from the base model’s. 0 is best: the "
        "same guess.",
    ),
    "top1": (
        "Same likeliest next token",
        "How often both models find the same next token likeliest. 1 is best: always.",
    ),
    "top10": (
        "Same ten likeliest next tokens",
        "How many of the base model’s ten likeliest next tokens are among the graft’s ten. 1 is "
        "best: all of them.",
    ),
    "aligned_cosine": (
        "Same inner state",
        "Whether the inner states of both models point the same way wherever both have read the "
        "same text. 1 is best.",
    ),
    "pooled_cosine": (
        "Same average over a sentence (the paper’s)",
        "The inner states of a sentence averaged, before and after, and the two averages compared. "
        "1 is best, but sentences that have nothing to do with each other come close to it too.",
    ),
    "aligned_pooled_cosine": (
        f"Same average over a sentence{_PLACES}",
        "The inner states of a sentence averaged, before and after, over places where both models "
        "have read the same text, and the two averages compared. 1 is best.",
    ),
    "mutual_rank": (
        "Rank of a sentence’s own counterpart",
        "At which rank a sentence finds itself among the averages from before the graft, and the "
        "other way round. 1 is best: it comes first.",
    ),
    "aligned_mutual_rank": (
        f"Rank of a sentence’s own counterpart{_PLACES}",
        "At which rank a sentence finds itself among the averages from before the graft, over "
        "places where both models have read the same text. 1 is best.",
    ),
    "centred_mutual_rank": (
        f"Rank of a sentence’s own counterpart{_PLACES}, centred",
        "At which rank a sentence finds itself once what all sentences have in common was removed "
        "from each model’s averages. 1 is best.",
    ),
    "centred_retrieval": (
        f"Sentences that find themselves{_PLACES}, centred",
        "How many sentences are nearest to their own average from before the graft once what all "
        "sentences have in common was removed. 1 is best: all are.",
    ),
    "retrieval": (
        "Sentences that find themselves",
        "How many sentences are nearest to their own average from before the graft, of all "
        "sentences. 1 is best: all are.",
    ),
    "aligned_retrieval": (
        f"Sentences that find themselves{_PLACES}",
        "How many sentences are nearest to their own average from before the graft, over places "
        "where both models have read the same text. 1 is best: all are.",
    ),
    "translation_retrieval": (
        "Sentences that find their translation",
        "How many sentences are nearest to their own English translation, of all English ones. "
        "1 is best: all are.",
    ),
    "base_translation_retrieval": (
        "Sentences that find their translation, before",
        "How many sentences were nearest to their own English translation before the graft.",
    ),
    "continuation_bpb": (
        "Surprise at the rest of a line",
        f"How many bits a byte of {_HALF} costs the graft once it has read the first half in new "
        "tokens. The best to hope for is the base model’s figure.",
    ),
    "base_continuation_bpb": (
        "Surprise at the rest of a line, base model",
        f"How many bits a byte of {_HALF} costs the base model. The graft is compared with this.",
    ),
    "continuation_excess": (
        "Added surprise at the rest of a line",
        f"By what share the bits for {_HALF} grew. 0 is best: not at all; 0.05 is five percent.",
    ),
    "shared_bpb": (
        "Surprise at whole lines, both spellings",
        "How many bits a byte costs the graft if it may write old and new tokens. The best to hope "
        "for is the base model’s figure.",
    ),
    "new_spelling_bpb": (
        "Surprise at whole lines, new spelling",
        "How many bits a byte costs the graft if only the spelling in new tokens counts. The best "
        "to hope for is the base model’s figure.",
    ),
    "base_bpb": (
        "Surprise at whole lines, base model",
        "How many bits a byte costs the base model. The graft is compared with this.",
    ),
    "writing_ratio": (
        "Bits to write a line in new tokens, against the base model",
        "How many times the base model’s bits for a line the graft needs for it in its new "
        "tokens. 1 is best: writing costs nothing.",
    ),
    "written_worth": (
        "What one written token is worth",
        "How many old tokens are needed for what the graft writes with one token. The best to hope "
        "for is the figure for real text.",
    ),
    "broken_characters": (
        "Broken characters",
        "How many of a hundred written characters are broken. 0 is best.",
    ),
    "probe_accuracy": (
        "Labels found in the new reading",
        "How often a simple classifier finds a line’s label from what the graft makes of it. The "
        "best to hope for is the base model’s figure; the floor is to name the commonest label.",
    ),
    "base_probe_accuracy": (
        "Labels found in the old reading, base model",
        "How often such a classifier finds the label from what the base model makes of the line.",
    ),
    "carried_probe_accuracy": (
        "Labels found with the base model’s classifier",
        "How often the classifier that was made for the base model finds the label from what the "
        "graft makes of the line.",
    ),
    "asked_accuracy": (
        "Labels answered when asked",
        "How often the graft answers a question about a line with its label. The best to hope for "
        "is the base model’s figure; the floor is to name the commonest label.",
    ),
    "base_asked_accuracy": (
        "Labels answered when asked, base model",
        "How often the base model answers the same question with the line’s label.",
    ),
    "english_greedy": (
        "English: same text",
        "How many beginnings of English lines both models continue with the very same text. 1 is "
        "best: all.",
    ),
    "vote_split": (
        "Share that stays with the old spelling",
        "How much of the probability of a stretch of text still goes to its spelling in old "
        "tokens. Neither end is best.",
    ),
}
for _kind, _text in (("English", "English text"), ("Code", "program code")):
    _in = _text.removesuffix(" text")
    PLAIN |= {
        f"{_kind.lower()}_kl": (
            f"{_kind}: divergence from the base model",
            f"How far the graft’s predictions in {_in} are from the base model’s. 0 is best: "
            "nothing has moved.",
        ),
        f"{_kind.lower()}_top1": (
            f"{_kind}: same likeliest next token",
            f"How often both models find the same next token likeliest in {_in}. 1 is best: "
            "always.",
        ),
        f"{_kind.lower()}_bits": (
            f"{_kind}: added surprise",
            f"By what share the bits for {_text} grew. 0 is best: not at all; 0.01 is one percent.",
        ),
        f"{_kind.lower()}_stray": (
            f"New tokens in {_kind.replace('Code', 'code')}",
            f"How much probability new tokens take where {_in} is read. 0 is best: none.",
        ),
    }


def described(measure: str) -> tuple[str, str]:
    """The measure's name and explanation; for an unknown one the explanation is empty."""
    return PLAIN.get(measure, (measure.replace("_", " "), ""))
