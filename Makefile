# Each target covers every module of go.work and does the same on a laptop and in CI.
SHELL   := bash
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.6.0

TESTSUM  := go run ./internal/storecheck/cmd/testsum
RACE     ?= $(addprefix ./,. $(wildcard memstore inbox idemhttp gateway sqlite))
FUZZTIME ?= 30s
SYSTEMS  ?= windows/amd64 darwin/arm64

.PHONY: help build cross test check lint policy race verify fuzz vuln crash integration bench run release proof
help:
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## ./bin/idempo, static, version stamped
	CGO_ENABLED=0 go build -trimpath -buildvcs=auto -ldflags '-s -w -X main.version=$(VERSION)' -o bin/idempo ./cmd/idempo

cross: ## the binary builds for the systems in SYSTEMS
	@for system in $(SYSTEMS); do echo "go build for $$system"; \
		CGO_ENABLED=0 GOOS=$${system%/*} GOARCH=$${system#*/} go build -o /dev/null ./cmd/idempo || exit 1; done

test: ## unit, kits, examples; lists what was skipped
	$(TESTSUM) -count=1 -timeout=30m work

check: lint policy race verify fuzz vuln cross ## what CI runs: lint, test -race -count=1, policy, budgets, verify, fuzz 30 s each

lint: ## gofmt -l, go vet work, go fix -diff work, staticcheck at a pinned version
	@bad=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l) && test -z "$$bad" || { echo "gofmt -w $$bad"; exit 1; }
	go vet work
	@fix=$$(go fix -diff work) && test -z "$$fix" || { echo "$$fix"; echo "run: go fix work"; exit 1; }
	go run $(STATICCHECK) work

policy: ## the import policy, the budgets, and what is compared how (internal/archtest)
	go test -count=1 ./internal/archtest

race: ## go test -race -count=1 on the packages in RACE
	CGO_ENABLED=1 go test -race -count=1 $(RACE)

verify: ## copies Go into README and guides, runs their commands, checks claims and what is linked; fails if it had to change a file
	@.ci/verify

fuzz: ## every fuzz target for FUZZTIME (30s)
	@.ci/fuzz $(FUZZTIME)

vuln: ## known vulnerabilities in the code that is reached; needs vuln.go.dev
	@.ci/vuln $(GOVULNCHECK)

crash: ## kill -9 at every step of a guarded call, again and again; effects counted outside
	@.ci/crash

integration: ## the store kit on real databases and drivers (internal/storecheck), the gateway before PocketBase (internal/realcheck)
	$(TESTSUM) -count=1 -timeout=30m ./internal/storecheck/... ./internal/realcheck/...

bench: ## ratios against the baselines in bench/, with allocations
	go run ./bench

run: ## idempo serve on SQLite under ./tmp, before the service at UPSTREAM (http://127.0.0.1:9000)
	mkdir -p tmp && go run ./cmd/idempo serve --upstream $(or $(UPSTREAM),http://127.0.0.1:9000) --data-dir tmp

release: ## not before the first release: tags root, contrib, cmd and rehearses the installation
	@echo "release: there is no release script yet"; exit 1

proof: ## the long form: SEED, ROUNDS (3) and KILLS a step (300); prints the seed, which repeats the run
	@.ci/proof $(if $(SEED),-seed $(SEED)) $(if $(ROUNDS),-rounds $(ROUNDS)) $(if $(KILLS),-kills $(KILLS))
