# quern: the one way in.
#
#   make run            install what is missing, build, tell a story with the demo model
#   make proof          kill a worker, then every process, in the middle of a text, and compare the bytes
#   make check          install what the tests need, build, run all tests (under 15 minutes on 2 cores)
#   make                build/bin/quern, quern-controller, quern-worker, quern-bench, quern-quantize
#   make cuda           build/lib/libquern-cuda.so, where nvcc is there
#   make install        to PREFIX (/usr/local), below DESTDIR; make uninstall removes the same files
#
#   make test NAME=queue   build and run one test (ARGS= for it); NAME=nothing lists them
#   make check-unit     the tests in C          make check-e2e   the programs, driven from Python
#   make check-full     make check, with every combination of modes, types and instruction sets
#   make lint           the house rules          make format      lay every source out
#   make asan | tsan    tests under AddressSanitizer and UBSan; end-to-end tests under ThreadSanitizer
#   make sim | speculate | fuzz | chaos | crash | guided | inject | mutate     longer tests: docs/CONTRIBUTING.md
#   make bench | bench-http                      figures: docs/performance/
#   make cudasim | gpu-check | gpu-bench         the CUDA kernels, emulated or on a GPU
#   make sass           what nvcc made of them, against its bounds: docs/performance/cuda.md
#   make deb | image | wheel | dist              Debian packages, a container image, a Python wheel, an archive: docs/deploy/
#   make deploy-check                            packages and deployments, on the real thing: deploy/check/run.sh
#   make gpu-pack                                one archive to check and measure them on another machine
#   make clean
#
# V=1 shows whole command lines; BUILD=, CC=, CFLAGS=, SAN= as usual.

BUILD  ?= build
CFLAGS ?= -O2 -g
SAN    ?=
PREFIX ?= /usr/local
WERROR ?= -Werror

Q   := $(if $(V),,@)
say := $(if $(V),@true,@printf '%5s %s\n')

# clang counts fields that a designated initializer leaves out as missing, gcc does not.
CLANG := $(findstring clang,$(shell $(CC) --version 2>/dev/null | head -n 1))
WARN := -Wall -Wextra $(if $(CLANG),-Wno-missing-field-initializers) -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wvla $(WERROR)
FLAGS = -std=c11 -D_GNU_SOURCE -I. -ffp-contract=off $(WARN) $(CFLAGS) \
	$(if $(SAN),-fsanitize=$(SAN) -Wno-unknown-warning-option -Wno-format-truncation -fno-omit-frame-pointer -fno-sanitize-recover=all)
# Without lists of where each variable is at each instruction, gcc takes a sixth less time; a debugger shows lines and
# calls as before.
NO_VARS := $(if $(CLANG),,-fno-var-tracking)

# A library per folder; mains apart.  What each folder may include and call, beside itself: no arrow points
# upward (docs/ARCHITECTURE.md draws it, `make lint` checks it against sources and objects).
USES_base                 :=
USES_proto                := base
USES_formats              := base
USES_formats/place        := base formats
USES_kernels              := base
USES_grammar              := base
USES_store                := base proto formats
USES_worker               := base proto formats formats/place kernels grammar store
USES_controller/tokenizer := base formats
USES_controller/jinja     := base
USES_controller/chat      := base formats grammar controller/tokenizer controller/jinja
USES_controller/sched     := base proto
USES_controller/message   := base proto formats controller/tokenizer controller/chat controller/sched
USES_controller/net       := base proto
USES_controller/metrics   := base proto controller/message
USES_controller/fleet     := base proto formats store controller/message controller/sched controller/net controller/metrics
USES_controller/jobs      := base proto formats controller/message controller/chat controller/sched controller/tokenizer \
	controller/metrics
USES_controller/request   := base proto formats grammar controller/message controller/chat controller/tokenizer
USES_controller/jobsock   := base proto controller/message controller/jobs controller/request controller/net \
	controller/tokenizer
USES_controller/http      := base proto controller/message controller/jobs controller/chat controller/metrics \
	controller/net
USES_controller/apis      := base proto formats controller/http controller/request controller/jobs \
	controller/message controller/chat controller/tokenizer
