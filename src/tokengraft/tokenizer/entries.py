"""The table of tokenizers known by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A tokenizer known by name."""

    name: str
    label: str  # as tables print it
    model: str  # a well-known model that uses it
    maker: str
    context: int  # tokens
    released: str
    licence: str
    hub_id: str | None = None
    kind: str | None = None  # which file to build from; None: whichever is found
    bundled: bool = False
    paper: bool = False


# fmt: off
ENTRIES = (
    Entry("t5", "T5", "T5", "Google", 512, "2019-10", "Apache-2.0", "google-t5/t5-base", "spiece.model", True, True),
    Entry("mistral-v0.3", "Mistral", "Mistral 7B v0.3", "Mistral AI", 4096, "2023-09", "Apache-2.0", "mistralai/Mistral-7B-v0.3", "tokenizer.model", True, True),
    Entry("gpt2", "GPT-2/3", "GPT-2", "OpenAI", 1024, "2019-02", "MIT", "openai-community/gpt2", "vocab.json", True, True),
    Entry("claude-2.1", "Claude 2.1", "Claude 2.1", "Anthropic", 200_000, "2023-11", "MIT", None, "tokenizer.json", True, True),
    Entry("olmo-2", "OLMo 2", "OLMo 2", "AllenAI", 4096, "2024-12", "Apache-2.0", "allenai/OLMo-2-1124-7B", "tokenizer.json", True, True),
    Entry("cl100k_base", "GPT-3.5/4", "GPT-3.5", "OpenAI", 16_385, "2022-03", "MIT", None, "cl100k_base.tiktoken", True, True),
    Entry("bert-multilingual", "BERT", "BERT Multilingual", "Google", 512, "2018-10", "Apache-2.0", "google-bert/bert-base-multilingual-cased", "vocab.txt", True, True),
    Entry("llama-3", "Llama 3", "Llama 3.2 1B", "Meta", 131_072, "2024-09", "Llama 3.2 Community", "meta-llama/Llama-3.2-1B", "tokenizer.json", True, True),
    Entry("m2m100", "M2M-100", "M2M-100", "Meta", 1024, "2020-10", "MIT", "facebook/m2m100_418M", "sentencepiece.bpe.model", False, True),
    Entry("o200k_base", "GPT-4o", "GPT-4o", "OpenAI", 128_000, "2024-05", "MIT", None, "o200k_base.tiktoken", True, True),
    Entry("qwen3", "Qwen 3", "Qwen 3", "Alibaba", 32_768, "2025-04", "Apache-2.0", "Qwen/Qwen3-0.6B"),
    Entry("gemma3", "Gemma 3", "Gemma 3", "Google", 131_072, "2025-03", "Gemma terms", "google/gemma-3-1b-it"),
    Entry("deepseek-v3", "DeepSeek V3", "DeepSeek V3", "DeepSeek", 131_072, "2024-12", "MIT", "deepseek-ai/DeepSeek-V3"),
    Entry("mistral-nemo", "Mistral Nemo", "Mistral Nemo", "Mistral AI", 131_072, "2024-07", "Apache-2.0", "mistralai/Mistral-Nemo-Base-2407"),
    Entry("command-r-plus", "Command R+", "Command R+", "Cohere", 131_072, "2024-04", "CC-BY-NC-4.0", "CohereLabs/c4ai-command-r-plus"),
    Entry("llama-4", "Llama 4", "Llama 4 Scout", "Meta", 10_485_760, "2025-04", "Llama 4 Community", "meta-llama/Llama-4-Scout-17B-16E"),
    Entry("nllb-200", "NLLB-200", "NLLB-200", "Meta", 1024, "2022-07", "CC-BY-NC-4.0", "facebook/nllb-200-distilled-600M"),
    Entry("bloom", "BLOOM", "BLOOM", "BigScience", 2048, "2022-07", "BigScience RAIL", "bigscience/bloom-560m"),
    Entry("mt5", "mT5", "mT5", "Google", 1024, "2020-10", "Apache-2.0", "google/mt5-small"),
    Entry("xlm-r", "XLM-R", "XLM-RoBERTa", "Meta", 512, "2019-11", "MIT", "FacebookAI/xlm-roberta-base"),
    Entry("phi-4", "Phi-4", "Phi-4", "Microsoft", 16_384, "2024-12", "MIT", "microsoft/phi-4"),
    Entry("gpt-oss", "gpt-oss", "gpt-oss", "OpenAI", 131_072, "2025-08", "Apache-2.0", "openai/gpt-oss-20b"),
)
# The model that comes with the package: listed and found by name, but no part of an audit's default.
ROOTSTOCK = Entry("rootstock", "rootstock", "Rootstock", "tokengraft", 2048, "2026-11", "Apache-2.0", None, "tokenizer.json")
# fmt: on
LISTED = (*ENTRIES, ROOTSTOCK)
BY_NAME = {entry.name: entry for entry in LISTED}
PAPER = tuple(entry.name for entry in ENTRIES if entry.paper)
BUNDLED = tuple(entry.name for entry in ENTRIES if entry.bundled)
