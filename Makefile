# Two commands matter: `make e5` and `make test`. Both set themselves up; a set-up that is done costs nothing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
E5_ARGS ?=
TEST_ARGS ?=
LAYERS := contracts controller simulator faults policies live k8s scripts

export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup setup-test e5 test readme check format lock clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install the core into .venv (no torch)
	@$(PYTHON) scripts/setup_env.py

setup-test: ## Install the core, the developer tools, torch, training tools and vLLM
	@$(PYTHON) scripts/setup_env.py --with dev --optional torch,rl,vllm

e5: setup ## Run experiment E5; table on the terminal, out/e5/report.html (E5_ARGS=... adds options)
	$(BIN)/selvage e5 --out out/e5 $(E5_ARGS)

test: setup-test ## Format, lint, types, layers, then every test (TEST_ARGS=... adds options)
	@$(MAKE) --no-print-directory check
	$(BIN)/python -m pytest $(TEST_ARGS)

readme: ## Write the result section of README.md from out/e5/e5.json
	$(BIN)/python -m scripts.readme_results out/e5/e5.json

check: ## Format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: ## Rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: ## Write requirements/constraints.txt anew from what .venv holds
	$(BIN)/python scripts/lock_constraints.py

clean: ## Remove results and caches (not the environments)
	rm -rf out build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(LAYERS) tests -name __pycache__ -type d -prune -exec rm -rf {} +
