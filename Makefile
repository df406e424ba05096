# Needs Go, make, git and, for the race detector, a C compiler. "make help" lists what there is.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL: # the order below is cheap first

BIN     := bin/gleaner
DEV     := bin/gleaner-dev
MODULE  := github.com/gleaner-dev/gleaner

# What is compiled for vet, for the linter and for tests has the settings with which devcluster/gobuild
# compiles all programs: with others, the packages that they have in common are compiled twice.
# The race detector, which needs cgo, has compiled forms of its own in any case.
export CGO_ENABLED := 0
export GOFLAGS     := $(filter-out -trimpath,$(GOFLAGS)) -trimpath

VERSION  = $(shell git describe --tags --always --dirty 2>/dev/null || echo development)

# What the go command makes of these two patterns is every package of the root
# module and of the one nested in it that is part of the product.
PACKAGES := ./... $(MODULE)/hostabi/...

# Examples in Go are modules of their own, so that each can be copied.
EXAMPLES := $(patsubst %/go.mod,%,$(wildcard examples/*/go.mod))

# What tests need and the product does not, kept out of its dependencies.
ASIDE := test/s3 test/prometheus test/kubelet test/browser test/chart test/cosign tools/release

# Test lanes: each package with tests is in exactly one, which a test in ./test checks. In a lane,
# the slowest packages come first.
#   UNIT     starts no control plane                       make test-unit, test, test-all
#   CLUSTER  what to see pass before a pull request        make test, test-all
#   LONG     installation, nodes, archive, faults          make test-all, which is what CI runs, and which
#                                                          tests COMPANION once more, in companion mode
#   RELEASE  attacks, soak, cosign                         make test-release, each night and before a release
UNIT := ./cmd/gleaner-dev ./crds/... ./devcluster/child ./devcluster/download ./devcluster/freeport ./devcluster/gobuild ./internal/... ./operator/... ./policies/... ./sdk/rust/... \
	./test ./test/architecture ./test/attacks/payload ./test/bench ./test/pins ./test/reference $(MODULE)/hostabi/...
CLUSTER := ./test/docs ./test/process ./test/integration/policies ./cmd/gleaner ./test/inspect ./test/examples ./test/integration/preview \
	./test/integration ./devcluster ./test/integration/restore ./test/integration/server ./test/integration/crds ./test/integration/intents ./test/ui ./devcluster/s3server
LONG := ./test/deploy ./test/archive ./test/faults ./test/differential ./test/node ./devcluster/node
RELEASE := ./test/attacks ./test/soak

# Packages with tests that do less with "go test -short", as "make test" and "make test-all" run it: "make test-release"
# runs all of them, and COMPANION.
SHORTENED := ./test/docs ./test/faults ./test/archive ./test/node

# The first to be tested, since they mostly wait, and take longest.
SLOWEST := ./test/docs ./test/deploy ./test/node

# Nested modules with tests; ./test/examples runs those of examples.
UNIT_MODULES    := sdk/go
CLUSTER_MODULES := test/prometheus
LONG_MODULES    := test/kubelet test/chart tools/release
RELEASE_MODULES := test/cosign

# Packages tested at the same time: those with a control plane mostly wait.
PARALLEL ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) * 3 / 2)))

# Packages that have something for the race detector to look at: a lock, an atomic, a pool or
# a goroutine, in the code or in a test. "make test-all" tests those in UNIT under it, instead of
# without; those in RACES, on control planes, are tested under it by "make test-release". In the folders
# of OUTSIDE, it would run the sandbox once more, or a benchmark.
LOCKS   := ^(import)?[[:space:]]*"(sync|sync/atomic|golang.org/x/sync/.*)"|^[[:space:]]*go [a-zA-Z.]+[(]
OUTSIDE := ^\./(policies/wasm/fuel|test/bench)$$
RACES   := ./test/integration/policies ./test/integration ./test/integration/intents ./test/integration/restore ./devcluster
LOCKED   = $(shell grep -rlE '$(LOCKS)' --include='*.go' --exclude-dir=hostabi --exclude-dir=go --exclude-dir=s3 --exclude-dir=examples --exclude-dir=tools --exclude-dir=testdata --exclude-dir=binaries . \
	| xargs -r dirname | sort -u | grep -vE '$(OUTSIDE)' | grep -vxF $(ASIDE:%=-e ./%))

# What runs in "make test-all" beside the other packages, since it takes flags.
COMPANION    := ./test/integration/policies
DIFFERENTIAL := ./test/differential
SCRIPTS      := 10
# In "make test-release":
MANYSCRIPTS  := 60
SOAKTIME     := 3m

# Tests that are skipped under the race detector, or do less, since they have one goroutine or repeat the same.
ALONE       := ./policies/rego ./policies/wasm
ALONE_TESTS  = $(shell awk -F '[^A-Za-z0-9_]+' '/^func / { name = "" } /^func Test/ { name = $$2 } name != "" && /^\t(notUnderRace|if underRace )/ { print name }' $(ALONE:=/*_test.go) | sort -u | paste -sd'|')

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
	$(DEV) demo $(INDEX:%=--index=%)

.PHONY: demo-companion
demo-companion: announce-demo build ## the same in companion mode, with the garbage collector of kube-controller-manager running
	$(DEV) demo --companion $(INDEX:%=--index=%)

.PHONY: build
build: ## build bin/gleaner and bin/gleaner-dev
	@$(GO_RUN) ./tools/build/main.go -o $(BIN) -version '$(VERSION)' -os '$(GOOS)' -arch '$(GOARCH)'
	@$(GO_RUN) ./tools/build/main.go -o $(DEV) -name gleaner-dev -version '$(VERSION)' -os '$(GOOS)' -arch '$(GOARCH)' ./cmd/gleaner-dev

IMAGE_FOLDER := bin/image

# For a registry that wants a password: "docker login", "crane auth login" or the like, once.
.PHONY: image
image: $(addprefix build-image-,amd64 arm64) ## make a container image in bin/image, and push it to $IMAGE if that is set
	go run ./tools/image/main.go -folder $(IMAGE_FOLDER) -version $(VERSION) -revision "$$(git rev-parse HEAD 2>/dev/null || true)" $(if $(IMAGE),-push $(IMAGE)) $(BIN)-linux-amd64 $(BIN)-linux-arm64

.PHONY: build-image-amd64 build-image-arm64
build-image-amd64 build-image-arm64: build-image-%:
	GOOS=linux GOARCH=$* go build -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)' -o $(BIN)-linux-$* ./cmd/gleaner

RELEASE = cd tools/release && GOWORK=off go run . -root ../.. -folder ../../dist -image ../../dist/image -version '$(VERSION)' $(if $(PUSH),-registry '$(PUSH)') \
	-revision "$$(git rev-parse HEAD 2>/dev/null || true)" $(if $(PLATFORMS),-platforms '$(PLATFORMS)')

.PHONY: release
release: ## write the files of a release into dist: make release VERSION=v1.2.3, and push its image and chart if PUSH is set
	$(RELEASE) -check
	$(MAKE) --no-print-directory image IMAGE_FOLDER=dist/image VERSION='$(VERSION)'
	$(RELEASE)
	$(if $(PUSH),$(MAKE) --no-print-directory image IMAGE_FOLDER=dist/image VERSION='$(VERSION)' IMAGE='$(PUSH):$(VERSION)')
	$(if $(PUSH),$(RELEASE) -push-chart)

.PHONY: bench
bench: build ## measure Gleaner compared with the collector of kube-controller-manager (about three quarters of an hour)
	go run ./test/bench -gleaner $(BIN)

##@ Work on it

.PHONY: soak
soak: setup build ## run Gleaner for half an hour with churn, faults and an attacker, and see that nothing is lost and nothing grows
	go run ./test/soak -gleaner $(BIN) -attack $(SOAK)

# All fuzz targets, as FOLDER:NAME, and how long each runs. A test in ./test compares the list with the code.
FUZZ := \
	hostabi:FuzzParseVerdict \
	operator/archive/codec:FuzzDecode \
	operator/archive/filestore/pagecheck:FuzzCheck \
	operator/archive/open:FuzzParse \
	operator/archive/segment:FuzzRead \
	operator/archive:FuzzOpen \
	operator/archive:FuzzParseKeys \
	operator/escape:FuzzText \
	operator/graph:FuzzIDOf \
	operator/intents:FuzzURL_HasOneNotationForAddresses \
	operator/intents:FuzzURL_StaysWithinTheGrant \
	operator/objectstate:FuzzRead \
	operator/objectstate:FuzzReadFinalizers \
	operator/archive/serve:FuzzParse \
	operator/restore:FuzzBuild \
	policies/rego:FuzzNesting \
	policies/rego:FuzzPattern \
	policies/rego:FuzzValue \
	policies/settings:FuzzExtract \
	policies/source/egress:FuzzEmbeddedAddress \
	policies/source/oci:FuzzChallenge \
	policies/source/oci:FuzzParseReference \
	policies/source/signature:FuzzVerify \
	policies/source:FuzzManifest \
	policies/source:FuzzUnpack \
	policies/wasm/fuel:FuzzRewrite \
	policies/wasm/fuel:FuzzRun \
	policies/worker/wire:FuzzRead \
	sdk/go/internal/guest:FuzzDecode \
	sdk/go/internal/jsonread:FuzzReader
FUZZTIME := 1m

.PHONY: fuzz
fuzz: ## run each fuzz target for a minute, or FUZZTIME (about 20 minutes); FUZZ="FOLDER:NAME ..." selects targets
	for target in $(FUZZ); do (cd $${target%:*} && go test -run '^$$' -fuzz "^$${target#*:}\$$" -fuzztime $(FUZZTIME)); done

.PHONY: attack
attack: setup ## attack Gleaner on a real control plane in both modes, for longer than the tests do (about 40 minutes)
	go test ./test/attacks -count=1 -v -timeout 3h -long $(ATTACK) | grep -v '^=== '

.PHONY: test-differential
test-differential: setup ## run 200 random scripts on both collectors and compare what they leave (about five minutes)
	go test ./test/differential -count=1 -v -timeout 60m -run '^(TestRandomScripts|TestKnown)' -scripts 200 | grep -v '^=== '

.PHONY: test-companion
test-companion: setup ## run 200 random scripts in companion mode, compared with the built-in collector alone (about five minutes)
	go test ./test/differential -count=1 -v -timeout 60m -run '^TestRandomScripts' -scripts 200 -companion | grep -v '^=== '

TEST := $(TESTSUM) $(TESTSUM_FLAGS) --raw-command -- $(MAKE) --no-print-directory --silent

.PHONY: test-unit
test-unit: $(TESTSUM) ## run the tests that need no control plane (seconds for what is unchanged, two minutes for all)
	$(TEST) events-unit

# LANE=all adds LONG, companion mode and the race detector.
LANE ?=
ALL  := $(if $(LANE),$(if $(filter all,$(LANE)),-all,$(error LANE=$(LANE): set LANE=all, or leave it out)))

.PHONY: test
test: announce-test$(ALL) setup $(if $(LANE),build) $(TESTSUM) ## run the tests to see pass before a pull request, on real control planes (about 11 minutes)
	$(TEST) events$(ALL)

.PHONY: test-all
test-all: ## the same with LANE=all, as CI does: also the race detector, companion mode, nodes, faults and releases (an hour)
	@$(MAKE) --no-print-directory test LANE=all

# What gotestsum shows, as JSON.
in-modules = $(foreach folder,$(1),(cd $(folder) && GOWORK=off go test -json ./...) || failed=1;)

.PHONY: events-unit
events-unit:
	failed=0; go test -json $(UNIT) || failed=1; $(call in-modules,$(UNIT_MODULES)) exit $$failed

.PHONY: events
events:
	failed=0; go test -json -short -p $(PARALLEL) -timeout 20m $(UNIT) $(CLUSTER) || failed=1; \
	$(call in-modules,$(UNIT_MODULES) $(CLUSTER_MODULES)) exit $$failed

# "make lint" runs vet: "go test" would do it again, and for what is compiled for the race detector
# once more. RACED runs under that if $$race is set. Sandboxes, which compile modules, then run a program
# without the detector, and programs end at once.
TESTALL := go test -json -vet=off
RACED   := $${race:+env CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 GLEANER_TEST_SANDBOX=$(abspath $(BIN))} $(TESTALL) $$race

# This compiles what tests need, as "go test" does. The compiler runs once for each package, and most
# of them are done before its garbage is worth collecting.
COMPILE := env $${race:+CGO_ENABLED=1} GOGC=400 go list -export -deps -test -f '' $$race

# Each package is tested once: under the race detector if it is in UNIT and has locks, and a C compiler
# is there. Control planes compete for the processors already: "make test-release" is for them. What takes
# flags, and mostly waits, is tested after the others, and beside it one package at a time under the race detector, and nested modules.
.PHONY: events-all
events-all: TESTALL += -short
events-all:
	failed=0; work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; \
	go list $(UNIT) >"$$work/unit"; go list $(LOCKED) | grep -xF -f "$$work/unit" >"$$work/raced"; go list $(DIFFERENTIAL) >"$$work/beside"; \
	race=; if command -v "$$(CGO_ENABLED=1 go env CC)" >/dev/null; then race=-race; fi; \
	$(TESTALL) -timeout 45m $$(go list $(SLOWEST) $(CLUSTER) $(LONG) $(UNIT) | grep -vxF -f "$$work/beside" -f "$$work/raced") || failed=1; \
	{ $(TESTALL) -timeout 30m $(DIFFERENTIAL) -scripts $(SCRIPTS) || touch "$$work/failed"; \
	$(TESTALL) -timeout 30m $(COMPANION) -companion -mode-dependent | sed 's|\("Package":"[^"]*\)"|\1 -companion"|' || touch "$$work/failed"; } >"$$work/events" & \
	$(COMPILE) $$(cat "$$work/raced") >/dev/null || true; \
	$(RACED) -p 1 -timeout 30m $$(cat "$$work/raced") || failed=1; \
	if [ -n "$$race" ]; then $(TESTALL) -run '^($(ALONE_TESTS))$$' $(ALONE) || failed=1; fi; \
	$(call in-modules,$(UNIT_MODULES) $(CLUSTER_MODULES) $(LONG_MODULES)) \
	wait; cat "$$work/events"; [[ ! -e "$$work/failed" ]] || failed=1; exit $$failed

# What is tested on other versions of Kubernetes: the collector, policies and finalizers, in both modes, and the manifests.
VERSIONS       ?= 1.36 1.35 1.34 1.33
VERSION_SUITES := ./test/integration ./test/integration/policies ./test/deploy

.PHONY: test-versions
test-versions: setup $(TESTSUM) ## run the suites of integration, companion mode and deployment on Kubernetes $(VERSIONS), or VERSIONS (an hour each)
	failed=; for version in $(VERSIONS); do \
	echo "== Kubernetes $$version"; \
	GLEANER_KUBERNETES_VERSION=$$version $(TEST) events-version || failed+=" $$version"; done; \
	[[ -z "$$failed" ]] || { echo "test-versions: FAILED:$$failed"; exit 1; }

.PHONY: events-version
events-version:
	failed=0; $(TESTALL) -count=1 -timeout 60m $(VERSION_SUITES) || failed=1; \
	$(TESTALL) -count=1 -timeout 60m $(COMPANION) -companion | sed 's|\("Package":"[^"]*\)"|\1 -companion"|' || failed=1; exit $$failed

.PHONY: test-release
test-release: setup build $(TESTSUM) ## run what takes too long for each change: attacks, a soak of 3 minutes, all documents, signatures of cosign, more differential scripts, all tests in companion mode, suites under the race detector
	$(TEST) events-release
	@$(MAKE) --no-print-directory lint-aside

# One at a time: more control planes under the detector wait for each other until their time is up.
.PHONY: events-release
events-release: export GLEANER_TEST_SOAK := $(SOAKTIME)
events-release:
	failed=0; race=-race; \
	$(RACED) -p 1 -timeout 30m $(RACES) || failed=1; \
	$(TESTALL) -timeout 30m $(COMPANION) -companion | sed 's|\("Package":"[^"]*\)"|\1 -companion"|' || failed=1; \
	$(TESTALL) -timeout 30m $(DIFFERENTIAL) -scripts $(MANYSCRIPTS) || failed=1; \
	$(TESTALL) -p 1 -timeout 30m $(RELEASE) || failed=1; \
	$(TESTALL) -p 1 -timeout 45m $(SHORTENED) || failed=1; \
	$(call in-modules,$(RELEASE_MODULES)) exit $$failed

# A test that fails now and then fails more often while it competes for the processors.
COUNT ?= 20
LOAD  ?= $(shell getconf _NPROCESSORS_ONLN)

.PHONY: deflake
deflake: ## repeat the tests of a package under load and the race detector: PKG=./operator/watch [RUN=TestName] [COUNT=20] [LOAD=busy processes]
	@[[ -n "$(PKG)" ]] || { echo 'Usage: make deflake PKG=./operator/watch [RUN=TestName] [COUNT=20] [LOAD=2]'; exit 2; }
	@race=; if command -v "$$(CGO_ENABLED=1 go env CC)" >/dev/null; then race=-race; export CGO_ENABLED=1; fi; \
	go test $$race -run '^$$' $(PKG) >/dev/null; \
	echo "Running $(PKG) $(COUNT) times$${race:+ under the race detector}, beside $(LOAD) busy processes"; \
	trap 'kill $$(jobs -p)' EXIT; for ((i = 0; i < $(LOAD); i++)); do while :; do :; done & done; \
	go test $$race -count $(COUNT) -timeout 0 $(if $(RUN),-run '$(RUN)') $(PKG)

.PHONY: check
check: format-check vet lint generate-check test ## run what to see pass before a pull request, cheap first; CI runs test-all instead of test

.PHONY: vet
vet: portable ## run go vet, and see that hostabi and the SDK build on their own, also for a Wasm guest
	GOGC=400 go vet $(PACKAGES)
	for folder in hostabi devcluster/binaries sdk/go $(EXAMPLES) $(ASIDE); do (cd $$folder && GOWORK=off go vet ./...); done

# What the linter, which runs vet too, does not see.
.PHONY: portable
portable:
	cd hostabi && GOWORK=off GOOS=wasip1 GOARCH=wasm go build ./...
	cd sdk/go && GOWORK=off GOARCH=386 go vet ./... # int has 32 bits, as in TinyGo
	cd sdk/go && GOWORK=off GOOS=wasip1 GOARCH=wasm go build -o /dev/null ./...

.PHONY: lint
lint: lint-product lint-aside ## run golangci-lint at the version of tools/go.mod

# CI runs the first one for each change, and "make test-release" the other one: it reads the dependencies of other projects.
.PHONY: lint-product
lint-product: $(LINT)
	@GOGC=400 go list -export -deps -test $(PACKAGES) >/dev/null || true # the linter would do it with the compiler's usual settings
	$(LINT) run ./...
	cd hostabi && $(LINT) run --config ../.golangci.yml ./...
	for folder in devcluster/binaries sdk/go $(EXAMPLES); do (cd $$folder && GOWORK=off $(LINT) run --config ../../.golangci.yml ./...); done

.PHONY: lint-aside
lint-aside: $(LINT)
	for folder in $(ASIDE); do (cd $$folder && GOWORK=off $(LINT) run --config ../../.golangci.yml ./...); done

.PHONY: fmt
fmt: ## format all Go files
	gofmt -w .

.PHONY: generate
generate: $(CRDGEN) ## make the generated files again
	$(CRDGEN) object crd paths=./crds/v1alpha1 output:crd:dir=crds/manifests output:object:dir=crds/v1alpha1
	mv crds/manifests/gleaner.dev_*archivepolicies.yaml crds/manifests/archive/
	mv crds/manifests/gleaner.dev_*pauses.yaml crds/manifests/gleaner.dev_*budgets.yaml crds/manifests/safety/
	mv crds/manifests/gleaner.dev_noderetention*.yaml crds/manifests/gleaner.dev_imageremovalrequests.yaml crds/manifests/node/
	mv crds/manifests/gleaner.dev_*retentionpolicies.yaml crds/manifests/retention/
	go generate ./...
	cd hostabi && GOWORK=off go generate ./...

.PHONY: screenshots
screenshots: ## write a picture of each page of the web UI into bin/screenshots
	mkdir -p bin/screenshots
	GLEANER_TEST_BROWSER=required go test ./test/ui -count=1 -run '^TestScreenshots$$' -screenshots $(abspath bin/screenshots)

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
	@echo 'The first time, this builds Gleaner, and downloads a real control plane, or builds it from source, which takes five to seven minutes on two'
	@echo 'idle cores; after that, the demo takes less than a minute. First, Go compiles the program that shows the progress.'

FIRST_TIME := The first time, building the control plane and an S3 server from source takes three to six minutes more.

.PHONY: announce-test
announce-test:
	@echo 'These tests take about 11 minutes on two idle cores. $(FIRST_TIME)'
	@command -v tinygo >/dev/null || echo "test: TinyGo is not installed (https://tinygo.org): the tests that need it are skipped, and listed at the end"

.PHONY: announce-test-all
announce-test-all:
	@echo 'All tests take more than an hour on two cores. $(FIRST_TIME)'
	@command -v "$$(CGO_ENABLED=1 go env CC)" >/dev/null || echo "test: there is no $$(go env CC), which the race detector needs: nothing runs under it"
	@command -v tinygo >/dev/null || echo "test: TinyGo is not installed (https://tinygo.org): the tests that need it are skipped, and listed at the end"

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
	@cd tools && GOGC=400 GOWORK=off go build -buildvcs=false -o $@.$$$$ $(PACKAGE) && mv $@.$$$$ $@