USES_controller/apis/openai := $(USES_controller/apis) controller/apis
USES_controller/apis/anthropic := $(USES_controller/apis/openai)
USES_controller/apis/ollama := $(USES_controller/apis/openai)
USES_controller/apis/llamacpp := $(USES_controller/apis/openai)
USES_controller/endpoints := $(USES_controller/apis) controller/metrics controller/apis \
	$(addprefix controller/apis/,openai anthropic ollama llamacpp)
ROOMS                     := $(addprefix controller/,tokenizer jinja chat sched message net metrics fleet jobs \
	request jobsock http apis apis/openai apis/anthropic apis/ollama apis/llamacpp endpoints)
USES_controller           := base proto formats store $(ROOMS)
USES_cli/terminal         := base
USES_cli/models           := base proto formats formats/place store cli/terminal
USES_cli                  := base proto formats formats/place store grammar $(addprefix controller/,tokenizer chat jinja sched) cli/terminal \
	cli/models
USES_bench/sim            := base proto formats formats/place $(addprefix controller/,sched message net metrics fleet) cli/models cli
USES_bench                := base proto formats formats/place kernels grammar store worker $(addprefix controller/,tokenizer chat jinja sched) \
	$(addprefix controller/,message net metrics fleet) cli/terminal cli/models cli bench/sim
USES_quant/writer         := base formats
USES_quant/convert        := base formats kernels controller/tokenizer cli/terminal cli/models quant/writer
USES_quant/round          := base formats kernels cli/terminal quant/writer quant/convert
USES_quant                := base proto formats kernels grammar store worker controller/tokenizer cli/terminal cli/models quant/writer \
	quant/convert quant/round

