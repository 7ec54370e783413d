# The CUDA table, and its emulation for the tests.  Included by the Makefile.
#   make cuda      build/lib/libquern-cuda.so, if nvcc is installed; prints a notice otherwise
#   make cudasim   the kernel tests on the emulated device (no GPU, no nvcc)
#   make cudarace  these tests with a race detector at every access (tests/cudasim/race.h); make check runs a
#                  short version; SEED= sets the seed of the order of blocks and threads

# The toolkit: CUDA_HOME's, else the one in PATH.  A build runs on every driver from its CUDA's time on: 525
# for 12.x, 580 for 13.x.  Releases are therefore built with 12.x (make cuda CUDA_HOME=/usr/local/cuda-12.9).
NVCC ?= $(firstword $(wildcard $(CUDA_HOME:%=%/bin/nvcc) $(shell command -v nvcc 2>/dev/null) /usr/local/cuda/bin/nvcc))
CXX  ?= g++

# Machine code for every device since 8.0, so that a first start compiles nothing, except devices that this
# nvcc does not know (10.0 and 12.0 need CUDA 12.8).  PTX of 10.0, for 11.0, and of the newest, for later
# devices; PTX of 9.0a would run nowhere else.  No --use_fast_math, no contraction: a row's bits must not
# depend on the compiler.
CUDA_CODES = $(eval CUDA_CODES := $$(shell $(NVCC) --list-gpu-code))$(CUDA_CODES)
CUDA_MADE = $(filter $(CUDA_CODES:sm_%=%) $(CUDA_CODES:sm_%=%a),80 86 89 90a 100 120)
CUDA_PTX = $(filter 100 $(lastword $(filter-out %a,$(CUDA_MADE))),$(CUDA_MADE))
comma := ,
# A quarter of the bytes of machine code; every driver that runs CUDA 13 can read it.
CUDA_SMALL = $(eval CUDA_SMALL := $$(shell $(NVCC) --version | grep -q "release 1[3-9]" && echo --compress-mode=size))$(CUDA_SMALL)
CUDA_ARCH ?= $(foreach a,$(CUDA_MADE),-gencode arch=compute_$a,code=$(if $(filter $a,$(CUDA_PTX)),[sm_$a$(comma)compute_$a],sm_$a)) \
	$(CUDA_SMALL)
NVFLAGS = -std=c++20 -O3 -fmad=false -I. $(CUDA_ARCH) -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra \
	-diag-suppress 177

# NCCL, for models that several GPUs serve together: built in if its header is installed, opened by name when
# ranks meet.
NCCL_H ?= $(firstword $(wildcard $(if $(NVCC),$(dir $(NVCC))../include/nccl.h) /usr/local/cuda/include/nccl.h \
	/usr/local/include/nccl.h /usr/include/nccl.h))
NCCL_DIRS := $(if $(NCCL_H),$(wildcard $(dir $(realpath $(NCCL_H)))../lib $(dir $(realpath $(NCCL_H)))../lib64))
NCCL_LIBS := $(NCCL_DIRS:%=-Xlinker -rpath=%)
NVFLAGS += $(if $(NCCL_H),-I$(dir $(NCCL_H)))

# cuBLAS, for --fast: opened by name when a worker needs it, so only its header is needed here.  A program
# finds a library in the toolkit's folder even if the loader does not look there.
CUBLAS_H ?= $(firstword $(wildcard $(if $(NVCC),$(dir $(NVCC))../include/cublas_v2.h) /usr/local/cuda/include/cublas_v2.h \
	/usr/local/include/cublas_v2.h /usr/include/cublas_v2.h))
CUBLAS_DIRS := $(if $(CUBLAS_H),$(wildcard $(dir $(realpath $(CUBLAS_H)))../lib $(dir $(realpath $(CUBLAS_H)))../lib64))
CUBLAS_LIBS := $(CUBLAS_DIRS:%=-Xlinker -rpath=%)
NVFLAGS += $(if $(CUBLAS_H),-I$(dir $(CUBLAS_H)))

