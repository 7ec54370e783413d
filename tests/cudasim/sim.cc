/* sim.cc - fibres, blocks, warps, shared memory. */
#include "tests/cudasim/sim.h"

#include <memory>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "tests/cudasim/async.h"
#include "tests/cudasim/mem.h"
#include "tests/cudasim/race.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define FIBRE_LEAVE(keep, stack, size) __sanitizer_start_switch_fiber(keep, stack, size)
#define FIBRE_ENTER(kept)              __sanitizer_finish_switch_fiber(kept, nullptr, nullptr)
#else
#define FIBRE_LEAVE(keep, stack, size) (void)0
#define FIBRE_ENTER(kept)              (void)0
#endif

enum {
	THREADS_MAX = 1024,
	LANES = 32,
	BARRIERS = 16,
	FIBRES_MAX = 2 * THREADS_MAX, /* fibres of all resident blocks */
#if defined(__SANITIZE_ADDRESS__)
	STACK_BYTES = 256 << 10,
#else
	STACK_BYTES = 32 << 10,
#endif
	/* Stacks begin at different offsets in their pages; otherwise the hot ends of 512 stacks would share
	 * a few cache sets. */
	COLOURS = 32,
	COLOUR_BYTES = 448,
	SMEM_MAX = 227 << 10,  /* largest of a block on Hopper */
	SMEM_PLAIN = 48 << 10, /* largest without cudaFuncSetAttribute */
	SMEM_ROOM = 320 << 10, /* before the guard pages */
	GUARD = 64 << 10,
	VAIN_MAX = 100, /* rounds of polls without an event: all wait forever */
};

const struct cudasim_where *cudasim_at;

/* ---- switching: the callee-saved registers and the stack pointer ---- */

extern "C" void cudasim_switch(void **save_sp, void *to_sp);

#if defined(__x86_64__)
asm(".text\n.globl cudasim_switch\n.type cudasim_switch,@function\ncudasim_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size cudasim_switch,.-cudasim_switch\n.section .note.GNU-stack,\"\",@progbits\n.text\n");

/* Return a stack from which cudasim_switch() enters fn. */
static void *stack_prepare(unsigned char *top, void (*fn)(void))
{
	uintptr_t *sp = (uintptr_t *)((uintptr_t)top & ~(uintptr_t)15);
	*--sp = 0; /* fn's return address; also aligns the stack */
	*--sp = (uintptr_t)fn;
	for (int i = 0; i < 6; i++)
		*--sp = 0;
	return sp;
}
#elif defined(__aarch64__)
asm(".text\n.globl cudasim_switch\n.type cudasim_switch,@function\ncudasim_switch:\n"
    "sub sp, sp, #160\nstp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
    "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
    "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
    "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n"
    "ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\nret\n.section .note.GNU-stack,\"\",@progbits\n.text\n");

static void *stack_prepare(unsigned char *top, void (*fn)(void))
{
	uintptr_t *sp = (uintptr_t *)((uintptr_t)top & ~(uintptr_t)15) - 20;
	memset(sp, 0, 160);
	sp[11] = (uintptr_t)fn;
	return sp;
}
#else
#error "the emulator knows how to switch fibres on x86-64 and aarch64"
#endif

/* ---- one block ---- */

struct cp_async {
	unsigned char *dst;
	const unsigned char *src; /* NULL: zeros */
	int group;
	bool landed;
};

struct block;

struct fibre {
	struct cudasim_where where;
	void *sp;
	unsigned char *stack;
	struct block *home;
	int index; /* index in its block */
	bool done;
	/* for messages: -1 waits for nothing; 0.. for a barrier, BARRIERS for its warp, then for an mbarrier,
	 * then for a warpgroup */
	int waits;
	const void *mbar;
	std::vector<cp_async> copies;
	int groups; /* number of committed groups */
	void *asan;
};

struct warp {
	int lanes; /* lanes that have not ended */
	int came;
	void (*work)(void **args);
	void *args[LANES];
};

struct warpgroup {
	int came;
	void (*work)(void **args);
	void *args[4 * LANES];
};