FOLDERS := base proto formats formats/place kernels grammar store worker $(ROOMS) controller cli/terminal cli/models cli bench/sim bench quant/writer quant/convert quant/round quant
SRC_kernels := $(wildcard kernels/*.c kernels/cpu/*.c kernels/cpu/*/*.c)
SRC_grammar := $(wildcard grammar/*.c grammar/*/*.c)
SRC_worker := $(filter-out %/main.c,$(wildcard worker/*.c worker/*/*.c))
$(foreach f,$(filter-out kernels grammar worker,$(FOLDERS)),$(eval SRC_$f := $(filter-out %/main.c,$(wildcard $f/*.c))))
$(foreach f,$(FOLDERS),$(eval LIB_$f := $(BUILD)/lib/lib$(subst /,-,$f).a))
# CLOSURE_folder: the folder and all that it uses, directly or not; FOLDERS names what is used first.
# libs FOLDERS: the libraries of those.
$(foreach f,$(FOLDERS),$(eval CLOSURE_$f := $(sort $f $(foreach u,$(USES_$f),$(CLOSURE_$u)))))
libs = $(foreach f,$(sort $(foreach g,$1,$(CLOSURE_$g))),$(LIB_$f))
SOURCES := $(foreach f,$(FOLDERS),$(SRC_$f)) cli/main.c worker/main.c controller/main.c bench/main.c quant/main.c
TESTS   := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/*/test_*.c tests/kernels/test_*.c \
	tests/wire/test_*.c tests/sim/test_*.c tests/tools/*.c))
STORY := $(addprefix $(BUILD)/bin/,quern quern-controller quern-worker)
PROGRAMS := $(STORY) $(addprefix $(BUILD)/bin/,quern-bench quern-quantize)

# msgpack-c's C library changed its name between Debian releases.
MSGPACK := $(shell pkg-config --libs msgpack-c 2>/dev/null || pkg-config --libs msgpack 2>/dev/null || echo -lmsgpackc)
LDLIBS_quern-bench := -lcurl # the load generator's HTTP
LDLIBS_quern-controller := -lcurl # spans to a collector
LDLIBS_quern       := -lcurl -ledit # quern pull; line editing of quern chat
LDLIBS  := -lzmq $(MSGPACK) -ljansson -lpcre2-8 -lutf8proc -lxxhash -lmicrohttpd -lsqlite3 -lgnutls -lm -lpthread -ldl

.PHONY: all help run proof test check check-full check-unit check-e2e deps deps-check deps-test deps-lint tests lint objects format clang asan tsan sim speculate fuzz fuzzers chaos crash bench clean
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:

# The kernels first: their sources take longest, and would be compiled at the end by one process alone.
all: $(LIB_kernels) $(PROGRAMS)

help:
	@sed -n '2,/^$$/s/^#\( \|$$\)//p' Makefile

# Only what the story needs: `make` builds the programs that measure and convert.
run: deps
	@$(MAKE) --no-print-directory -s -j$$(nproc) CFLAGS='$(CFLAGS) $(NO_VARS)' $(LIB_kernels) $(STORY)
	@$(BUILD)/bin/quern run models/demo --raw "Once upon a time" --seed 7
	@[ -x $(BUILD)/bin/quern-quantize ] || echo "make builds the other programs: quern-bench, quern-quantize" >&2

proof: deps
	@$(MAKE) --no-print-directory -s -j$$(nproc) $(LIB_kernels) $(STORY)
	@tests/chaos/proof.sh $(BUILD)/bin models/demo

check:
	@deploy/deps.sh unit
	@$(MAKE) --no-print-directory -j$$(($$(nproc) + 1)) deps-check all tests $(if $(NVCC),$(SASS))
	@tests/run.py $(BUILD)

# The same with every combination of modes, types, sizes and instruction sets: hours on a slow machine.
check-full: deps-test
	@$(MAKE) --no-print-directory -j$$(nproc) all tests
	@QUERN_TEST_LONG=1 QUERN_TEST_TIMEOUT=3600 tests/run.py $(BUILD)

check-unit: deps-test
	@$(MAKE) --no-print-directory -j$$(nproc) all tests
	@tests/run.py $(BUILD) unit

# One test by its name: `make test NAME=queue` builds and runs tests/*/test_queue.c, or runs the pytest file
# tests/*/test_queue.py; ARGS are handed to it (`ARGS="--filter 'queue/new_user*'"`).
NAMED_C  = $(filter %/test_$(NAME),$(TESTS) $(SIMTESTS))
NAMED_PY = $(wildcard tests/*/test_$(NAME).py tests/*/*/test_$(NAME).py)
test:
	@[ -n "$(NAMED_C)$(NAMED_PY)" ] || { echo "make test NAME=...: there is no test_$(NAME); there are:" $(sort \
		$(patsubst test_%,%,$(notdir $(TESTS) $(SIMTESTS) $(basename $(wildcard tests/*/test_*.py tests/*/*/test_*.py))))) >&2; exit 2; }
	@deploy/deps.sh $(if $(NAMED_PY)$(filter step_memory model step step_ahead same_tokens,$(NAME)),test,unit)
	@$(MAKE) --no-print-directory -j$$(nproc) $(NAMED_C) $(if $(NAMED_PY),all $(TOOLS))
	@for t in $(NAMED_C); do $$t --timeout 240 --jobs 2 $(ARGS) || exit 1; done
	@for t in $(NAMED_PY); do QUERN_BUILD=$(BUILD) build/venv/bin/python -m pytest -q -p no:cacheprovider $$t $(ARGS) || exit 1; done

# Programs that end-to-end tests call; `check-e2e` has the emulated device and the pack's parts, too, as its tests may
# not be skipped for want of them.
TOOLS := $(filter $(BUILD)/tests/tools/%,$(TESTS))
check-e2e: deps-test
	@$(MAKE) --no-print-directory -j$$(nproc) all $(TOOLS) $(BUILD)/lib/libquern-cudasim.so $(if $(SAN),,gpu-pack-parts)
	@tests/run.py $(BUILD) e2e

tests: $(TESTS) cudasim-tests $(if $(SAN),,$(BUILD)/inject/sweep gpu-pack-parts)

deps:
	@deploy/deps.sh build
deps-test:
	@deploy/deps.sh test
deps-lint:
	@deploy/deps.sh lint
# What `check` installs while it compiles: pip keeps one processor busy for minutes.
deps-check:
	@deploy/deps.sh test
	@deploy/deps.sh lint

# The house rules (tests/lint/table.py): what may include and call what, sizes, layout, words.
lint: deps-lint
	@$(MAKE) --no-print-directory -j$$(nproc) objects >/dev/null
	@python3 tests/lint --objects $(BUILD)/obj
	@python3 tests/mutate --stale
	@build/venv-types/bin/mypy --no-error-summary --cache-dir $(BUILD)/mypy --config-file clients/python/pyproject.toml clients/python/src/quern
# (kernels/cuda/rules.mk adds those of the CUDA sources, compiled for the host.)
objects: $(SOURCES:%.c=$(BUILD)/obj/%.o)
# Every source as the pinned clang-format leaves it.
format: deps-lint
	@python3 tests/lint --format

# All programs, and all sources of the tests in C, by another compiler, with its warnings; not optimized, since only the
# warnings are read.
CLANG_TESTS := $(filter-out tests/fuzz/%,$(patsubst ./%,%,$(shell find tests -name '*.c')))
clang:
	@deploy/deps.sh fuzz
	@deploy/deps.sh unit
	@$(MAKE) --no-print-directory -j$$(nproc) BUILD=$(BUILD)/clang CC=clang CFLAGS= KERNELS_O=-O0 all \
		$(CLANG_TESTS:%.c=$(BUILD)/clang/obj/%.o)

# Everything under AddressSanitizer and UBSan (ONLY=unit: the tests in C; ONLY=sample: few of them on the emulated GPU).
# A sanitizer that gives threads signal stacks of their own cannot free them where a test has left no memory to map.
asan: deps-test
	@$(MAKE) --no-print-directory -j$$(nproc) BUILD=$(BUILD)/asan CFLAGS="-O1 -g1" SAN=address,undefined all tests
	@ASAN_OPTIONS=use_sigaltstack=0 QUERN_TEST_SLOW=3 QUERN_TEST_TIMEOUT=720 tests/run.py $(BUILD)/asan $(ONLY)

# The threads of controller and workers under ThreadSanitizer, driven by end-to-end tests (it does not
# work with Criterion's memory map).  A report fails the run.
TSAN_TESTS := $(addprefix tests/e2e/,jobs/test_jobsocket.py jobs/test_durable.py http/test_http.py \
	http/test_batches.py fleet/test_replicas.py fleet/test_tp.py)
tsan: deps-test
	@$(MAKE) --no-print-directory -j$$(nproc) BUILD=$(BUILD)/tsan CFLAGS="-O1 -g1" SAN=thread all
	@rm -f $(BUILD)/tsan/report.*
	@TSAN_OPTIONS="suppressions=$(CURDIR)/tests/tsan.supp log_path=$(abspath $(BUILD))/tsan/report" QUERN_TEST_SLOW=5 QUERN_BUILD=$(BUILD)/tsan \
		build/venv/bin/python -m pytest -q -p no:cacheprovider $(TSAN_TESTS); rc=$$?; \
	if ls $(BUILD)/tsan/report.* >/dev/null 2>&1; then cat $(BUILD)/tsan/report.*; exit 1; fi; exit $$rc

# Sequences with drafts against the same without:  make speculate ROUNDS=50, each of 20,480 tokens
ROUNDS ?= 50
speculate: $(BUILD)/tests/unit/worker/test_open_runs
	QUERN_SPECULATE_ROUNDS=$(ROUNDS) $< --timeout 86400
# Seeds of the scheduler's simulation:  make sim SEEDS=1000000 SEED0=1
SEEDS ?= 10000
SEED0 ?= 1
sim: $(BUILD)/tests/sim/test_sched_sim
	QUERN_SIM_SEEDS=$(SEEDS) QUERN_SIM_SEED0=$(SEED0) $< --timeout 86400

# The tests that try to break the service, in full; their figures: $(BUILD)/chaos.txt.
chaos: deps-test
	@$(MAKE) --no-print-directory -j$$(nproc) all $(TOOLS)
	@rm -f $(BUILD)/chaos.txt
	QUERN_CHAOS=long QUERN_BUILD=$(BUILD) build/venv/bin/python -m pytest -q -p no:cacheprovider tests/chaos
	@cat $(BUILD)/chaos.txt

# Every decoder under libFuzzer, AddressSanitizer and UBSan, FUZZ_SECONDS of CPU time each (about a
# minute in all), from its seeds and dictionary in tests/fuzz; needs clang.  An input that crashes goes
# to the seeds, which are tried first.
#   make fuzz FUZZ_SECONDS=600 FUZZ="fuzz_bus fuzz_mp"
FUZZ_SECONDS ?= 4
FUZZ ?=
FUZZERS := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c tests/fuzz/*/fuzz_*.c))
fuzz:
	@deploy/deps.sh fuzz
	@$(MAKE) --no-print-directory -j$$(nproc) BUILD=$(BUILD)/asan-fuzz CC=clang CFLAGS="-O1 -g1" \
		SAN=fuzzer-no-link,address,undefined KERNELS_O=-O0 fuzzers
	@tests/fuzz/run.py $(BUILD)/asan-fuzz/fuzz $(FUZZ_SECONDS) $(FUZZ)
fuzzers: $(FUZZERS)
# No decoder calls the kernels, and clang takes many minutes to instrument or optimize them.
$(BUILD)/obj/kernels/cpu/%.o: override SAN := $(filter-out fuzzer-no-link%,$(SAN))
$(BUILD)/obj/tests/fuzz/%.o: FLAGS += -DFUZZ_LIBRARY -Wno-string-concatenation

# The storm of kills at full length: every durable job's output is there once, and the right one.
#   make crash CRASH_JOBS=500 CRASH_KILLS=50 CRASH_SEED=17
CRASH_JOBS ?= 500
CRASH_KILLS ?= 50
crash: deps-test
	@$(MAKE) --no-print-directory -j$$(nproc) all
	QUERN_BUILD=$(BUILD) QUERN_CRASH_JOBS=$(CRASH_JOBS) QUERN_CRASH_KILLS=$(CRASH_KILLS) \
		$(if $(CRASH_SEED),QUERN_CRASH_SEED=$(CRASH_SEED)) build/venv/bin/python -m pytest -q -s \
		-p no:cacheprovider tests/e2e/jobs/test_durable.py -k every_output

# Edits that break a promise, one at a time: a named test must fail for each (tests/mutate/*.toml).
#   make mutate MUTANTS="worker/ formats/config.c"
MUTANTS ?=
.PHONY: mutate
mutate: deps-test
	@python3 tests/mutate --build $(BUILD)/mutate $(MUTANTS)

# The Nth failing allocation, read, write or send, for every N (INJECT="--most 40 serve": a sample of a
# case), over what is read from disk or from a peer, what sets the service up, and workers.  Needs gcc:
# its sanitizer is a shared library, which tests/inject/inject.c precedes.  `make check` has a short
# sample, without sanitizers.
INJECT ?=
INJECT_WRAPS := $(foreach f,fsync zmq_send zmq_msg_send,-Wl,--wrap=$f)
.PHONY: inject
inject: deps-test
	@$(MAKE) --no-print-directory -j$$(nproc) BUILD=$(BUILD)/inject CFLAGS="-O1 -g1" SAN=address,undefined \
		$(BUILD)/inject/inject/sweep
	@$(BUILD)/inject/inject/sweep $(INJECT)
$(BUILD)/inject/sweep: $(patsubst %.c,$(BUILD)/obj/%.o,tests/testdata.c $(wildcard tests/inject/*.c)) $(call libs,$(FOLDERS))
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CC) $(FLAGS) $(LDFLAGS) $(INJECT_WRAPS) $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LDLIBS_quern-controller) $(LDLIBS) -lcriterion -o $@

# Outputs with forms at temperature 1, checked by other means than the engine's.
GUIDED_OUTPUTS ?= 100000
.PHONY: guided
guided: deps-test
	@$(MAKE) --no-print-directory -j$$(nproc) all
	QUERN_BUILD=$(BUILD) build/venv/bin/python tests/tools/guided_outputs.py --outputs $(GUIDED_OUTPUTS)

bench: all
	$(BUILD)/bin/quern bench kernels
	$(BUILD)/bin/quern bench engine models/demo

# 1,000 concurrent streams, and the effect of other clients on them; figures in docs/performance/http.md.
.PHONY: bench-http
bench-http: all deps-test
	build/venv/bin/python tests/tools/http_scale.py --streams 1000 --tokens 40
	build/venv/bin/python tests/tools/http_scale.py --streams 50 --tokens 30 --brisk 1000
	build/venv/bin/python tests/tools/http_scale.py --streams 50 --tokens 30 --slow 1000
	build/venv/bin/python tests/tools/http_scale.py --streams 50 --tokens 60 --idle 9500
	build/venv/bin/python tests/tools/api_cpu.py --each
	build/venv/bin/python tests/tools/http_hostile.py

clean:
	rm -rf $(BUILD)/obj $(BUILD)/lib $(BUILD)/bin $(BUILD)/tests $(BUILD)/man $(BUILD)/completion $(BUILD)/gpu $(BUILD)/quern-gpu*

# Each instruction set's kernels are compiled for it alone; the table chooses at start.  Sanitizers take minutes for one
# of them at -O3.
KERNELS_O ?= $(if $(SAN),-O1,-O3)
$(BUILD)/obj/kernels/%.o: ISA = $(KERNELS_O) $(if $(findstring avx512,$*),-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c,\
	$(if $(findstring avx2,$*),-mavx2 -mfma -mf16c,-Wno-psabi))

# Kernels for other instruction sets, emulated: tests/kernels/emulate_avx512.h.  Whether loops are unrolled does not
# matter there.
$(BUILD)/obj/tests/kernels/emulated%.o: ISA = $(or $(filter -O0,$(KERNELS_O)),-O1) -mavx2 -mfma -mf16c -Wno-psabi -Wno-pass-failed

$(BUILD)/obj/controller/endpoints/page_html.o: $(wildcard controller/endpoints/page/*)

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)$(CC) $(FLAGS) $(ISA) -MMD -MP -c $< -o $@

$(foreach f,$(FOLDERS),$(eval $(LIB_$f): $(SRC_$f:%.c=$(BUILD)/obj/%.o)))
$(BUILD)/lib/%.a:
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)ar rcs $@ $^

define program
$(BUILD)/bin/$1: $(BUILD)/obj/$2/main.o $(call libs,$2)
	@mkdir -p $$(@D)
	$$(say) LD $$@
	$$(Q)$$(CC) $$(FLAGS) $$(LDFLAGS) $$(filter %.o,$$^) -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group $$(LDLIBS_$1) $$(LDLIBS) -o $$@
endef
$(eval $(call program,quern,cli))
$(eval $(call program,quern-controller,controller))
$(eval $(call program,quern-worker,worker))
$(eval $(call program,quern-bench,bench))
$(eval $(call program,quern-quantize,quant))

$(BUILD)/obj/tests/%.o: FLAGS += $(NO_VARS)
# No other source knows where the tree is, so that a cache of compilations serves all trees.
$(BUILD)/obj/tests/testdata.o $(BUILD)/obj/tests/fuzz/%.o: FLAGS += -DQUERN_ROOT='"$(CURDIR)"' -DQUERN_BUILD='"$(abspath $(BUILD))"'
# A test of tests/unit/FOLDER links what that folder uses (and TESTS_ALSO_test_x), every other test all.
# Its helpers: sources beside it that are not tests, and those of tests/ as a library.
TESTS_ALSO_test_inspect             := kernels
TESTS_ALSO_test_packed              := kernels
TESTS_ALSO_test_jobs_durable_damage := controller
TESTS_ALSO_test_metrics             := controller
TESTS_ALSO_test_model_vocabulary    := controller
TESTS_ALSO_test_supervisor_lines    := controller
TESTS_ALSO_place                    := formats/place
TESTS_ALSO_grammar                  := controller/tokenizer
TESTS_ALSO_apis                     := $(addprefix controller/apis/,anthropic ollama llamacpp openai)
HELPERS = $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out tests/tools/% tests/$1/test_%,$(wildcard tests/$1/*.c tests/$1/emulated/*.c)))
TESTED  = $(or $(if $(filter unit/%,$1),$(filter $(notdir $1) controller/$(notdir $1),$(FOLDERS)) $(TESTS_ALSO_$(notdir $1))),$(FOLDERS))
$(BUILD)/lib/libtests.a: $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/*.c))
.SECONDEXPANSION:
$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $$(call HELPERS,$$(*D)) $(BUILD)/lib/libtests.a \
		$$(call libs,$$(call TESTED,$$(*D)) $$(TESTS_ALSO_$$(*F)))
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CC) $(FLAGS) $(LDFLAGS) $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LDLIBS_quern-bench) $(LDLIBS_quern) $(LDLIBS) -lcriterion -o $@

$(BUILD)/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(call libs,$(FOLDERS))
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CC) $(FLAGS) -fsanitize=fuzzer,address,undefined $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LDLIBS_quern-bench) $(LDLIBS) -o $@

# Manual pages, completion, installation.
include deploy/rules.mk

# The CUDA table (make cuda) and its emulation on the host (make cudasim).
include kernels/cuda/rules.mk

-include $(patsubst %.c,$(BUILD)/obj/%.d,$(SOURCES)) $(wildcard $(BUILD)/obj/tests/*.d $(BUILD)/obj/tests/*/*.d $(BUILD)/obj/tests/*/*/*.d)
