# `make demo` and `make test` need nothing first: they make .venv and install what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BIOME := npx --yes @biomejs/biome@2.6.6
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test serving matrix lint format bench docs install clean help chromium

help:           ## what there is
	@grep -E '^[a-z]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 12

demo: $(VENV)/model.done   ## the whole job on the bundled data, four minutes with its setup
	PATH="$(CURDIR)/$(BIN):$$PATH" bash tools/demo.sh

test: $(VENV)/dev.done chromium    ## every test, on two cores (WORKERS=4 for more)
	$(BIN)/python -m pytest -n $(or $(WORKERS),2) --no-loadscope-reorder

serving: $(VENV)/dev.done ## bundled tokenizers' grafts in llama.cpp and transformers (ONLY='gpt2 or mistral')
	$(BIN)/python -m pytest -n 2 -m slow tests/serving $(if $(ONLY),-k '$(ONLY)')

matrix: $(VENV)/dev.done  ## each bundled tokenizer × kinds of plans: grafted, verified, exported, read
	cd benchmarks && ../$(BIN)/python matrix.py --workers $(or $(WORKERS),2) --out ../results/matrix.md \
	  $(if $(TOKENIZERS),--tokenizers $(TOKENIZERS))

lint: $(VENV)/dev.done    ## ruff, mypy, and the page's scripts by biome where node is there
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	rm -rf build/wheel && $(BIN)/python -m build --wheel --outdir build/wheel . >/dev/null
	$(BIN)/check-wheel-contents build/wheel
	@if $(BIOME) --version >/dev/null 2>&1; then $(BIOME) lint --error-on-warnings; \
	  else echo "no node or no registry: the page's scripts are not linted"; fi

format: $(VENV)/dev.done  ## let ruff lay out the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/dev.done   ## speed and memory against the raw libraries
	$(BIN)/python benchmarks/audit.py
	$(BIN)/python benchmarks/plan.py
	$(BIN)/python benchmarks/derive.py --part cpu --small
	$(BIN)/python benchmarks/scale.py --bytes 2e7 --rounds 1

docs: $(VENV)/docs.done   ## the documentation as a site, into build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

install: $(VENV)/dev.done ## only set up .venv

clean:          ## remove what make made
	rm -rf $(VENV) demo build dist

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV) || (apt-get update && apt-get install -y python3-venv && $(PYTHON) -m venv $(VENV))

$(VENV)/model.done: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install -q -c constraints.txt -e '.[model]'
	touch $@

$(VENV)/dev.done: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install -q -c constraints.txt -e '.[model,dev]'
	touch $@ $(VENV)/model.done

$(VENV)/docs.done: $(VENV)/dev.done
	$(BIN)/pip install -q -c constraints.txt -e '.[docs]'
	touch $@

# Browser tests drive a real Chromium; without root or apt they skip and say so.
chromium:
	@command -v chromium >/dev/null || { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] \
	  && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
	  || echo "no chromium: browser tests will be skipped"
