#!/usr/bin/env bash
# The main job on bundled data only. Called by `make demo`; results go to demo/.
set -euo pipefail
cd "$(dirname "$0")/.."
export HF_HUB_OFFLINE=1 TOKENGRAFT_CACHE="$PWD/demo/cache"
started=$SECONDS

echo "== Audit: nine tokenizers over every translation of the Universal Declaration"
tokengraft audit udhr --out demo/audit

echo
echo "Done in $((SECONDS - started)) s."
echo "Tables:  demo/audit/tables   (CSV, Parquet, JSON, Markdown, LaTeX)"
echo "Figures: demo/audit/figures  (SVG, PNG); start with apart.png and premiums.png"
