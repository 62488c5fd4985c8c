#!/usr/bin/env bash
# The main job on bundled data only: audit, plan, derive and graft, evaluate, page.
# Called by `make demo`; results go to demo/. POLICY=write: a model that also writes in its new
# tokens, which takes two minutes more to evaluate.
set -euo pipefail
cd "$(dirname "$0")/.."
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error TOKENGRAFT_CACHE="$PWD/demo/cache"
languages=(shn_Mymr tam_Taml amh_Ethi)
mkdir -p demo
rm -rf demo/grafted demo/evaluation demo/plan

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

say "Audit: nine tokenizers over every translation of the Universal Declaration"
tokengraft audit udhr --out demo/audit

say "Plan: tokens for Shan, Tamil and Amharic on the bundled model's tokenizer"
python tools/split_udhr.py demo "${languages[@]}"
options=() texts=()
for code in "${languages[@]}"; do
  options+=(--language "$code" --text "$code=demo/text/$code.txt")
  texts+=(--text "demo/text/$code.txt")
done
tokengraft plan rootstock "${options[@]}" --budget 900 --test demo/held-out.tsv --out demo/plan

say "Derive and graft: rows for the new tokens, trained for a minute with the model frozen"
tokengraft graft rootstock demo/plan "${texts[@]}" --minutes 1 --policy "${POLICY:-input-only}" \
  --out demo/grafted

say "Evaluate: how much of the model survived, on the half of the text that nothing was fitted to"
tokengraft evaluate rootstock demo/grafted --corpus demo/held-out.tsv "${texts[@]}" --prompts 1 \
  --out demo/evaluation

say "Page"
tokengraft report demo/audit demo/plan demo/grafted demo/evaluation --out demo/page

python tools/demo_summary.py demo
