# Four commands matter: `make e5-quick`, `make live`, `make e5` and `make test`. All set themselves up; a set-up
# that is done costs nothing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
E5_ARGS ?=
TEST_ARGS ?=
SOURCES := contracts controller simulator faults policies live k8s scripts selvage_fleet

export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: e5-quick live setup setup-test e5 e5-stress test nightly hostile readme check format lock clean help

e5-quick: setup ## Begin here: E5 on a few scenarios and seeds, in minutes; out/e5-quick/report.html
	$(BIN)/selvage e5 --suite package:contracts/library/suites/e5-quick.yaml --out out/e5-quick $(E5_ARGS)

live: setup-test ## Real vLLM servers behind Envoy: break one, let it heal, say what happened; out/live/report.html
	$(BIN)/selvage drill run first-look --target local --policy sequential --out out/live

setup: ## Install the core into .venv (no torch)
	@$(PYTHON) scripts/setup/bootstrap.py

setup-test: ## Install the core, the developer tools, torch, training tools, Envoy, vLLM, Ray, the Kubernetes client and its API server
	@$(PYTHON) scripts/setup/bootstrap.py --with dev --optional torch,rl,live,vllm,k8s,ray,kube_api

e5: setup ## Run experiment E5 and its stress part; tables on the terminal, out/e5/report.html (E5_ARGS=... adds options)
	$(BIN)/selvage e5 --out out/e5 $(E5_ARGS)

e5-stress: setup ## Run E5's stress part alone, three seeds: who does harm; out/e5-stress/report.html (E5_ARGS=... adds options)
	$(BIN)/selvage e5 --suite package:contracts/library/suites/e5-stress.yaml --out out/e5-stress $(E5_ARGS)

test: setup-test ## Format, lint, types, layers, then every test (TEST_ARGS=... adds options)
	@$(MAKE) --no-print-directory check
	$(BIN)/python -m tests.parts $(TEST_ARGS)

nightly: setup-test ## Walk docs/own-servers.md as it stands, against two vLLM servers; prints the time of every command
	SELVAGE_WALK=whole $(BIN)/python -m pytest tests/project/test_own_servers_page.py -s $(TEST_ARGS)

hostile: setup-test ## The long part of tests/hostile: 10,000 mutated files per reader
	SELVAGE_MUTATIONS=10000 $(BIN)/python -m pytest -s tests/hostile $(TEST_ARGS)

readme: setup ## Run E5 and write both result tables of README.md
	$(BIN)/selvage e5 --stress-seeds 0 --out out/readme
	$(BIN)/python -m scripts.e5.pages.readme out/readme/e5.json

check: ## Format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: ## Rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: ## Write requirements/constraints.txt anew from what .venv holds
	$(BIN)/python scripts/setup/lock.py

clean: ## Remove results and caches (not the environments)
	rm -rf out build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(SOURCES) tests -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## Show this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
