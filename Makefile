# Milkrun's commands. Every target first brings its environment up to date. A stamp inside the environment, named after
# the checksum of whatever decides its contents, makes that free when nothing changed; it is written last, so a failed
# or interrupted installation is simply taken up again.

# What creates the environments; afterwards each uses its own Python.
PYTHON ?= python3
# Test processes; the tests of a file stay together, and the files of tests/order.py come first. 0: all in one process.
WORKERS ?= 2
# Passed on to pytest, the demo or the benchmark: make test ARGS="-k cvrp"
ARGS ?=
# Parts of the truths: make truth PART=fuzz, or PART="fuzz masks"
PART ?=
OUT ?= out

# The environments are ours: Python may keep the bytecode of what it imports. Without it a process that imports torchrl
# takes three times as long to start, and the tests start many.
unexport PYTHONDONTWRITEBYTECODE

FULL := cli,clutter,torch,rl4co,pettingzoo,sb3,tianshou,rllib,scale,solvers,link,lunar,learn,docs,dev
LIGHT := cli,clutter
SMALL := clutter,link
TESTING := pytest pytest-xdist pytest-timeout hypothesis scipy
PEER := jax jumanji
VMAS := vmas
SAPIEN := sapien
# Ray holds the full environment at an older Gymnasium: what speaks Gymnasium is tested with the newest one too.
NEWEST := gymnasium==1.4.0
# The lower bounds that pyproject.toml states for what `import milkrun` needs.
OLDEST := $(shell sed -n 's/^dependencies = \[\(.*\)\]/\1/p' pyproject.toml | tr -d '",' | sed 's/>=\([0-9.]*\)[^ ]*/==\1/g')
JUDGED := -p tests.conformance -m conformance --conformance-table docs/conformance.md

checksum = $(shell { cat pyproject.toml constraints.txt src/milkrun/_version.py; echo $(1); } | cksum | cut -d' ' -f1)
full_stamp := .venv/.stamp-$(call checksum,$(FULL))
light_stamp := .venv-light/.stamp-$(call checksum,$(LIGHT))
newest_stamp := .venv-newest/.stamp-$(call checksum,$(SMALL) $(NEWEST) $(TESTING))
oldest_stamp := .venv-oldest/.stamp-$(call checksum,$(OLDEST) $(TESTING))
jumanji_stamp := .venv-jumanji/.stamp-$(call checksum,$(PEER))
vmas_stamp := .venv-vmas/.stamp-$(call checksum,$(VMAS))
sapien_stamp := .venv-sapien/.stamp-$(call checksum,$(SAPIEN))

# $(call install,what pip shall install): into the environment that holds the stamp $@.
# -qq: pip prints errors only. --no-compile: of these thousands of files Python compiles those that it meets, later.
# The pip that comes with Python may be old, and twice as slow: it installs the pinned one first.
define install
@echo "Setting up $(@D) (some minutes the first time)"
@$(@D)/bin/python -m pip --version >/dev/null 2>&1 || { \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Milkrun needs Python 3.11 or newer: make PYTHON=python3.11 ..." >&2; exit 1; }; \
	$(PYTHON) -m venv --clear $(@D); }
@rm -f $(@D)/.stamp-*
@grep -v '$(or $(except),^$$)' constraints.txt > $(@D)/constraints.txt
@$(pip) pip
@$(pip) $(1)
@touch $@
endef
pip = $(@D)/bin/python -m pip install -qq --disable-pip-version-check --no-compile -c $(@D)/constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test suite browser newest oldest truth conformance env check bench docs clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s  %s\n", $$1, $$2 }' Makefile

demo: $(light_stamp) ## roll out every world, print the table, write pictures to out/ (light environment, no torch)
	.venv-light/bin/milkrun demo --out $(OUT) $(ARGS)

# The small environment is installed long before the large one. Tests that need no more (tests/order.py decides) run in it,
# while pip installs the large one and while the suite waits. They compile kernels that the suite then finds in the cache.
# Their output is printed at the end, so that the two do not mix.
test: ## run all tests, each in the smallest environment that has what it needs; with ARGS the selected ones, in .venv
	@$(MAKE) --no-print-directory -k -j 2 suite $(if $(ARGS),,newest)

suite: $(full_stamp) browser
	MILKRUN_NEED_BROWSER=$$(test -e .browser/reason || echo 1) .venv/bin/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(or $(ARGS),--part large) tests

# A Chromium for the tests of pages; without one those tests are skipped with the reason.
browser:
	@$(PYTHON) scripts/browser.py

newest: $(newest_stamp)
	@.venv-newest/bin/python -m pytest --part small tests > .venv-newest/tests.txt 2>&1; passed=$$?; \
		echo "With $(NEWEST):"; cat .venv-newest/tests.txt; exit $$passed

oldest: $(oldest_stamp) ## run the core tests with the lowest allowed versions of numpy, numba and gymnasium
	.venv-oldest/bin/python -m pytest -n $(WORKERS) --dist loadfile $(or $(ARGS),tests/core)

truth: env ## run the long tests in parts and print their times; PART=fuzz: one part, PART=--list: the list
	@.venv/bin/python -m tests.truth_parts --workers $(WORKERS) $(PART) -- $(ARGS)

conformance: env $(newest_stamp) ## run other libraries' checkers on every world, and write docs/conformance.md
	.venv/bin/python -m pytest -n $(WORKERS) $(JUDGED) tests/truth/*_conformance.py
	.venv-newest/bin/python -m pytest -n $(WORKERS) $(JUDGED) --conformance-keep tests/truth/test_gymnasium_conformance.py

env: $(full_stamp) ## bring the full environment in .venv up to date

check: env ## ruff (rules and format) and mypy
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

bench: env $(jumanji_stamp) $(vmas_stamp) $(sapien_stamp) ## measure Milkrun and its peers
	.venv/bin/python -m bench $(ARGS)

docs: env ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --site-dir site

clean: ## remove what the targets wrote, but no environment
	rm -rf $(OUT) site build .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

$(full_stamp):
	$(call install,-e ".[$(FULL)]")

$(light_stamp):
	$(call install,-e ".[$(LIGHT)]")

$(newest_stamp): except := ^gymnasium
$(newest_stamp):
	$(call install,-e ".[$(SMALL)]" $(NEWEST) $(TESTING))

$(oldest_stamp): except := ^numpy\|^numba\|^gymnasium
$(oldest_stamp):
	$(call install,-e ".[clutter]" $(OLDEST) $(TESTING))

$(jumanji_stamp):
	$(call install,$(PEER))

$(vmas_stamp):
	$(call install,$(VMAS))

$(sapien_stamp):
	$(call install,$(SAPIEN))