/* A resident block. */
struct block {
	int slot;
	unsigned char *room; /* SMEM_ROOM bytes, then the guard */
	unsigned char *smem; /* ends at the guard */
	int n, left;         /* threads; left 0: the slot is free */
	struct fibre *fibres;
	struct warp warps[THREADS_MAX / LANES];
	struct warpgroup groups[THREADS_MAX / LANES / 4];
	struct {
		int came, want;
		int threads[THREADS_MAX];
	} barriers[BARRIERS];
	int ready[THREADS_MAX], n_ready;
	int pollers[THREADS_MAX], n_pollers; /* poll again when no other fibre is ready, or at random */
	int order;                           /* how the next fibre is chosen */
	std::vector<bool> copied;            /* places of 16 bytes that copies have written */
};

static struct block slots[CUDASIM_RESIDENT_MAX];
static struct block *b = slots; /* block of the running fibre */

/* The running launch. */
static struct {
	bool running;
	const char *kernel;
	const std::function<void()> *body;
	size_t smem_bytes;
	dim3 grid, block;
	int n_slots;
	int vain; /* rounds of polls without an event */
	int stay; /* switches, in 16, that stay in the block */
	struct fibre *cur;
	void *sched_sp;
	void *sched_asan;
} l;

static struct fibre fibres[FIBRES_MAX];

static const uint64_t stack_end = 0x5A5AC0DE5A5AC0DEu; /* at the far end of every stack */

struct cudasim_counters cudasim_counts;

/* Every launch draws from the seed and from its number since the seed was set, so that nothing else changes
 * its order. */
static uint64_t seed, rng, rng_host = 0x9E3779B97F4A7C15u;
static uint32_t n_seeded; /* launches since the seed was set */
static int most_resident = -1;

static uint32_t draw(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return (uint32_t)(*x >> 32);
}

static uint32_t next_random(void)
{
	return draw(&rng);
}

uint32_t cudasim_chance(void)
{
	return next_random();
}

uint32_t cudasim_random(void)
{
	return draw(&rng_host);
}

static void seed_set(uint64_t to)
{
	seed = to;
	n_seeded = 0;
	rng_host = (to + 1) * 0x9E3779B97F4A7C15u;
	draw(&rng_host);
}

void cudasim_seed(uint64_t to)
{
	std::lock_guard<std::recursive_mutex> held(cudasim_lock());
	seed_set(to);
}

void cudasim_resident(int most)
{
	std::lock_guard<std::recursive_mutex> held(cudasim_lock());
	most_resident = most;
}

static void seed_launch(void)
{
	static bool asked;
	const char *given = asked ? nullptr : getenv("QUERN_CUDASIM_SEED");
	asked = true;
	if (given && !seed && !n_seeded) /* a seed that a test set has precedence */
		seed_set(strtoull(given, nullptr, 0));
	uint64_t x = seed * 0x9E3779B97F4A7C15u + ++n_seeded;
	x = (x ^ x >> 31) * 0xBF58476D1CE4E5B9u;
	rng = (x ^ x >> 29) | 1;
	next_random();
}

static void say_where(void)
{
	if (!l.running)
		return;
	fprintf(stderr, "cudasim: in %s, %zu bytes of shared memory", l.kernel, l.smem_bytes);
	if (l.cur)
		fprintf(stderr, ", block (%u,%u,%u) of (%u,%u,%u), thread %u of %u", l.cur->where.bid.x,
			l.cur->where.bid.y, l.cur->where.bid.z, l.cur->where.gdim.x, l.cur->where.gdim.y,
			l.cur->where.gdim.z, l.cur->where.tid.x, l.cur->where.bdim.x);
	fprintf(stderr, "; launch %u from QUERN_CUDASIM_SEED=%llu, QUERN_CUDASIM_RESIDENT=%d\n", n_seeded,
		(unsigned long long)seed, most_resident);
}

static const char *expected;

void cudasim_expect(const char *text)
{
	expected = text;
}

