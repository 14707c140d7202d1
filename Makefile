# A target for everything that a person does with the source tree. The work is in
# .ci/*.sh (POSIX sh), so that a target here and a step of .ci/run are the same.

.DEFAULT_GOAL := help

# GNU make hands variables of its command line to recipes, so
# `QTOP_TEST_PG=15,18 make test-full` and `make test-full QTOP_TEST_PG=15,18` agree.

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## build, then the console on a private PostgreSQL with an incident to work on
	@.ci/postgres.sh
	@./qtop demo

.PHONY: build
build: ## build ./qtop (static, no C compiler needed)
	@.ci/build.sh qtop

.PHONY: test
test: ## run every test, on a PostgreSQL that the run starts itself; per major of QTOP_TEST_PG=15,16,… (default: the newest here)
	@.ci/postgres.sh
	@.ci/test.sh

.PHONY: test-full
test-full: ## the same, the long tests and package-try
	@.ci/postgres.sh
	@.ci/components.sh
	@QTOP_TEST_FULL=1 .ci/test.sh
	@go -C workerhost/peerbench test ./...
	@$(MAKE) --no-print-directory package-try

.PHONY: lint
lint: ## formatting, vet, golangci-lint, import rules, file lengths, stale generated files
	@.ci/lint.sh

.PHONY: vuln
vuln: ## known vulnerabilities in what the binary calls (needs vuln.go.dev)
	@.ci/vuln.sh

.PHONY: bench
bench: ## measure against the peers and the limits, in one run (time never fails a build); about 15 minutes
	@.ci/postgres.sh
	@cd workerhost/peerbench && go run . $(BENCH)

.PHONY: bench-steady
bench-steady: build ## a steady load in phases and faults, against the peers; writes docs/performance.md; 12 hours, continues where it stopped (BEFORE=REF adds that commit, from 64251590 on, in turns; STEADY='-length 1m -idle-in-tx 2m' shortens)
	@.ci/postgres.sh
	@.ci/bench-steady.sh $(STEADY)

.PHONY: soak
soak: build ## an hour at 50 webhooks/s and 200 jobs/s with kills: what is lost, what grows (DURATION=5m shortens)
	@.ci/postgres.sh
	@go run ./workerhost/soak -duration $(or $(DURATION),$(QTOP_SOAK),1h) $(SOAK)

.PHONY: bench-large
bench-large: ## the same with the panes over 10 M finished and 3 M queued jobs
	@.ci/postgres.sh
	@cd workerhost/peerbench && go run . -large $(BENCH)

.PHONY: bench-go
bench-go: ## the benchmarks of the packages (compare two runs with benchstat)
	@.ci/postgres.sh
	@go test -p 1 -run '^$$' -bench . -benchmem ./...

.PHONY: docs
docs: ## write the documents that are generated from the code (docs/keys.md, docs/schema.md, docs/configuration.md, docs/rights.md, pgclient/schema/objects.txt, tables.txt and rows.txt)
	@.ci/postgres.sh
	@.ci/docs.sh

.PHONY: tour
tour: ## play the demo's incident on the real program and write docs/tour.md, its screens and its recording; two minutes
	@.ci/postgres.sh
	@. .ci/alone.sh && go test ./cmd/qtop -run '^TestTour$$' -count=1 -update

.PHONY: dist
dist: ## cross-compile for linux and darwin, amd64 and arm64, with checksums, into dist/
	@.ci/dist.sh
	@.ci/sums.sh

.PHONY: package
package: ## dist, and archives, deb, rpm, SBOM, formula and image of a release (QTOP_SIGN_KEY=KEY signs the checksums)
	@.ci/package.sh

.PHONY: package-try
package-try: ## install, run, upgrade and purge the package in a bare Debian (root; else SKIP), and build it twice to compare
	@.ci/package/try.sh
	@.ci/package/reproducible.sh

.PHONY: clean
clean: ## remove what the other targets built
	@rm -rf qtop dist
