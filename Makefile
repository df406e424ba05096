# Needs Go, make, git and, for the race detector, a C compiler. "make help" lists what there is.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL: # the order below is cheap first

BIN     := bin/gleaner
MODULE  := github.com/gleaner-dev/gleaner
VERSION  = $(shell git describe --tags --always --dirty 2>/dev/null || echo development)

# What the go command makes of these two patterns is every package of the root
# module and of the one nested in it that is part of the product.
PACKAGES := ./... $(MODULE)/hostabi/...

# Examples in Go are modules of their own, so that each can be copied.
EXAMPLES := $(patsubst %/go.mod,%,$(wildcard examples/*/go.mod))

# What tests need and the product does not, kept out of its dependencies.
ASIDE := test/s3 test/prometheus

# Packages that have something for the race detector to look at: a lock, an
# atomic, a pool or a goroutine, in the code or in a test that hammers it.
# The rewriter of modules is pure; its tests only share what they build. What the tests
# of examples and of the documents run has been looked at by then, and the S3 server is
# somebody else's. In the folders of OUTSIDE it is a process of its own that is tested,
# or the sandbox once more, which takes ten times as long so.
LOCKS   := ^(import)?[[:space:]]*"(sync|sync/atomic|golang.org/x/sync/.*)"|^[[:space:]]*go [a-zA-Z.]+[(]
OUTSIDE := ^\./(cmd/gleaner|test/(ask|attacks|deploy|process|soak))$$
LOCKED   = $(shell grep -rlE '$(LOCKS)' --include='*.go' --exclude-dir=hostabi --exclude-dir=fuel --exclude-dir=go --exclude-dir=s3 --exclude-dir=docs --exclude-dir=examples --exclude-dir=tools --exclude-dir=testdata --exclude-dir=binaries . \
	| xargs -r dirname | sort -ru | grep -vE '$(OUTSIDE)')

# Most tests of COMPANION are files of test/integration/policies, which are tested anyway:
# under the race detector those of its own are enough.
COMPANION     := ./test/integration/companion
COMPANION_OWN  = $(shell find $(COMPANION) -type f -name '*_test.go' | xargs grep -ohE '^func Test[A-Za-z0-9_]+' | sed 's/^func //' | grep -v '^TestMain$$' | paste -sd'|')

# What is tested under the race detector and without it: ALONE has tests of one goroutine,
# which are skipped under it.
ALONE := ./policies/rego

# Tools are built once per version, from the module in tools/, into this folder.
CACHE        := $(or $(GLEANER_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/gleaner)
GOVERSION    := $(shell go env GOVERSION)
tool-version  = $(shell sed -n 's,^[[:space:]]*$(1) \(v[^ ]*\).*,\1,p' tools/go.mod)
tool-path     = $(CACHE)/tools/$(notdir $(2))-$(call tool-version,$(1))-$(GOVERSION)/$(notdir $(2))
LINT         := $(call tool-path,github.com/golangci/golangci-lint/v2,golangci-lint)
TESTSUM      := $(call tool-path,gotest.tools/gotestsum,gotestsum)
CRDGEN       := $(call tool-path,sigs.k8s.io/controller-tools,controller-gen)

# All programs are compiled with the same settings, as devcluster/gobuild does it: what one
# has compiled is there for the next.
GO_RUN := GOOS= GOARCH= GOWORK=off GOFLAGS= CGO_ENABLED=0 go run -trimpath -buildvcs=false

TESTSUM_FLAGS := --format pkgname --format-icons text --format-hide-empty-pkg

##@ Try it

.PHONY: demo
demo: announce-demo build ## start a real control plane, delete things on it, and show what is collected and why
	$(BIN) demo

.PHONY: demo-companion
demo-companion: announce-demo build ## the like beside the garbage collector of kube-controller-manager
	$(BIN) demo --companion

.PHONY: build
build: ## build bin/gleaner
	@$(GO_RUN) ./tools/build/main.go -o $(BIN) -version '$(VERSION)' -os '$(GOOS)' -arch '$(GOARCH)'

# For a registry that wants a password: "docker login", "crane auth login" or the like, once.
.PHONY: image
image: $(addprefix build-image-,amd64 arm64) ## make a container image in bin/image, and push it to $IMAGE if that is set
	go run ./tools/image/main.go -folder bin/image -version $(VERSION) -revision "$$(git rev-parse HEAD 2>/dev/null || true)" $(if $(IMAGE),-push $(IMAGE)) $(BIN)-linux-amd64 $(BIN)-linux-arm64

.PHONY: build-image-amd64 build-image-arm64
build-image-amd64 build-image-arm64: build-image-%:
	CGO_ENABLED=0 GOOS=linux GOARCH=$* go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)' -o $(BIN)-linux-$* ./cmd/gleaner

.PHONY: bench
bench: build ## measure Gleaner beside the collector of kube-controller-manager (about three quarters of an hour)
	go run ./test/bench -gleaner $(BIN)

##@ Work on it

.PHONY: soak
soak: setup build ## run Gleaner for half an hour with churn, faults and an attacker, and see that nothing is lost and nothing grows
	go run ./test/soak -gleaner $(BIN) -attack $(SOAK)

# Fuzz targets of what takes bytes from outside, as FOLDER:NAME, and how long each runs.
FUZZ     := hostabi:FuzzParseVerdict operator/intents:FuzzGrantedURLReachesWhatWasGranted policies/wasm/fuel:FuzzRewrite policies/source:FuzzUnpack policies/worker/wire:FuzzRead
FUZZTIME := 1m

.PHONY: attack
attack: setup ## attack Gleaner on a real control plane in both modes, and fuzz what takes bytes from outside (about an hour)
	go test ./test/attacks -count=1 -v -timeout 3h -long $(ATTACK) | grep -v '^=== '
	for target in $(FUZZ); do (cd $${target%:*} && go test -run '^$$' -fuzz "^$${target#*:}\$$" -fuzztime $(FUZZTIME)); done

.PHONY: test-differential
test-differential: setup ## run 200 random scripts on both collectors and compare what they leave (about five minutes)
	go test ./test/differential -count=1 -v -timeout 60m -run '^(TestRandomScripts|TestKnown)' -scripts 200 | grep -v '^=== '

.PHONY: test-beside
test-beside: setup ## run 200 random scripts with and without Gleaner beside the other collector (about five minutes)
	go test ./test/differential -count=1 -v -timeout 60m -run '^TestRandomScripts' -scripts 200 -beside | grep -v '^=== '

# Packages are tested once, but for COMPANION and ALONE: under the race detector if they have
# a lock, and a C compiler is there. The slowest come last in the alphabet, and so are begun first.
.PHONY: test
test: announce-test setup $(TESTSUM) ## run all tests, after all set-up that they need, and those of packages with locks under the race detector
	@command -v "$$(go env CC)" >/dev/null || echo "test: there is no $$(go env CC), which the race detector needs: nothing runs under it"
	@command -v tinygo >/dev/null || echo "test: TinyGo is not installed (https://tinygo.org): the tests that need it are skipped, and listed at the end"
	$(TESTSUM) $(TESTSUM_FLAGS) --raw-command -- $(MAKE) --no-print-directory --silent test-events

.PHONY: test-events
test-events: # what "make test" shows, as JSON
	failed=0; locked=$$(mktemp); trap 'rm -f "$$locked"' EXIT; go list $(filter-out $(COMPANION),$(LOCKED)) | sort -r >"$$locked"; \
	race=; if command -v "$$(go env CC)" >/dev/null; then race=-race; export CGO_ENABLED=1; fi; \
	if [ -n "$$race" ]; then go test -json -race -timeout 30m -run '^($(COMPANION_OWN))$$' $(COMPANION) || failed=1; fi; \
	go test -json $$race -timeout 30m $$(cat "$$locked") || failed=1; \
	go test -json -timeout 20m $$({ go list $(PACKAGES) | grep -vxF -f "$$locked"; go list $(ALONE); } | sort -ru) || failed=1; \
	(cd sdk/go && GOWORK=off go test -json ./...) || failed=1; \
	(cd test/prometheus && GOWORK=off go test -json ./...) || failed=1; \
	exit $$failed

.PHONY: check
check: format-check vet lint generate-check test ## all that CI asks, cheap first

.PHONY: vet
vet: ## run go vet, and see that hostabi and the SDK build on their own, also for a Wasm guest
	go vet $(PACKAGES)
	cd hostabi && GOWORK=off go vet ./... && GOWORK=off GOOS=wasip1 GOARCH=wasm go build ./...
	cd devcluster/binaries && GOWORK=off CGO_ENABLED=0 GOFLAGS=-trimpath go vet ./...
	cd sdk/go && GOWORK=off GOARCH=386 CGO_ENABLED=0 go vet ./... # int has 32 bits, as in TinyGo
	cd sdk/go && GOWORK=off go vet ./... && GOWORK=off GOOS=wasip1 GOARCH=wasm go build -o /dev/null ./...
	for folder in $(EXAMPLES) $(ASIDE); do (cd $$folder && GOWORK=off go vet ./...); done

.PHONY: lint
lint: $(LINT) ## run golangci-lint at the version of tools/go.mod
	$(LINT) run ./...
	cd hostabi && $(LINT) run --config ../.golangci.yml ./...
	cd devcluster/binaries && GOWORK=off CGO_ENABLED=0 GOFLAGS=-trimpath $(LINT) run --config ../../.golangci.yml ./...
	cd sdk/go && GOWORK=off $(LINT) run --config ../../.golangci.yml ./...
	for folder in $(EXAMPLES) $(ASIDE); do (cd $$folder && GOWORK=off $(LINT) run --config ../../.golangci.yml ./...); done

.PHONY: fmt
fmt: ## format all Go files
	gofmt -w .

.PHONY: generate
generate: $(CRDGEN) ## make the generated files again
	$(CRDGEN) object crd paths=./crds/v1alpha1 output:crd:dir=crds/manifests output:object:dir=crds/v1alpha1
	go generate ./...
	cd hostabi && GOWORK=off go generate ./...

.PHONY: clean
clean: ## remove what was built in this folder; what is in the cache folder stays
	rm -rf bin

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Steps of the above.

# The first line that is seen, before anything is compiled.
.PHONY: announce-demo
announce-demo:
	@echo 'The first time, this builds Gleaner and a real control plane from source, which takes seven to nine minutes on two idle cores;'
	@echo 'after that, the demo takes less than a minute. First, Go compiles the program that shows the progress.'

.PHONY: announce-test
announce-test:
	@echo 'All tests take about half an hour on two idle cores. The first time, building the control plane and an S3 server from source'
	@echo 'takes seven to nine minutes more. First, Go compiles the program that shows the progress.'

.PHONY: setup
setup:
	@$(GO_RUN) ./tools/build/main.go -o bin/setup -name 'the set-up program' ./tools/setup/main.go
	@bin/setup

.PHONY: format-check
format-check:
	@diff=$$(gofmt -d . || true); \
	if [ -n "$$diff" ]; then echo "$$diff"; echo 'Not formatted: run "make fmt".'; exit 1; fi

# Compares with what was there before, rather than with the last commit, so that
# it can be run before a commit as well. On a clean checkout it is the same.
.PHONY: generate-check
generate-check:
	@state() { git diff; git ls-files --others --exclude-standard -z | xargs -0r git hash-object; }; \
	before=$$(state); \
	$(MAKE) --no-print-directory generate; \
	if [ "$$before" != "$$(state)" ]; then \
		git --no-pager diff --stat; git status --short; \
		echo 'Generated files were out of date: commit what "make generate" has made.'; exit 1; \
	fi

$(LINT): PACKAGE := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(TESTSUM): PACKAGE := gotest.tools/gotestsum
$(CRDGEN): PACKAGE := sigs.k8s.io/controller-tools/cmd/controller-gen
$(LINT) $(TESTSUM) $(CRDGEN): # renamed into place, so that a build that was cut short leaves nothing to trip over
	@echo "Building $(@F) into $(@D) (once; it can take a few minutes)"
	@mkdir -p $(@D)
	@cd tools && GOWORK=off CGO_ENABLED=0 go build -trimpath -buildvcs=false -o $@.$$$$ $(PACKAGE) && mv $@.$$$$ $@