void cudasim_fail(const char *fmt, ...)
{
	char said[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(said, sizeof said, fmt, ap);
	va_end(ap);
	if (expected && strstr(said, expected))
		_exit(CUDASIM_EXPECTED);
	fprintf(stderr, "cudasim: %s\n", said);
	say_where();
	abort();
}

static void on_fault(int sig, siginfo_t *info, void *ctx)
{
	(void)ctx;
	if (l.running && cudasim_touch(info->si_addr))
		return;
	signal(sig, SIG_DFL);
	unsigned char *p = (unsigned char *)info->si_addr;
	const struct block *in = nullptr;
	for (const struct block &x : slots)
		if (x.room && p >= x.room && p < x.room + SMEM_ROOM + GUARD)
			in = &x;
	if (in)
		fprintf(stderr, "cudasim: bad access %td bytes into shared memory\n", p - in->smem);
	else
		cudasim_mem_explain(p);
	say_where();
	raise(sig);
}

static void ready_push(int i)
{
	b->ready[b->n_ready++] = i;
}

static struct fibre *ready_pop_of(struct block *x)
{
	int at = x->n_ready - 1;
	if (x->order == 1) /* any fibre */
		at = (int)(next_random() % (uint32_t)x->n_ready);
	else if (x->order == 2) /* mostly the first fibre */
		at = 0;
	int i = x->ready[at];
	x->ready[at] = x->ready[--x->n_ready];
	return &x->fibres[i];
}

/* Pop a ready fibre of this block or of another resident block; NULL: none is ready. */
static struct fibre *ready_any(void)
{
	if (b->n_ready && (l.n_slots == 1 || (int)(next_random() % 16) < l.stay))
		return ready_pop_of(b);
	const int from = (int)(next_random() % (uint32_t)l.n_slots);
	for (int k = 0; k < l.n_slots; k++) {
		struct block *x = &slots[(from + k) % l.n_slots];
		if (x->n_ready)
			return ready_pop_of(x);
	}
	return nullptr;
}

static void block_enter(struct block *x)
{
	b = x;
	race_enter(x->slot);
	cudasim_async_enter(x->slot);
}

/* Let some asynchronous work of every block happen, and let threads that polled without success poll
 * again. */
static void pollers_wake(void)
{
	struct block *was = b;
	for (int k = 0; k < l.n_slots; k++) {
		block_enter(&slots[k]);
		cudasim_async_step();
		while (b->n_pollers)
			ready_push(b->pollers[--b->n_pollers]);
	}
	block_enter(was);
}

static struct fibre *ready_pop(void)
{
	if (cudasim_async_open && next_random() % 4 == 0)
		cudasim_async_step();
	if (b->n_pollers && next_random() % 8 == 0)
		ready_push(b->pollers[--b->n_pollers]);
	struct fibre *f = ready_any();
	if (f || l.vain++ >= VAIN_MAX)
		return f;
	pollers_wake();
	return ready_any();
}

static void say_waits(const struct fibre *f)
{
	char what[64];
	if (f->waits > BARRIERS + 1)
		snprintf(what, sizeof what, "its warpgroup");
	else if (f->waits > BARRIERS)
		snprintf(what, sizeof what, "the mbarrier at %td",
			 (const unsigned char *)f->mbar - f->home->smem);
	else if (f->waits == BARRIERS)
		snprintf(what, sizeof what, "its warp");
	else
		snprintf(what, sizeof what, "barrier %d", f->waits);
	fprintf(stderr, "cudasim: thread %d of block (%u,%u,%u) waits for %s\n", f->index, f->where.bid.x,
		f->where.bid.y, f->where.bid.z, what);
}

static void stuck(void)
{
	for (int k = 0; k < l.n_slots; k++)
		for (int i = 0; slots[k].left && i < slots[k].n; i++)
			if (!slots[k].fibres[i].done)
				say_waits(&slots[k].fibres[i]);
	cudasim_fail("threads wait for others that never come");
}

/* Make `to` the current fibre, with its block and place. */
static void enter(struct fibre *to)
{
	l.cur = to;
	cudasim_at = &to->where;
	if (to->home != b)
		block_enter(to->home);
}

/* Switch to the next ready fibre; returns when this fibre is ready again. */
static void give_way(void)
{
	struct fibre *me = l.cur;
	if (me->done && !b->left) { /* the last fibre of its block */
		FIBRE_LEAVE(nullptr, nullptr, 0);
		cudasim_switch(&me->sp, l.sched_sp);
	}
	struct fibre *to = ready_pop();
	if (to == me)
		return;
	cudasim_counts.switches++;
	if (!to)
		stuck();
	enter(to);
	FIBRE_LEAVE(me->done ? nullptr : &me->asan, to->stack, STACK_BYTES);
	cudasim_switch(&me->sp, to->sp);
	FIBRE_ENTER(me->asan);
}

void cudasim_yield(void)
{
	if (!l.cur || l.n_slots == 1)
		return;
	ready_push(l.cur->index);
	give_way();
}

void cudasim_progress(void)
{
	l.vain = 0;
}

void cudasim_poll(const void *mbar)
{
	struct fibre *me = l.cur;
	me->mbar = mbar;
	me->waits = BARRIERS + 1;
	b->pollers[b->n_pollers++] = me->index;
	give_way();
	me->waits = -1;
}

static void release(const int *threads, int n, int but)
{
	l.vain = 0;
	uint32_t r = next_random();
	for (int k = 0; k < n; k++) { /* rotated, in either direction */
		int at = (int)((r + (uint32_t)k) % (uint32_t)n);
		int i = threads[r >> 31 ? n - 1 - at : at];
		b->fibres[i].waits = -1;
		if (i != but)
			ready_push(i);
	}
}

static void fibre_main(void)
{
	struct fibre *me = l.cur;
	FIBRE_ENTER(me->asan);
	(*l.body)();
	me->done = true;
	l.vain = 0;
	b->left--;
	b->warps[me->index / LANES].lanes--;
	if (b->warps[me->index / LANES].came || b->groups[me->index / LANES / 4].came)
		cudasim_fail("a lane left while others of its warp or warpgroup wait for it");
	/* a barrier of the whole block waits only for the remaining fibres */
	if (b->barriers[0].came && b->barriers[0].came == b->left) {
		int n = b->barriers[0].came;
		b->barriers[0].came = 0;
		race_barrier(b->barriers[0].threads, n);
		release(b->barriers[0].threads, n, -1);
	}
	if (!b->left)
		cudasim_wgmma_end();
	give_way();
	abort();
}

void cudasim_warp_op(void (*work)(void **args), void *arg)
{
	struct fibre *me = l.cur;
	struct warp *w = &b->warps[me->index / LANES];
	if (w->lanes != LANES)
		cudasim_fail("a warp operation with %d lanes left", w->lanes);
	if (w->came && w->work != work)
		cudasim_fail("the lanes of a warp call different operations");
	w->work = work;
	w->args[me->index % LANES] = arg;
	if (++w->came < LANES) {
		me->waits = BARRIERS;
		give_way();
		return;
	}
	w->came = 0;
	work(w->args);
	int threads[LANES];
	for (int i = 0; i < LANES; i++)
		threads[i] = me->index / LANES * LANES + i;
	release(threads, LANES, me->index);
}

void cudasim_warpgroup_op(void (*work)(void **args), void *arg)
{
	struct fibre *me = l.cur;
	const int at = me->index / (4 * LANES), first = at * 4 * LANES;
	struct warpgroup *g = &b->groups[at];
	for (int w = first / LANES; w < first / LANES + 4; w++)
		if (first + 4 * LANES > b->n || b->warps[w].lanes != LANES)
			cudasim_fail("an operation of a warpgroup that has not four warps left");
	if (g->came && g->work != work)
		cudasim_fail("the warps of a warpgroup call different operations");
	g->work = work;
	g->args[me->index % (4 * LANES)] = arg;
	if (++g->came < 4 * LANES) {
		me->waits = BARRIERS + 2;
		give_way();
		return;
	}
	g->came = 0;
	work(g->args);
	int threads[4 * LANES];
	for (int i = 0; i < 4 * LANES; i++)
		threads[i] = first + i;
	release(threads, 4 * LANES, me->index);
}

void cudasim_barrier(int id, int n)
{
	struct fibre *me = l.cur;
	if (id < 0 || id >= BARRIERS || n % LANES || n > b->n)
		cudasim_fail("barrier %d of %d threads", id, n);
	auto *bar = &b->barriers[id];
	int want = n ? n : b->left;
	if (bar->came && n && bar->want != n)
		cudasim_fail("barrier %d is called for %d and for %d threads", id, bar->want, n);
	bar->want = n;
	bar->threads[bar->came++] = me->index;
	if (bar->came < want) {
		me->waits = id;
		give_way();
		return;
	}
	int all = bar->came;
	bar->came = 0;
	race_barrier(bar->threads, all);
	release(bar->threads, all, me->index);
}

int cudasim_slot(void)
{
	return b->slot;
}

int cudasim_thread(void)
{
	return l.running && l.cur ? l.cur->index : -1;
}

/* ---- shared memory ---- */

unsigned char *cudasim_smem(void)
{
	return b->smem;
}

void cudasim_check_smem(const void *p, size_t bytes, size_t align, const char *what)
{
	const unsigned char *q = (const unsigned char *)p;
	if (q < b->smem || q + bytes > b->smem + l.smem_bytes)
		cudasim_fail("%s: %zu bytes at %td are not in shared memory", what, bytes, q - b->smem);
	if ((uintptr_t)(q - b->smem) % align)
		cudasim_fail("%s: offset %td in shared memory is not aligned to %zu", what, q - b->smem,
			     align);
}

#ifndef __SANITIZE_ADDRESS__ /* AddressSanitizer's library has its own */
/* The compiler calls this for a pointer that is not aligned to its type (-fsanitize=alignment); the device
 * refuses such an access.  The layout is the compiler's. */
struct misaligned_type {
	uint16_t kind, info;
	char name[];
};

struct misaligned {
	const char *file;
	uint32_t line, column;
	const struct misaligned_type *type;
	unsigned char log_align, kind;
};

extern "C" [[noreturn]] void __ubsan_handle_type_mismatch_v1_abort(const misaligned *at, const void *p);
void __ubsan_handle_type_mismatch_v1_abort(const misaligned *at, const void *p)
{
	cudasim_fail("%s:%u: an access to %s at %p, which is not aligned to %d", at->file, at->line,
		     at->type->name, p, 1 << at->log_align);
}
#endif

static void land(const struct cp_async &c)
{
	if (c.src)
		memcpy(c.dst, c.src, 16);
	else
		memset(c.dst, 0, 16);
}

void cudasim_cp_async(void *dst, const void *src, bool pred)
{
	cudasim_check_smem(dst, 16, 16, "cp.async");
	if (pred)
		cudasim_check_device(src, 16, 16, "cp.async"), race_read(src, 16);
	else if ((uintptr_t)src % 16)
		cudasim_fail("cp.async: the source of a zero fill is not aligned");
	race_copy_begin(dst, 16);
	const size_t place = (size_t)((unsigned char *)dst - b->smem) / 16;
	cudasim_counts.refills += b->copied[place];
	b->copied[place] = true;
	struct cp_async c = {(unsigned char *)dst, pred ? (const unsigned char *)src : nullptr, l.cur->groups,
			     (next_random() & 1) != 0};
	/* The copy lands now or at its wait; until then, the old contents are gone. */
	if (c.landed)
		land(c);
	else
		memset(dst, 0xff, 16);
	l.cur->copies.push_back(c);
}

void cudasim_cp_commit(void)
{
	l.cur->groups++;
}

void cudasim_cp_wait(int n)
{
	auto &c = l.cur->copies;
	size_t i = 0;
	for (; i < c.size() && c[i].group < l.cur->groups - n; i++) {
		if (!c[i].landed)
			land(c[i]);
		race_copy_done(c[i].dst, 16);
	}
	c.erase(c.begin(), c.begin() + (long)i);
}

/* ---- launches ---- */

static void rooms_make(void)
{
	const size_t stacks = (size_t)FIBRES_MAX * STACK_BYTES;
	unsigned char *s = (unsigned char *)mmap(nullptr, stacks, PROT_READ | PROT_WRITE,
						 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (s == MAP_FAILED)
		cudasim_fail("out of memory for the emulator's stacks");
	for (int i = 0; i < CUDASIM_RESIDENT_MAX; i++) {
		slots[i].slot = i;
		slots[i].room = (unsigned char *)mmap(nullptr, SMEM_ROOM + GUARD, PROT_READ | PROT_WRITE,
						      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (slots[i].room == MAP_FAILED || mprotect(slots[i].room + SMEM_ROOM, GUARD, PROT_NONE))
			cudasim_fail("out of memory for the emulator's shared memory");
	}
	madvise(s, stacks, MADV_HUGEPAGE);
	for (int i = 0; i < FIBRES_MAX; i++)
		fibres[i].stack = s + (size_t)i * STACK_BYTES;
	struct sigaction sa = {};
	sa.sa_sigaction = on_fault;
	sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
	sigaction(SIGSEGV, &sa, nullptr);
}

/* Stack for on_fault(), one per thread that runs kernels: stacks of fibres are too small. */
struct fault_stack {
	unsigned char bytes[64 << 10];
	fault_stack()
	{
		set(0);
	}
	~fault_stack()
	{
		set(SS_DISABLE);
	}
	void set(int flags)
	{
		stack_t s = {};
		s.ss_sp = bytes;
		s.ss_size = sizeof bytes;
		s.ss_flags = flags;
		sigaltstack(&s, nullptr);
	}
};

static void fault_stack_need(void)
{
	static thread_local std::unique_ptr<fault_stack> mine;
	if (!mine)
		mine.reset(new fault_stack);
}

/* Mark the first n stacks, which are in use from now on. */
static void stacks_mark(int n)
{
	static int marked;
	for (; marked < n; marked++)
		memcpy(fibres[marked].stack, &stack_end, sizeof stack_end);
}

static void stacks_check(int n)
{
	for (int i = 0; i < n; i++)
		if (memcmp(fibres[i].stack, &stack_end, sizeof stack_end))
			cudasim_fail("thread %d needs more than %d bytes of stack", fibres[i].index,
				     (int)STACK_BYTES);
}

/* Start a block in slot b, which is free; its threads become ready. */
static void block_start(uint3 at)
{
	b->n = b->left = (int)l.block.x;
	b->n_ready = b->n_pollers = 0;
	b->order = (int)(next_random() % 3);
	memset(b->smem, 0xff, l.smem_bytes); /* NaN in every type */
	b->copied.assign(l.smem_bytes / 16 + 1, false);
	race_block(b->slot, at.x + (uint64_t)l.grid.x * (at.y + (uint64_t)l.grid.y * at.z), b->n, b->smem,
		   l.smem_bytes);
	cudasim_async_block(b->slot);
	for (int i = 0; i < BARRIERS; i++)
		b->barriers[i].came = 0;
	cudasim_wgmma_begin(b->slot);
	for (struct warpgroup &g : b->groups)
		g.came = 0;
	for (int w = 0; w * LANES < b->n; w++) {
		b->warps[w].lanes = b->n - w * LANES < LANES ? b->n - w * LANES : LANES;
		b->warps[w].came = 0;
	}
	int threads[THREADS_MAX];
	for (int i = 0; i < b->n; i++) {
		struct fibre *f = &b->fibres[i];
		f->where.tid = uint3{(unsigned)i, 0, 0};
		f->where.bid = at;
		f->where.bdim = l.block;
		f->where.gdim = l.grid;
		f->home = b;
		f->index = i;
		f->done = false;
		f->waits = -1;
		f->copies.clear();
		f->groups = 0;
		f->asan = nullptr;
		f->sp = stack_prepare(f->stack + STACK_BYTES - i % COLOURS * COLOUR_BYTES, fibre_main);
		threads[i] = i;
	}
	for (int w = 0; w < b->n; w += LANES) { /* warps in random order, each warp's lanes together */
		int other = (int)(next_random() % (uint32_t)((b->n + LANES - 1) / LANES)) * LANES;
		for (int i = 0; i < LANES && w + i < b->n && other + i < b->n; i++) {
			int keep = threads[w + i];
			threads[w + i] = threads[other + i];
			threads[other + i] = keep;
		}
	}
	release(threads, b->n, -1);
}

/* Run fibres until a block is done. */
static void fibres_run(void)
{
	struct fibre *first = ready_pop();
	if (!first)
		stuck();
	enter(first);
	FIBRE_LEAVE(&l.sched_asan, first->stack, STACK_BYTES);
	cudasim_switch(&l.sched_sp, first->sp);
	FIBRE_ENTER(l.sched_asan);
	cudasim_async_block_end();
	l.cur = nullptr;
	cudasim_at = nullptr;
	cudasim_counts.blocks++;
}

/* Choose how many blocks are resident together: at most as many as the device holds. */
static int slots_of(uint64_t n_blocks)
{
	int n = 1, each = 0;
	if (most_resident < 0) {
		const char *v = getenv("QUERN_CUDASIM_RESIDENT");
		most_resident = v && *v ? atoi(v) : CUDASIM_RESIDENT;
	}
	if (most_resident != 1) {
		cudasim_func_blocks(&each, (int)l.block.x, l.smem_bytes);
		n = cudasim_sms_now() * (each > 1 ? each : 1);
	}
	const int per_block = ((int)l.block.x + LANES - 1) / LANES * LANES;
	if (n > FIBRES_MAX / per_block)
		n = FIBRES_MAX / per_block;
	if (n > CUDASIM_RESIDENT_MAX)
		n = CUDASIM_RESIDENT_MAX;
	if (most_resident > 0 && n > most_resident)
		n = most_resident;
	if ((uint64_t)n > n_blocks)
		n = (int)n_blocks;
	if (n > 1 && next_random() % 4 == 0) /* as if other kernels held a part of the device */
		n = 1 + (int)(next_random() % (uint32_t)n);
	for (int i = 0; i < n; i++) {
		slots[i].fibres = fibres + i * per_block;
		slots[i].smem = slots[i].room + ((SMEM_ROOM - l.smem_bytes) & ~(size_t)15);
		slots[i].left = slots[i].n_ready = slots[i].n_pollers = 0;
	}
	stacks_mark(n * per_block);
	return n;
}

/* Run all n blocks in a random order: a start, and a stride that shares no factor with n. */
static void blocks_run(uint64_t n)
{
	uint64_t stride = n > 2 ? next_random() % n : 1, at = next_random() % n, begun = 0;
	auto gcd = [](uint64_t x, uint64_t y) {
		while (y) {
			uint64_t t = x % y;
			x = y;
			y = t;
		}
		return x;
	};
	while (gcd(stride, n) != 1)
		stride = stride % n + 1;
	for (uint64_t done = 0; done < n; done++) {
		for (int i = 0; i < l.n_slots && begun < n; i++) {
			if (slots[i].left)
				continue;
			b = &slots[i];
			block_start(uint3{(unsigned)(at % l.grid.x), (unsigned)(at / l.grid.x % l.grid.y),
					  (unsigned)(at / l.grid.x / l.grid.y)});
			at = (at + stride) % n;
			begun++;
		}
		fibres_run();
	}
}

void cudasim_run(const char *name, dim3 grid, dim3 block, size_t smem, const std::function<void()> &body)
{
	const uint64_t n = (uint64_t)grid.x * grid.y * grid.z;
	if (!slots[0].room)
		rooms_make();
	fault_stack_need();
	race_launch();
	seed_launch();
	l.running = true;
	l.kernel = name;
	l.body = &body;
	l.smem_bytes = smem;
	l.grid = grid;
	l.block = block;
	l.n_slots = slots_of(n);
	l.stay = (int[]){0, 8, 15}[next_random() % 3];
	if (l.n_slots > 1)
		cudasim_counts.interleaved++;
	l.vain = 0;
	blocks_run(n);
	cudasim_async_launch_end();
	stacks_check(l.n_slots * (int)block.x);
	cudasim_counts.launches++;
	cudasim_touched_close();
	l.running = false;
}

/* Return the error with which the device would refuse the launch. */
cudaError_t cudasim_launch_check(dim3 grid, dim3 block, size_t smem, size_t allowed)
{
	if (!grid.x || !grid.y || !grid.z || grid.y > 65535 || grid.z > 65535 || grid.x > 0x7fffffff)
		return cudaErrorInvalidConfiguration;
	if (block.y != 1 || block.z != 1 || !block.x || block.x > THREADS_MAX)
		return cudaErrorInvalidConfiguration;
	if (smem > (allowed > SMEM_PLAIN ? allowed : (size_t)SMEM_PLAIN))
		return cudaErrorInvalidValue;
	return cudaSuccess;
}
