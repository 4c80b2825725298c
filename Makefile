# The two commands of the README do all the set-up: they install Postgres' binaries where they are missing, and nothing
# else outside this folder.

.PHONY: demo build test race fuzz vet proto proto-lint crash chaos bench-state

demo: postgres
	go run ./cmd/threadsvc demo

# The binary for use, bin/threadsvc, optimized by a profile of itself; the commands above do without, since it takes a minute longer.
build:
	go build -trimpath -pgo=cmd/threadsvc/threadsvc.pgo -o bin/threadsvc ./cmd/threadsvc

# The timeout is for machines that do much else meanwhile.
test: postgres
	go test -timeout 30m ./...

# Postgres' binaries, through the system's package manager if they are missing; says so first.
.PHONY: postgres
postgres:
	@sh scripts/install-postgres.sh

# PgBouncer, for the tests that go through a real one; they are skipped without it.
.PHONY: pgbouncer
pgbouncer:
	@command -v pgbouncer >/dev/null || { echo "installing pgbouncer with apt-get" >&2; apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends pgbouncer; }

vet:
	go vet ./...

race: postgres
	go test -timeout 30m -race -short ./agui/... ./store ./store/archive ./store/storetest ./service

FUZZTIME ?= 15s
fuzz:
	go test ./agui/jsondoc -run '^$$' -fuzz FuzzParse -fuzztime $(FUZZTIME)
	go test ./agui/jsondoc -run '^$$' -fuzz FuzzPatch -fuzztime $(FUZZTIME)
	go test ./agui/jsondoc -run '^$$' -fuzz FuzzWalk -fuzztime $(FUZZTIME)
	go test ./agui -run '^$$' -fuzz FuzzDecode -fuzztime $(FUZZTIME)
	go test ./agui -run '^$$' -fuzz FuzzPipeline -fuzztime $(FUZZTIME)
	go test ./service -run '^$$' -fuzz FuzzEventCodec -fuzztime $(FUZZTIME)
	go test ./service -run '^$$' -fuzz FuzzImport -fuzztime $(FUZZTIME) -fuzzminimizetime 50x

# The properties of whole threads with ten times the usual number of random ones; takes minutes.
.PHONY: properties
properties: postgres
	go test ./service -rapid.checks=300 -timeout 60m -run 'Nothing|Moment|Diff|Page|Export|Rewind|Context|Prun|Fork'

# A million random patches against github.com/evanphx/json-patch; takes minutes.
.PHONY: differential
differential:
	go test ./agui/jsondoc -v -run TestDifferential -differential.patches=1000000 -timeout 30m

# 100 kills of the server and 20 of Postgres under load; takes minutes.
crash: postgres
	go test ./service -v -run TestCrash -crash.kills=100 -crash.dbkills=20 -timeout 60m

# Everything at once, and everything fails, for half an hour (or CHAOS=5m). The servers' clocks are set, too.
CHAOS ?= 30m
chaos: postgres
	go test ./service -v -run 'TestChaos$$' -chaos.duration=$(CHAOS) -chaos.threads=64 -chaos.clocks -timeout 90m

# Cost of one event by the size of the state, and by the length of the message.
bench-state:
	go test ./agui -run '^$$' -bench 'StateDelta|Token' -benchtime 2000x

# The contract: buf (npm i -g @bufbuild/buf) works offline; the generators are this module's own tools.
proto:
	buf lint
	buf generate

proto-lint:
	buf lint
	buf format --diff --exit-code --exclude-path proto/google
