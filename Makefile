# `make` or `make help` lists the targets. Flags go into ARGS, for example
#   make test ARGS='tests/accounting -k ledger'
#   make train ARGS='--seed 2'
SHELL := /bin/bash
ARGS ?=
# Python keeps bytecode, so processes of the tests do not compile it again.
export PYTHONDONTWRITEBYTECODE =
python := .venv/bin/python
python_current := .venv-current/bin/python
python_colab := .venv-colab/bin/python
python_flower := .venv-flower/bin/python
python_nvflare := .venv-nvflare/bin/python
python_cluster := .venv-cluster/bin/python
python_docs := .venv-docs/bin/python
# Two processes, because each loads TFF and starts a worker of its own. Whole
# files, so that a test never runs without those before it in its file, and all
# tests run if one of the two dies. With a third process in its place,
# pytest-xdist 3.8 waits for ever. In the order of names: pytest-xdist would put
# files of few tests last, and these take longest.
pytest_flags := -n 2 --dist loadfile --no-loadscope-reorder \
    --max-worker-restart=0

.DEFAULT_GOAL := help
.PHONY: help environment environment-current environment-colab \
    environment-flower environment-nvflare environment-cluster environment-docs \
    train test test-fast test-current test-oracle test-colab test-flower \
    test-nvflare test-cluster test-site test-wheel benchmark benchmark-round docs lock

help: ## Say what there is to make.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-24s %s\n", $$1, $$2}' \
	    $(MAKEFILE_LIST)

environment: ## Make or refresh .venv, if requirements.lock or setup.py changed.
	@tools/make_environment.sh

environment-current: ## The same with a current Python, in .venv-current.
	@tools/make_environment.sh current

environment-colab: ## The same with the versions of stock Colab, in .venv-colab.
	@tools/make_environment.sh colab

environment-flower: ## One without TFF, for Flower, in .venv-flower.
	@tools/make_environment.sh flower

environment-nvflare: ## One without TFF, for NVFlare, in .venv-nvflare.
	@tools/make_environment.sh nvflare

environment-cluster: ## The reference stack with Ray and Dask, in .venv-cluster.
	@tools/make_environment.sh cluster

environment-docs: ## The current stack with Sphinx, in .venv-docs.
	@tools/make_environment.sh docs

train: environment ## Train DP-FTRL on handwritten digits, with its baselines.
	@$(python) -m tasks train digits $(ARGS)

test: environment ## Run the tests (fewer: ARGS='tests/plans -k tree', all: --slow).
	@$(python) -m pytest $(pytest_flags) $(ARGS)

test-fast: environment ## Run the fast tests, before a commit: three minutes.
	@$(python) -m pytest $(pytest_flags) --fast $(ARGS)

test-current: environment-current ## Run the tests on the current stack.
	@$(python_current) -m pytest $(pytest_flags) $(ARGS)

# Not part of .ci/run, which runs a part of it: this takes hours. Some generated
# programs make TFF's own compiler abort (status 134): we go on after them.
test-oracle: environment ## Compare with TFF's own runtime, 2,000 generated cases.
	@$(python) -m tests.oracle --generated 0 $(ARGS)
	@status=0; journals=$$(mktemp -d); for seed in {1..20}; do \
	  code=134; while [ $$code = 134 ]; do \
	    code=0; $(python) -m tests.oracle --kinds generated --generated 100 \
	      --seed $$seed --journal $$journals/$$seed.jsonl || code=$$?; done; \
	  [ $$code = 0 ] || status=1; done; exit $$status

# Not part of .ci/run: it takes minutes, and nothing else depends on it.
test-colab: environment-colab ## Run imports, doctor, engine and notebooks there.
	@$(python_colab) -m pytest tests/compat_test.py tests/shim_test.py \
	    tests/cli/doctor_test.py tests/notebooks_test.py \
	    tests/execution/vectorized_test.py tests/learning/keras3_test.py \
	    tests/learning/keras3_run_test.py \
	    tests/execution/conformance_test.py tests/oracle --slow $(ARGS)

test-flower: environment-flower ## Test the Flower adapter on a real SuperLink.
	@$(python_flower) -m pytest tests/integrations $(ARGS)

test-nvflare: environment-nvflare ## Test the NVFlare adapter in its simulator.
	@$(python_nvflare) -m pytest tests/integrations $(ARGS)

test-cluster: environment-cluster ## Test the contexts on real Ray and Dask.
	@$(python_cluster) -m pytest tests/execution/cluster \
	    tests/attacks/cluster_test.py --slow $(ARGS)

# These two may take longer than a test that hangs.
test_long := -o faulthandler_timeout=3600
test-site: docs ## Build the site, and look at every page in Chromium.
	@SITE=build/docs $(python_docs) -m pytest $(test_long) tests/site_test.py

test-wheel: environment ## Install the wheel into an empty environment, and do what README shows.
	@WHEEL=build/wheel $(python) -m pytest $(test_long) tests/wheel_test.py

benchmark: environment ## Measure the noise against its floor, side by side.
	@$(python) -m benchmarks.noise $(ARGS)

benchmark-round: environment ## Measure a round against its floor, side by side.
	@$(python) -m benchmarks.round_time $(ARGS)

# -W: a link that leads nowhere is an error. The notebooks take minutes at first.
docs: environment-docs ## Build the site (without notebooks' outputs: ARGS='-D nb_execution_mode=off').
	@$(python_docs) -m sphinx -q -W --keep-going -c docs . build/docs $(ARGS)
	@echo build/docs/index.html

lock: ## Resolve all locks (newer versions: ARGS=--upgrade).
	@tools/lock_requirements.sh $(ARGS)