SRC_sim_cuda := $(filter-out %/blas_none.cu,$(wildcard kernels/cuda/*.cu))
SRC_cuda := $(filter-out $(if $(NCCL_H),,%/nccl.cu) $(if $(CUBLAS_H),%/blas_none.cu,%/blas.cu),$(wildcard kernels/cuda/*.cu))
OBJ_cuda := $(SRC_cuda:%.cu=$(BUILD)/obj/%.cu.o)
# The parts of base that the table needs, and the meeting of ranks, as position-independent code.
OBJ_cuda_base := $(patsubst %.c,$(BUILD)/obj/cuda/%.o,base/alloc.c base/clock.c base/err.c base/log.c base/numerics.c base/utf8.c base/buf.c \
	base/codes.c $(if $(NCCL_H),kernels/cpu/shm.c))

.PHONY: cuda cudasim cudasim-tests cudarace
ifeq ($(NVCC),)
cuda:
	@echo "no nvcc on this machine: the CUDA kernels are not built (--device cpu works)"
else
cuda: $(BUILD)/lib/libquern-cuda.so
	$(if $(NCCL_H),,@echo "no nccl.h on this machine: built without NCCL, a GPU serves alone (--tp 1)")
	$(if $(CUBLAS_H),,@echo "no cublas_v2.h on this machine: built without --fast")
endif

# The kernels' identity, for measurements made with them (kern_info.build).
NVFLAGS += -I$(BUILD)/gen
$(BUILD)/gen/cuda_build.h: $(sort $(wildcard kernels/cuda/*.cu kernels/cuda/*.cuh))
	@mkdir -p $(@D)
	@printf '#define CUDA_BUILD "%s"\n' $$(cat $^ | sha256sum | cut -c1-12) >$@
$(BUILD)/obj/kernels/cuda/device.cu.o $(BUILD)/obj/sim/kernels/cuda/device.o \
	$(BUILD)/obj/race/kernels/cuda/device.o: $(BUILD)/gen/cuda_build.h

# Next to each object: ptxas's report on every kernel for every architecture, for make sass-archs.
$(BUILD)/obj/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(say) NVCC $<
	$(Q)$(NVCC) $(NVFLAGS) -Xptxas -v -MMD -MP -c $< -o $@ 2>$(@:.o=.txt) || { cat $(@:.o=.txt) >&2; exit 1; }
	$(Q)! grep -vE '^ptxas info|^    [0-9]+ bytes' $(@:.o=.txt) >&2

$(BUILD)/obj/cuda/%.o: %.c
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)$(CC) $(FLAGS) -fPIC -fvisibility=hidden -MMD -MP -c $< -o $@

# The runtime is linked in: the machine needs only the driver.
$(BUILD)/lib/libquern-cuda.so: $(OBJ_cuda) $(OBJ_cuda_base)
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(NVCC) $(CUDA_ARCH) -shared -cudart static -Xlinker --exclude-libs,ALL -Xlinker -z,defs $^ $(NCCL_LIBS) $(CUBLAS_LIBS) -ldl -o $@

# ---- on a machine with a GPU ----
#   make gpu-pack    one archive, with one command, for a machine that has only a driver
#   make gpu-check   run its check phases here          results in docs/performance/gpu-results.md
#   make gpu-bench   run its measurement phases here    results in the same file
# Docs: docs/performance/README.md.  gpu-pack-sim packs the emulated device instead, to try it all here;
# gpu-pack-long runs its tests in all phases; make check runs the short phases.

# The tests of the CUDA table's own parts, in one program: separate programs would each contain the kernels.
OBJ_parts := $(patsubst tests/cudasim/%.c,$(BUILD)/obj/gpu/%.o,$(filter-out $(if $(NCCL_H),,%/test_nccl.c),$(wildcard tests/cudasim/test_*.c)))
GPUTESTS := $(BUILD)/gpu/test_parts
# Programs that test every table: the device is named when they run.
TABLETESTS := $(addprefix $(BUILD)/tests/kernels/test_,attention experts linear rows sample sample_golden)
WORKERTESTS := $(addprefix $(BUILD)/tests/unit/worker/test_,model step step_ahead same_tokens)
GPUTOOLS := $(addprefix $(BUILD)/gpu/,make_weights report)
GPU_CHECKS := device shapes kernels models service sanitizer
GPU_BENCHES := probes steps inside linear attention prompt batches serving rows contexts sampler f16 bf16


.PHONY: gpu-tests gpu-pack gpu-pack-sim gpu-pack-parts gpu-pack-long gpu-check gpu-bench
gpu-tests: $(GPUTESTS) $(GPUTOOLS) $(BUILD)/gpu/bench_step $(BUILD)/gpu/probes $(BUILD)/gpu/together $(addprefix $(BUILD)/gpu/references/,qwen3-8b qwen3-0.6b small) $(BUILD)/lib/libquern-cuda.so $(TABLETESTS) $(WORKERTESTS) $(PROGRAMS)

# PACK_ARCH: an H200's; other architectures make the archive larger and the build longer.
PACK_ARCH ?= -gencode arch=compute_90a,code=sm_90a
gpu-pack: deps-test
	@[ -n "$(NVCC)" ] || { echo "no nvcc on this machine: the kernels cannot be packed" >&2; exit 1; }
	@$(MAKE) --no-print-directory -j$$(nproc) BUILD=$(BUILD)/pack CUDA_ARCH='$(PACK_ARCH) $(CUDA_SMALL)' gpu-tests
	@tests/gpu/pack.sh $(BUILD)/pack $(BUILD)/quern-gpu.tar.gz $(NVCC)

gpu-pack-parts: $(GPUTOOLS) $(addprefix $(BUILD)/gpu/,sim_bench_step sim_test_parts sim_probes together suites_cases references/small) $(BUILD)/lib/libquern-cudasim.so $(TABLETESTS) $(WORKERTESTS) $(PROGRAMS)
gpu-pack-sim:
	@$(MAKE) --no-print-directory -j$$(nproc) gpu-pack-parts
	@tests/gpu/pack.sh $(BUILD) $(BUILD)/quern-gpu-sim.tar.gz

gpu-pack-long: deps-test
	@$(MAKE) --no-print-directory -j$$(nproc) gpu-pack-parts
	QUERN_TEST_LONG=1 QUERN_BUILD=$(BUILD) build/venv/bin/python -m pytest -q -p no:cacheprovider tests/e2e/gpu

gpu-check gpu-bench:
	@$(MAKE) --no-print-directory -j$$(nproc) gpu-tests
	@tests/gpu/pack.sh $(BUILD) $(BUILD)/quern-gpu-here.tar.gz $(NVCC)
	@rm -rf $(BUILD)/quern-gpu && tar -C $(BUILD) -xzf $(BUILD)/quern-gpu-here.tar.gz
	@$(BUILD)/quern-gpu/gpu-run --out docs/performance --phases "$(if $(filter gpu-check,$@),$(GPU_CHECKS),$(GPU_BENCHES))"

$(BUILD)/obj/gpu/%.o: tests/cudasim/%.c
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)$(CC) $(FLAGS) -MMD -MP -c $< -o $@

$(BUILD)/obj/gpu/%.o: tests/cudasim/%.cc
	@mkdir -p $(@D)
	$(say) NVCC $<
	$(Q)$(NVCC) $(NVFLAGS) -x cu -MMD -MP -c $< -o $@

# Kernels of tests, for the real and for the emulated device.
$(GPUTESTS): $(BUILD)/obj/tests/gpu/async_kernels.cu.o
$(BUILD)/tests/cudasim/test_async: $(BUILD)/obj/sim/tests/gpu/async_kernels.o

$(GPUTESTS): $(addprefix $(BUILD)/obj/tests/gpu/,parts.o suites.o) $(OBJ_parts) $(addprefix $(BUILD)/obj/gpu/,linear_plan.o kv_peek.o) $(OBJ_cuda) $(LIB_kernels) $(LIB_base)
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(NVCC) $(CUDA_ARCH) -cudart static $^ $(NCCL_LIBS) $(CUBLAS_LIBS) -lm -lpthread -ldl -o $@

# A worker's code on the CUDA table, with events that time its steps.
$(BUILD)/gpu/bench_step: $(addprefix $(BUILD)/obj/tests/gpu/,bench_step.o step_probe.cu.o) $(OBJ_cuda) \
		$(call libs,worker)
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(NVCC) $(CUDA_ARCH) -cudart static -Xlinker --wrap=cudaMemcpyAsync $^ $(NCCL_LIBS) $(CUBLAS_LIBS) $(LDLIBS) -o $@

# It needs nothing from the table.
$(BUILD)/gpu/probes: $(BUILD)/obj/tests/gpu/probes.cu.o
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(NVCC) $(CUDA_ARCH) -cudart static $^ -o $@

$(BUILD)/gpu/make_weights: $(BUILD)/obj/tests/gpu/make_weights.o
$(BUILD)/gpu/report: $(patsubst %,$(BUILD)/obj/tests/gpu/%.o,report report_page goals assumed)
$(GPUTOOLS): $(call libs,bench)
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CC) $(FLAGS) $(LDFLAGS) $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group \
		$(LDLIBS_quern-bench) $(LDLIBS_quern) $(LDLIBS) -o $@

# ---- the same sources on the host, as fibres ----

SIMFLAGS = -std=c++20 -O2 -g -fPIC -ffp-contract=off -I. -Itests/cudasim -I$(BUILD)/gen -DQUERN_CUDASIM -Wall -Wextra -Wshadow \
	-Wno-unknown-pragmas -Wno-unused-function $(WERROR) $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
# A pointer that is not aligned to its type is an error on the device; the emulator has the handler that the
# compiler calls.
ALIGNFLAGS := -fsanitize=alignment -fno-sanitize-recover=alignment
SRC_sim  := $(filter-out tests/cudasim/test_%,$(wildcard tests/cudasim/*.cc))
OBJ_sim  := $(SRC_sim_cuda:%.cu=$(BUILD)/obj/sim/%.o) $(SRC_sim:%.cc=$(BUILD)/obj/sim/%.o)
# The parts that the stand-in for NCCL needs, as position-independent code.
OBJ_sim_nccl := $(patsubst %.c,$(BUILD)/obj/cuda/%.o,kernels/cpu/coll.c kernels/cpu/shm.c)
SIMTESTS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/cudasim/test_*.c)) \
	$(patsubst tests/%.cc,$(BUILD)/tests/%,$(wildcard tests/cudasim/test_*.cc))

# Accesses as they are written: no vectors made of several.
RACEFLAGS := -DCUDASIM_RACE -fsanitize=thread $(ALIGNFLAGS) --param tsan-instrument-func-entry-exit=0 -fno-tree-vectorize \
	-fno-tree-slp-vectorize

objects: $(SRC_sim_cuda:%.cu=$(BUILD)/obj/sim/%.o)
RACETESTS := $(patsubst tests/%.cc,$(BUILD)/tests/%,$(wildcard tests/cudarace/test_*.cc))
cudasim-tests: $(SIMTESTS) $(BUILD)/lib/libquern-cudasim.so $(if $(SAN),,$(BUILD)/lib/libquern-cudarace.so $(RACETESTS))
# Checks that the instructions of ptx_async.cuh assemble for Hopper.
cudasim-tests: $(if $(NVCC),$(BUILD)/obj/tests/gpu/async_kernels.cu.o)
$(BUILD)/obj/tests/gpu/async_kernels.cu.o: CUDA_ARCH := -gencode arch=compute_90,code=compute_90 \
	-gencode arch=compute_90a,code=sm_90a
SEED ?= 0
cudarace: $(BUILD)/lib/libquern-cudarace.so $(RACETESTS) $(TABLETESTS) \
		$(addprefix $(BUILD)/tests/unit/worker/test_,model step step_ahead)
	@for t in $(RACETESTS); do printf '%5s %s\n' RACE $$t; $$t || exit 1; done
	@export QUERN_TEST_DEVICE=cuda:0 QUERN_CUDA_LIBRARY=$(abspath $(BUILD))/lib/libquern-cudarace.so QUERN_CUDASIM_SEED=$(SEED); \
	for t in $(TABLETESTS) $(addprefix $(BUILD)/tests/unit/worker/test_,model step step_ahead); do \
		printf '%5s %s\n' RACE $$t; $$t --timeout 3600 || exit 1; done; \
	printf '%5s %s, 132 multiprocessors\n' RACE kernels/test_linear; \
	QUERN_CUDASIM_SMS=132 $(BUILD)/tests/kernels/test_linear --timeout 3600
cudasim: $(SIMTESTS) $(BUILD)/lib/libquern-cudasim.so $(TABLETESTS) $(addprefix $(BUILD)/tests/unit/worker/test_,model step step_ahead same_tokens)
	@for t in $(SIMTESTS); do printf '%5s %s\n' SIM $$t; $$t || exit 1; done
	@export QUERN_TEST_DEVICE=cuda:0 QUERN_CUDA_LIBRARY=$(abspath $(BUILD))/lib/libquern-cudasim.so; \
	for t in $(TABLETESTS); do printf '%5s %s, whole\n' SIM $$t; QUERN_TEST_LONG=1 $$t --timeout 1200 || exit 1; done; \
	for t in $(addprefix $(BUILD)/tests/unit/worker/test_,model step step_ahead same_tokens); do \
		printf '%5s %s\n' SIM $$t; $$t --timeout 900 || exit 1; done; \
	for t in $(TABLETESTS); do printf '%5s %s, 132 multiprocessors, interleaved\n' SIM $$t; \
		QUERN_CUDASIM_SMS=132 QUERN_CUDASIM_RESIDENT=0 $$t --timeout 1200 || exit 1; done; \
	printf '%5s %s, --fast\n' SIM unit/worker/test_model; QUERN_TEST_FAST=1 $(BUILD)/tests/unit/worker/test_model --timeout 900

# The kernels compiled again, with a call at each memory access: tests/cudasim/race.h.
OBJ_race := $(OBJ_sim:$(BUILD)/obj/sim/%=$(BUILD)/obj/race/%)
$(BUILD)/obj/race/%.o: %.cu
	@mkdir -p $(@D)
	$(say) RACE $<
	$(Q)$(CXX) $(filter-out -fsanitize%,$(SIMFLAGS)) $(RACEFLAGS) -MMD -MP -x c++ -c $< -o $@

$(BUILD)/obj/race/%.o: %.cc
	@mkdir -p $(@D)
	$(say) CXX $<
	$(Q)$(CXX) $(filter-out -fsanitize%,$(SIMFLAGS)) -O3 -DCUDASIM_RACE -MMD -MP -c $< -o $@

$(BUILD)/lib/libquern-cudarace.so: $(OBJ_race) $(OBJ_cuda_base) $(OBJ_sim_nccl)
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CXX) -Wl,-z,defs $(LDFLAGS) -shared $^ -lm -lpthread -o $@

$(BUILD)/obj/tests/cudarace/%.o: tests/cudarace/%.cc
	@mkdir -p $(@D)
	$(say) RACE $<
	$(Q)$(CXX) $(filter-out -fsanitize%,$(SIMFLAGS)) $(RACEFLAGS) -MMD -MP -c $< -o $@

$(RACETESTS): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(OBJ_race) $(OBJ_cuda_base) $(OBJ_sim_nccl)
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CXX) $(LDFLAGS) $^ -lm -lpthread -ldl -lcriterion -o $@

$(BUILD)/obj/sim/%.o: %.cu
	@mkdir -p $(@D)
	$(say) SIM $<
	$(Q)$(CXX) $(SIMFLAGS) $(if $(SAN),,$(ALIGNFLAGS)) -MMD -MP -x c++ -c $< -o $@

$(BUILD)/obj/sim/%.o: %.cc
	@mkdir -p $(@D)
	$(say) CXX $<
	$(Q)$(CXX) $(SIMFLAGS) -MMD -MP -c $< -o $@

# The emulated table as workers open it: QUERN_CUDA_LIBRARY=$(BUILD)/lib/libquern-cudasim.so
$(BUILD)/lib/libquern-cudasim.so: $(OBJ_sim) $(OBJ_cuda_base) $(OBJ_sim_nccl)
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CXX) $(if $(SAN),-fsanitize=$(SAN),-Wl,-z,defs) $(LDFLAGS) -shared $^ -lm -lpthread -o $@

$(BUILD)/gpu/sim_probes: $(BUILD)/obj/sim/tests/gpu/probes.o $(filter-out $(BUILD)/obj/sim/kernels/% %/linear_plan.o %/kv_peek.o,$(OBJ_sim)) $(OBJ_cuda_base) $(OBJ_sim_nccl)
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CXX) $(if $(SAN),-fsanitize=$(SAN)) $(LDFLAGS) $^ -lm -lpthread -ldl -o $@

# bench_step on the emulated device.
$(BUILD)/gpu/sim_bench_step: $(BUILD)/obj/tests/gpu/bench_step.o $(BUILD)/obj/sim/tests/gpu/step_probe.o $(OBJ_sim) \
		$(call libs,worker)
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CXX) $(if $(SAN),-fsanitize=$(SAN)) $(LDFLAGS) \
		-Wl,--wrap=_Z15cudaMemcpyAsyncPvPKvm14cudaMemcpyKindP14cudasim_stream $(filter %.o,$^) -Wl,--start-group \
		$(filter %.a,$^) -Wl,--end-group $(LDLIBS) -o $@

# Checks and measurements of the table, and the tests of tables and workers, which run on the CPU, on an
# emulated device and on a GPU.  One program for the archive: separate programs would each contain all CPU
# kernels.
$(BUILD)/gpu/together: $(patsubst %,$(BUILD)/obj/tests/gpu/%.o,together suites shapes shapes_seq references measure measure_linear measure_seq blas) \
		$(patsubst $(BUILD)/tests/%,$(BUILD)/obj/tests/%.o,$(TABLETESTS) $(WORKERTESTS)) \
		$$(sort $$(call HELPERS,kernels) $$(call HELPERS,unit/worker)) $(BUILD)/lib/libtests.a \
		$$(call libs,$$(sort $$(call TESTED,kernels) $$(call TESTED,unit/worker)))
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CC) $(FLAGS) $(LDFLAGS) $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group \
		$(LDLIBS) -o $@

# Results of the CPU's table in the shapes of a model, with which gpu-run compares a device's results.
$(BUILD)/gpu/references/%: $(BUILD)/gpu/together
	@mkdir -p $(@D)
	$(say) REF $@
	@ln -sf together $(BUILD)/gpu/shapes
	$(Q)$(BUILD)/gpu/shapes --model $* --write $@.new >/dev/null && mv $@.new $@

# Tests that fail in every possible way, to test suites.c.
$(BUILD)/gpu/suites_cases: $(patsubst %,$(BUILD)/obj/tests/gpu/%.o,suites_cases suites) $(BUILD)/lib/libbase.a
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CC) $(FLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@

$(BUILD)/gpu/sim_test_parts: $(addprefix $(BUILD)/obj/tests/gpu/,parts.o suites.o) $(patsubst tests/%.c,$(BUILD)/obj/tests/%.o,$(wildcard tests/cudasim/test_*.c)) $(OBJ_sim) \
		$(BUILD)/obj/sim/tests/gpu/async_kernels.o \
		$(LIB_kernels) $(LIB_base)
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CXX) $(if $(SAN),-fsanitize=$(SAN)) $(LDFLAGS) $^ -lm -lpthread -ldl -o $@

$(BUILD)/obj/tests/cudasim/%.o: FLAGS += -DQUERN_CUDASIM
$(BUILD)/obj/tests/cudasim/%.o: tests/cudasim/%.cc
	@mkdir -p $(@D)
	$(say) CXX $<
	$(Q)$(CXX) $(SIMFLAGS) $(if $(SAN),,$(ALIGNFLAGS)) -MMD -MP -c $< -o $@

$(SIMTESTS): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(OBJ_sim) $(LIB_kernels) $(LIB_base)
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CXX) $(if $(SAN),-fsanitize=$(SAN)) $(LDFLAGS) $^ -lm -lpthread -ldl -lcriterion -o $@

# ---- the machine code of the kernels, without a GPU (tests/sass) ----
#   make sass             compare nvcc's code of every hot loop, and the estimated step time, with tests/sass/bounds.json
#   make sass UPDATE=1    write the current figures there and to the tables of docs/performance/cuda.md
#   make sass-archs       compare registers, spills and stack on every architecture with tests/sass/archs.json;
#                         UPDATE=1 writes them

SASS_CU := $(filter-out %/nccl.cu %/blas.cu %/blas_none.cu %/device.cu %/memory.cu %/kv.cu %/graph.cu,$(wildcard kernels/cuda/*.cu))
CUBINS  := $(SASS_CU:kernels/cuda/%.cu=$(BUILD)/sass/%.cubin)
# The whole objects of the other sources, for one architecture: the compiler's warnings on both sides of a source are errors.
SASS_REST := $(patsubst kernels/cuda/%.cu,$(BUILD)/sass/rest/%.o,$(filter-out $(SASS_CU),$(SRC_cuda)))
SASS    := $(BUILD)/sass/launches $(if $(NVCC),$(CUBINS) $(SASS_REST) $(BUILD)/gpu/wgmma_assembles.cubin)

# Never run: checks that ptxas accepts every variant of kernels/cuda/wgmma.cuh.
$(BUILD)/gpu/wgmma_assembles.cubin: tests/gpu/wgmma_assembles.cu kernels/cuda/wgmma.cuh kernels/cuda/ptx.cuh
	@mkdir -p $(@D)
	$(say) NVCC $<
	$(Q)$(NVCC) -std=c++20 -I. -gencode arch=compute_90a,code=sm_90a -Werror all-warnings -cubin -o $@ $< \
		2>$(@:.cubin=.txt) || { cat $(@:.cubin=.txt) >&2; exit 1; }

# The machine code that the library has for an H200.  The host's side is compiled with it, so that `make check` finds
# what nvcc's host compiler refuses.
$(CUBINS) $(SASS_REST): CUDA_ARCH := -gencode arch=compute_90a,code=sm_90a
$(BUILD)/sass/%.cubin: kernels/cuda/%.cu
	@mkdir -p $(@:.cubin=.keep)
	$(say) SASS $<
	$(Q)$(NVCC) $(NVFLAGS) -Xcompiler -Werror -Xptxas -v -MD -MP -MT $@ -MF $(@:.cubin=.d) --keep --keep-dir $(@:.cubin=.keep) \
		-c -o $(@:.cubin=.keep)/$*.o $< 2>$(@:.cubin=.txt) || { cat $(@:.cubin=.txt) >&2; exit 1; }
	@mv $(@:.cubin=.keep)/$*.cubin $@ && rm -r $(@:.cubin=.keep)
$(BUILD)/sass/rest/%.o: kernels/cuda/%.cu
	@mkdir -p $(@D)
	$(say) NVCC $<
	$(Q)$(NVCC) $(NVFLAGS) -Xcompiler -Werror -MMD -MP -c -o $@ $<
$(BUILD)/sass/rest/device.o: $(BUILD)/gen/cuda_build.h

$(BUILD)/obj/tests/sass/%.o: tests/sass/%.cc
	@mkdir -p $(@D)
	$(say) CXX $<
	$(Q)$(CXX) $(SIMFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/sass/launches: $(BUILD)/obj/tests/sass/launches.o $(OBJ_sim) $(LIB_kernels) $(LIB_base)
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CXX) $(if $(SAN),-fsanitize=$(SAN)) $(LDFLAGS) $^ -lm -lpthread -ldl -o $@

.PHONY: sass
sass:
	@deploy/deps.sh sass
	@$(MAKE) --no-print-directory -j$$(nproc) $(SASS)
	@python3 tests/sass $(if $(UPDATE),--update) $(BUILD) $(NVCC)

.PHONY: sass-archs
sass-archs: $(if $(NVCC),$(BUILD)/lib/libquern-cuda.so)
	@python3 tests/sass --archs $(if $(UPDATE),--update) $(BUILD) $(NVCC)

# A change of their flags rebuilds them.
$(OBJ_cuda) $(OBJ_cuda_base) $(OBJ_sim) $(OBJ_sim_nccl) $(OBJ_race) $(CUBINS) $(SASS_REST): kernels/cuda/rules.mk

-include $(CUBINS:.cubin=.d) $(SASS_REST:.o=.d) $(BUILD)/obj/tests/sass/launches.d
-include $(OBJ_cuda:.o=.d) $(OBJ_cuda_base:.o=.d) $(OBJ_sim:.o=.d) $(OBJ_sim_nccl:.o=.d) $(OBJ_race:.o=.d) $(RACETESTS:$(BUILD)/tests/%=$(BUILD)/obj/tests/%.d)
