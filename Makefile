# quern: the one way in.
#   make run     install what is missing, build, tell a story with the demo model
#   make check   install what the tests need, build, run all tests
#   make         build/bin/quern, quern-controller, quern-worker
#   make lint | asan | inject | bench | install | clean

BUILD  ?= build
CFLAGS ?= -O2 -g
SAN    ?=
PREFIX ?= /usr/local
WERROR ?= -Werror

# V=1 shows whole command lines.
Q   := $(if $(V),,@)
say := $(if $(V),@true,@printf '%5s %s\n')

WARN := -Wall -Wextra -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wvla $(WERROR)
FLAGS = -std=c11 -D_GNU_SOURCE -I. -ffp-contract=off $(WARN) $(CFLAGS) \
	$(if $(SAN),-fsanitize=$(SAN) -Wno-unknown-warning-option -Wno-format-truncation -fno-omit-frame-pointer -fno-sanitize-recover=all)

# A library per folder; mains apart.  Who may include whom: docs/ARCHITECTURE.md, `make lint`.
FOLDERS := base proto formats kernels worker controller cli
SRC_kernels := $(wildcard kernels/*.c kernels/cpu/*.c)
$(foreach f,$(filter-out kernels,$(FOLDERS)),$(eval SRC_$f := $(filter-out %/main.c,$(wildcard $f/*.c))))
$(foreach f,$(FOLDERS),$(eval LIB_$f := $(BUILD)/lib/lib$f.a))
SOURCES := $(foreach f,$(FOLDERS),$(SRC_$f)) cli/main.c worker/main.c controller/main.c
TESTS   := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/test_*.c tests/kernels/test_*.c \
	tests/wire/test_*.c tests/sim/test_*.c tests/tools/*.c))
PROGRAMS := $(addprefix $(BUILD)/bin/,quern quern-controller quern-worker)

LIBS_quern            := cli worker controller kernels formats proto base
LIBS_quern-controller := controller formats proto base
LIBS_quern-worker     := worker kernels formats proto base
# msgpack-c's C library changed its name between Debian releases.
MSGPACK := $(shell pkg-config --libs msgpack-c 2>/dev/null || pkg-config --libs msgpack 2>/dev/null || echo -lmsgpackc)
LDLIBS_quern := -lcurl # the load generator's HTTP; nothing else links it
LDLIBS  := -lzmq $(MSGPACK) -ljansson -lpcre2-8 -lutf8proc -lxxhash -lmicrohttpd -lsqlite3 -lgnutls -lm -lpthread -ldl

.PHONY: all run check check-unit check-e2e deps deps-test tests lint asan sim fuzz fuzzers chaos crash bench install clean
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:

all: $(PROGRAMS)

run: deps
	@$(MAKE) --no-print-directory -s -j$$(nproc) all
	@$(BUILD)/bin/quern run models/demo "Once upon a time" --seed 7

check: deps-test
	@$(MAKE) --no-print-directory -j$$(nproc) all tests
	@tests/run.sh $(BUILD)

check-unit: tests
	@tests/run.sh $(BUILD) unit

FLOOD := $(BUILD)/tests/tools/flood
check-e2e: all $(FLOOD)
	@tests/run.sh $(BUILD) e2e

tests: $(TESTS) cudasim-tests $(if $(SAN),,$(BUILD)/inject/sweep)

deps:
	@deploy/deps.sh build
deps-test:
	@deploy/deps.sh test

lint:
	@python3 tests/lint.py

asan: deps-test
	@$(MAKE) --no-print-directory -j$$(nproc) BUILD=$(BUILD)/asan CFLAGS="-O1 -g" SAN=address,undefined all tests
	@tests/run.sh $(BUILD)/asan

# Seeds of the scheduler's simulation:  make sim SEEDS=1000000 SEED0=1
SEEDS ?= 10000
SEED0 ?= 1
sim: $(BUILD)/tests/sim/test_sched_sim
	QUERN_SIM_SEEDS=$(SEEDS) QUERN_SIM_SEED0=$(SEED0) $< --timeout 86400

# The tests that try to break the service, in full; their figures: $(BUILD)/chaos.txt.
chaos: deps-test
	@$(MAKE) --no-print-directory -j$$(nproc) all $(FLOOD)
	@rm -f $(BUILD)/chaos.txt
	QUERN_CHAOS=long QUERN_BUILD=$(BUILD) build/venv/bin/python -m pytest -q -p no:cacheprovider tests/chaos
	@cat $(BUILD)/chaos.txt

# Every decoder under libFuzzer, AddressSanitizer and UBSan, so many seconds of CPU each (about a
# minute in all), from its seeds and dictionary in tests/fuzz where it has them; needs clang.  What is
# found goes to the seeds, and is tried first from then on.
#   make fuzz FUZZ_SECONDS=600 FUZZ="fuzz_bus fuzz_mp"
FUZZ_SECONDS ?= 4
FUZZ ?=
FUZZERS := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
fuzz:
	@deploy/deps.sh fuzz
	@$(MAKE) --no-print-directory -j$$(nproc) BUILD=$(BUILD)/asan-fuzz CC=clang CFLAGS="-O1 -g" \
		SAN=fuzzer-no-link,address,undefined fuzzers
	@tests/fuzz/run.py $(BUILD)/asan-fuzz/fuzz $(FUZZ_SECONDS) $(FUZZ)
fuzzers: $(FUZZERS)
# No decoder calls them, and clang takes many minutes over them with instruments in.
$(BUILD)/obj/kernels/cpu/isa_%.o: override SAN := $(filter-out fuzzer-no-link%,$(SAN))
$(BUILD)/obj/tests/fuzz/%.o: FLAGS += -DFUZZ_LIBRARY -Wno-string-concatenation

# The storm of kills at full length: every durable job's output is there once, and the right one.
#   make crash CRASH_JOBS=500 CRASH_KILLS=50 CRASH_SEED=17
CRASH_JOBS ?= 500
CRASH_KILLS ?= 50
crash: deps-test
	@$(MAKE) --no-print-directory -j$$(nproc) all
	QUERN_BUILD=$(BUILD) QUERN_CRASH_JOBS=$(CRASH_JOBS) QUERN_CRASH_KILLS=$(CRASH_KILLS) \
		$(if $(CRASH_SEED),QUERN_CRASH_SEED=$(CRASH_SEED)) build/venv/bin/python -m pytest -q -s \
		-p no:cacheprovider tests/e2e/test_durable.py -k every_output

# The Nth failing allocation, read, write or send, for every N (INJECT="--most 40 serve": a sample of a
# case), over what is read from disk or from a peer, what sets the service up, and workers.  Needs gcc:
# its sanitizer is a shared library, before which tests/inject/inject.c stands.  `make check` has a short
# sample, without sanitizers.
INJECT ?=
INJECT_WRAPS := $(foreach f,fsync zmq_send zmq_msg_send,-Wl,--wrap=$f)
.PHONY: inject
inject: deps-test
	@$(MAKE) --no-print-directory -j$$(nproc) BUILD=$(BUILD)/inject CFLAGS="-O1 -g" SAN=address,undefined \
		$(BUILD)/inject/inject/sweep
	@$(BUILD)/inject/inject/sweep $(INJECT)
$(BUILD)/inject/sweep: $(patsubst %.c,$(BUILD)/obj/%.o,tests/testdata.c $(wildcard tests/inject/*.c)) $(foreach l,$(LIBS_quern),$(LIB_$l))
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CC) $(FLAGS) $(LDFLAGS) $(INJECT_WRAPS) $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LDLIBS) -lcriterion -o $@

bench: all
	$(BUILD)/bin/quern bench kernels
	$(BUILD)/bin/quern bench engine models/demo

# 1,000 streams at once, and what others do to them; figures in docs/performance/http.md.
.PHONY: bench-http
bench-http: all deps-test
	build/venv/bin/python tests/tools/http_scale.py --streams 1000 --tokens 40
	build/venv/bin/python tests/tools/http_scale.py --streams 50 --tokens 30 --brisk 1000
	build/venv/bin/python tests/tools/http_scale.py --streams 50 --tokens 30 --slow 1000
	build/venv/bin/python tests/tools/http_scale.py --streams 50 --tokens 60 --idle 9500

install: all
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(PROGRAMS) $(DESTDIR)$(PREFIX)/bin

clean:
	rm -rf $(BUILD)/obj $(BUILD)/lib $(BUILD)/bin $(BUILD)/tests

# Each instruction set's kernels are compiled for it alone; the table chooses at start.
$(BUILD)/obj/kernels/%.o: ISA = $(if $(findstring _avx512,$*),-O3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c,\
	$(if $(findstring _avx2,$*),-O3 -mavx2 -mfma -mf16c,-O3 -Wno-psabi))

$(BUILD)/obj/controller/page_html.o: controller/page/index.html

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
$(BUILD)/bin/$1: $(BUILD)/obj/$2/main.o $(foreach l,$(LIBS_$1),$(LIB_$l))
	@mkdir -p $$(@D)
	$$(say) LD $$@
	$$(Q)$$(CC) $$(FLAGS) $$(LDFLAGS) $$^ $$(LDLIBS_$1) $$(LDLIBS) -o $$@
endef
$(eval $(call program,quern,cli))
$(eval $(call program,quern-controller,controller))
$(eval $(call program,quern-worker,worker))

$(BUILD)/obj/tests/%.o: FLAGS += -DQUERN_ROOT='"$(CURDIR)"' -DQUERN_BUILD='"$(abspath $(BUILD))"'
# Helpers of tests: sources beside them that are no tests themselves.  A tool is one source.
HELPERS = $(patsubst %.c,$(BUILD)/obj/%.o,tests/testdata.c $(filter-out tests/tools/% tests/$(1)/test_%,$(wildcard tests/$(1)/*.c)))
.SECONDEXPANSION:
$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $$(call HELPERS,$$(*D)) $(foreach l,$(LIBS_quern),$(LIB_$l))
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CC) $(FLAGS) $(LDFLAGS) $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LDLIBS_quern) $(LDLIBS) -lcriterion -o $@

$(BUILD)/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(foreach l,$(LIBS_quern),$(LIB_$l))
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CC) $(FLAGS) -fsanitize=fuzzer,address,undefined $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LDLIBS_quern) $(LDLIBS) -o $@

# The CUDA table (make cuda) and its emulation on the host (make cudasim).
include kernels/cuda/rules.mk

-include $(patsubst %.c,$(BUILD)/obj/%.d,$(SOURCES)) $(wildcard $(BUILD)/obj/tests/*.d $(BUILD)/obj/tests/*/*.d)
