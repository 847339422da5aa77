# Every action on this project starts here; `make` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# Whatever the shell says, bytecode is kept: compiling the tests again takes seconds.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

help: ## List what can be made
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

# uv comes from the machine or, where it is missing, through pip into the environment itself.
$(READY): requirements/dev.txt pyproject.toml
	@if uv=$$(command -v uv); then
	  [ -x $(BIN)/python ] || "$$uv" venv --quiet --python '>=3.11' $(VENV)
	else
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "DDPJob needs Python 3.11 or newer: make PYTHON=python3.12")'
	  [ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	  uv=$(BIN)/uv
	fi
	echo "Setting up $(VENV): torch is large, the first time takes a minute or more"
	"$$uv" pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes --requirement requirements/dev.txt
	"$$uv" pip install --quiet --python $(BIN)/python --no-deps --editable .
	touch $@

setup: $(READY) ## Make the environment in .venv (the other targets do it themselves)

run: $(READY) ## Train: two nodes on this machine, handwritten digits
	@$(BIN)/ddpjob run --fresh deploy/examples/digits.yaml

# In parts beside each other, without pytest-xdist: to report thousands of small tests costs it as much as they do.
# RECORD: flags of tests/stages, which wants to know what each test took.
unit: $(READY) ## The inner loop: format, lint, types, import rules, fast tests
	@$(MAKE) --no-print-directory --jobs --output-sync unit-lint unit-pure unit-trainer unit-cluster unit-others

unit-lint: $(READY)
	@$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

PURE := tests/unit/api tests/unit/engine tests/unit/golden
unit-pure: $(READY)
	@$(BIN)/python -m pytest $(RECORD) $(PURE)

TRAINER := tests/unit/rank tests/unit/supervisor tests/unit/trainer
unit-trainer: $(READY)
	@$(BIN)/python -m pytest $(RECORD) $(TRAINER)

CLUSTER := tests/unit/cluster
unit-cluster: $(READY)
	@$(BIN)/python -m pytest $(RECORD) $(CLUSTER)

unit-others: $(READY)
	@$(BIN)/python -m pytest $(RECORD) tests/unit $(addprefix --ignore ,$(PURE) $(TRAINER) $(CLUSTER))

test: $(READY) ## Every promise once: the inner loop, the state machine, real processes, the docs, clusters
	@$(BIN)/python -m tests.stages

test-full: $(READY) ## Everything at each of its levels, and every fault plan; nightly, and before a release
	@$(BIN)/python -m tests.stages.full
	$(BIN)/python -m tests.stages --full

test-changed: $(READY) ## The full tests of what differs from BASE (main), for developers
	@$(BIN)/python -m tests.stages --changed-since $(or $(BASE),main)

test-near: $(READY) ## Between the two: make unit, and in minutes what tells most of how this differs from BASE (main)
	@$(BIN)/python -m tests.stages --near $(or $(BASE),main)

search: $(READY) ## Random tests with twenty times as many examples, and those that failed before; nightly
	@HYPOTHESIS_PROFILE=deep $(BIN)/pytest --numprocesses=auto --dist=worksteal --timeout=0 --durations=0 \
	  -m "hypothesis and not full" tests/unit tests/model
	HYPOTHESIS_PROFILE=deep $(BIN)/pytest --numprocesses=auto --dist=worksteal --timeout=0 tests/model/test_search.py

e2e: $(if $(filter external,$(PLANT)),$(READY),plant) ## Real nodes, training and faults; PLANT=external: on the cluster of KUBECONFIG
	@$(BIN)/pytest tests/e2e -rs

# The tutorial comes second: it installs what the others have taken away, and takes the cluster away at its end.
ON_KIND := export KUBECONFIG=$$(CONFIG=tests/e2e/kind.yaml deploy/kind/up) PLANT=external; code=0; \
  for tests in e2e kind; do $(BIN)/pytest tests/$$tests -rs || code=1; done; exit $$code
e2e-kind: $(READY) ## The same on a kind cluster, which it makes: with docker and kind, or in a docker engine that it builds
	@beside=
	if ! docker info >/dev/null 2>&1; then
	  $(MAKE) --no-print-directory plant
	  beside="$(BIN)/python -m tests.plant.kind run"
	fi
	exec $$beside bash -euc '$(ON_KIND)'

wheel: ## Build what other projects install, into dist/
	@if uv=$$(command -v uv || command -v $(BIN)/uv); then
	  "$$uv" build --quiet --wheel --build-constraints requirements/build.txt --require-hashes --out-dir dist
	else
	  $(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	fi
	ls dist/*.whl

plant: $(READY) ## Build the cluster that the tests run on (needs 19 GB while it builds, keeps 8)
	@$(BIN)/python -m tests.plant build

generate: $(READY) ## Rewrite what is generated: schemas, reference pages, golden files
	@$(BIN)/python docs/generate.py
	$(BIN)/python -m tests.strangers.page
	UPDATE_GOLDEN=1 $(BIN)/pytest tests/unit/golden
	if helm=$$(command -v helm || $(BIN)/python -c 'from tests.plant import build; print(build.path("helm"))' 2>/dev/null); then
	  HELM=$$helm deploy/render-install >deploy/install.yaml
	else
	  echo "deploy/install.yaml is left as it is: helm is not on PATH, nor built by make plant"
	fi

lint-chart: $(READY) ## Have checkov and kube-score look for mistakes in what the chart renders: needs the network
	@tools=$$($(BIN)/python -c 'from tests.plant import build; print(build.path("helm"), build.go_command(), build.uv())')
	read -r helm go uv <<<"$$tools"
	HELM=$$helm GO=$$go UV=$$uv deploy/lint-chart

KUBERNETES := 1.37.2
vendor-kubernetes: $(READY) ## Take the pod template's schema from the Kubernetes release named here (needs Go)
	@cd "$$(mktemp -d)" && go mod init vendor 2>/dev/null
	module=$$(go mod download -json k8s.io/kubernetes@v$(KUBERNETES) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
	$(CURDIR)/$(BIN)/python $(CURDIR)/deploy/vendor_kubernetes.py $(KUBERNETES) \
	  "$$module/api/openapi-spec/v3/api__v1_openapi.json"

VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
images: ## Build the images with buildah or docker; BASE=IMAGE names another base with Python 3.11 or newer
	@for image in operator trainer; do
	  deploy/images/build $$image ddpjob-$$image:$(VERSION) $(if $(BASE),--build-arg BASE=$(BASE))
	done

OLD_TORCHES := 2.4.1 2.8.0 2.11.0
NOT_ON_CPUS := nvidia-cuda-nvrtc nvidia-cuda-nvrtc-cu12 nvidia-cusolver nvidia-cusolver-cu12 triton
OF_THE_TRAINER := numpy pillow
lock: $(READY) ## Resolve the dependencies again, into requirements/
	@compile() { PATH="$$PATH:$(CURDIR)/$(BIN)" uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate "$$@" >/dev/null; }
	compile pyproject.toml --all-extras --group dev --upgrade --output-file requirements/dev.txt
	# What an image holds is what is tested: the same versions.
	for image in operator trainer; do
	  compile pyproject.toml --extra $$image --constraint requirements/dev.txt --output-file requirements/$$image.txt
	done
	# Not in the environment: the tests that want it install it beside that. The older one is the oldest that gets our callback.
	compile --constraint requirements/dev.txt --output-file requirements/transformers.txt - <<< 'transformers>=5'
	compile --output-file requirements/transformers-4.41.txt - <<< 'transformers==4.41.0'
	# An S3 server for tests, likewise: it wants an older python-dateutil than the rest.
	compile --output-file requirements/s3-server.txt - <<< $$'moto[s3]>=5.1\nflask\nflask-cors'
	# Old ones, likewise: without what of CUDA they can do without to be imported and to compute on CPUs, and without
	# what the trainer brings in the versions of the environment.
	for torch in $(OLD_TORCHES); do
	  compile $(addprefix --no-emit-package ,$(NOT_ON_CPUS) $(OF_THE_TRAINER)) --output-file requirements/torch-$${torch%.*}.txt - <<< "torch==$$torch"$$'\ntorchvision'
	done
	compile --upgrade --output-file requirements/build.txt - <<< $$'hatchling>=1.27\nuv'

# Strict: a package that its database does not answer for fails, where it would pass as if it were sound.
audit: $(READY) ## Ask pip-audit's database about each locked version, and pip whether they fit each other; needs the internet
	@$(BIN)/python -m pip check
	for lock in requirements/*.txt; do
	  PATH="$$PATH:$(CURDIR)/$(BIN)" uv tool run pip-audit --strict --disable-pip --require-hashes --requirement "$$lock"
	done

bench-train: $(READY) ## Our trainer beside the smallest DDP script and other yardsticks (about 40 min; QUICK=1: to try it)
	@$(BIN)/python -m bench.train $(if $(QUICK),--quick)

bench-checkpoint: $(READY) ## What a save of 100 MB costs training, and one of 10 and 200 MB that are divided among ranks
	@$(BIN)/python -m bench.checkpoint
	$(BIN)/python -m bench.sharded_checkpoint --megabytes 10
	$(BIN)/python -m bench.sharded_checkpoint --megabytes 200

bench-recovery: $(READY) ## How soon training goes on after a fault, and what faults cost (about 50 min; QUICK=1: a few, to try it)
	@$(BIN)/python -m bench.recovery $(if $(QUICK),--quick)

bench-operator: plant ## The operator beside other controllers, as fast as they go (most of an hour; QUICK=1: to try it)
	@$(BIN)/python -m bench.operator $(if $(QUICK),--quick)

bench-coordinator: $(READY) ## What the supervisors of 2,048 ranks cost rank 0's, and how soon all know (1 min)
	@$(BIN)/python -m bench.coordinator

bench-start: plant ## How soon a submitted script makes its first step on real nodes, by parts (3 min; QUICK=1: one job)
	@$(BIN)/python -m bench.start $(if $(QUICK),--quick)

bench-again: plant ## How soon a changed script makes its first step on held nodes, beside torchrun and submit (5 min; QUICK=1: one round)
	@$(BIN)/python -m bench.again $(if $(QUICK),--quick)

bench-gangs: plant ## How soon many gangs have run that compete for few nodes (1 h; QUICK=1: to try it)
	@$(BIN)/python -m bench.gangs $(if $(QUICK),--quick)

gpu: $(READY) ## What needs a GPU, on a machine that has some; writes docs/reference/gpu.md (under 8 min; without one, over gloo)
	@$(BIN)/python -m tests.gpu

fault-table: $(READY) ## Every kind of fault at every stage of training; writes docs/reference/faults.md (20 min)
	@results=$$(mktemp -d)
	trap 'rm -rf "$$results"' EXIT
	FAULT_TABLE=$$results $(BIN)/pytest tests/training/faults --numprocesses 2 --dist worksteal
	$(BIN)/python -m tests.training.faults.page "$$results"

kill-table: $(READY) ## Scripts killed at 200 random lines, and resumed; writes docs/reference/faults.md (20 min)
	@results=$$(mktemp -d)
	trap 'rm -rf "$$results"' EXIT
	KILL_TABLE=$$results $(BIN)/pytest tests/training/test_killed_scripts.py -m full --numprocesses 2 --dist worksteal
	$(BIN)/python -m tests.training.killing_page "$$results"

scheduling: plant ## Gangs placed as a whole by Kubernetes' own scheduler, and by Kueue, also on real nodes (7 min)
	@$(BIN)/pytest tests/scheduling

FAULTS := tests/faults/test_faults.py
faults: plant ## Break the operator in every way at every place of a job's life; writes docs/reference/fault-matrix.md (20 min)
	@results=$$(mktemp -d)
	trap 'rm -rf "$$results"' EXIT
	FAULT_MATRIX=$$results $(BIN)/pytest $(FAULTS)
	$(BIN)/python -m tests.faults.page "$$results"

MUTANTS = $(if $(BASE),--base=$(BASE)) $(if $(SEED),--seed=$(SEED)) $(if $(PER_ROOM),--per-room=$(PER_ROOM)) \
  $(if $(PROCESSES),--processes=$(PROCESSES))
mutants: $(READY) ## Break each line that differs from BASE (main; on main, a day ago), and list what no test notices
	@$(BIN)/python -m tests.mutants $(MUTANTS)

clean: ## Remove the environment and what runs left behind
	rm -rf $(VENV) ddpjob-runs .mypy_cache .ruff_cache .pytest_cache .tests_cache .hypothesis .import_linter_cache

.PHONY: help setup run unit unit-lint unit-pure unit-trainer unit-cluster unit-others test test-full test-changed test-near search e2e e2e-kind wheel plant generate lint-chart vendor-kubernetes images lock audit bench-train bench-checkpoint bench-recovery bench-operator bench-coordinator bench-start bench-again bench-gangs gpu scheduling fault-table kill-table faults mutants clean
