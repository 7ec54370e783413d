/* Swaps that overlap computation: the order of queued work is right and no wait is missing. Tested on the CPU
 * and on the emulated GPU, which runs a stream's work only when the host waits for it. */
#include "worker/swaps.h"
#include "tests/driver.h"
#include "worker/cache.h"

#include <criterion/criterion.h>

/* ---- queued work ---- */

static char said[512];
static bool moved;

static void say(const char *what)
{
	strcat(said, what);
	strcat(said, " ");
}

/* Streams and events are represented by their names. */
static struct kern_stream *stream_new(struct kern_dev *d)
{
	(void)d;
	return (struct kern_stream *)"swaps";
}

static struct kern_event *event_new(struct kern_dev *d)
{
	static const char *const names[] = {"computed", "moved"};
	static int n;
	(void)d;
	return (struct kern_event *)names[n++ % 2];
}

static int event_record(struct kern_event *e, struct kern_stream *s)
{
	say((const char *)s), strcat(said, "records "), say((const char *)e);
	return 0;
}

static int event_wait(struct kern_event *e, struct kern_stream *s)
{
	say((const char *)s), strcat(said, "awaits "), say((const char *)e);
	return 0;
}

static bool event_done(struct kern_event *e)
{
	(void)e;
	return moved;
}

static int swap_out(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n)
{
	(void)kv, (void)pairs, (void)n;
	say((const char *)s), say("out");
	return 0;
}

static int swap_in(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n)
{
	(void)kv, (void)pairs, (void)n;
	say((const char *)s), say("in");
	return 0;
}

static int kv_copy(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n)
{
	(void)kv, (void)pairs, (void)n;
	say((const char *)s), say("copies");
	return 0;
}

static void stream_free(struct kern_stream *s)
{
	(void)s;
}

static int stream_sync(struct kern_stream *s)
{
	(void)s;
	return 0;
}

static void event_free(struct kern_event *e)
{
	(void)e;
}

static const struct kern_ops ops = {
	.stream_new = stream_new,
	.stream_free = stream_free,
	.stream_sync = stream_sync,
	.event_new = event_new,
	.event_free = event_free,
	.event_record = event_record,
	.event_wait = event_wait,
	.event_done = event_done,
	.kv_swap_out = swap_out,
	.kv_swap_in = swap_in,
	.kv_copy = kv_copy,
};

static struct kern_stream *const step = (struct kern_stream *)"step";
static const int32_t out[][2] = {{3, 0}, {4, 1}}, in[][2] = {{5, 7}};

static struct swaps *in_flight(void)
{
	struct swaps *w;
	cr_assert_eq(swaps_new(&w, &ops, NULL, NULL, 10), 0);
	cr_assert_eq(swaps_queue(w, step, out, 2, in, 1), 0);
	cr_assert_str_eq(said, "step records computed swaps awaits computed swaps out swaps in "
			       "swaps records moved ");
	said[0] = '\0';
	return w;
}

Test(swaps, who_does_not_touch_a_block_of_one_does_not_wait)
{
	struct swaps *w = in_flight();
	cr_assert_eq(swaps_reads(w, step, 2), 0);
	cr_assert_eq(swaps_writes(w, step, 5), 0); /* the number of a host block */
	cr_assert_eq(swaps_reads(w, step, 3), 0);  /* two reads may overlap */
	cr_assert_str_eq(said, "");
	cr_assert(swaps_pending(w));
	swaps_free(w);
}

Test(swaps, a_write_waits_for_a_block_that_leaves)
{
	struct swaps *w = in_flight();
	cr_assert_eq(swaps_writes(w, step, 4), 0);
	cr_assert_str_eq(said, "step awaits moved ");
	cr_assert(!swaps_pending(w));
	cr_assert_eq(swaps_writes(w, step, 3), 0);
	cr_assert_str_eq(said, "step awaits moved ", "once is enough");
	swaps_free(w);
}

Test(swaps, a_read_waits_for_a_block_that_arrives)
{
	struct swaps *w = in_flight();
	cr_assert_eq(swaps_reads(w, step, 7), 0);
	cr_assert_str_eq(said, "step awaits moved ");
	swaps_free(w);
}

Test(swaps, what_is_done_is_not_waited_for)
{
	struct swaps *w = in_flight();
	moved = true;
	cr_assert(!swaps_pending(w));
	cr_assert_eq(swaps_writes(w, step, 3), 0);
	cr_assert_eq(swaps_reads(w, step, 7), 0);
	cr_assert_str_eq(said, "");
	swaps_free(w);
}

Test(swaps, without_swaps_nothing_is_queued)
{
	struct swaps *w;
	cr_assert_eq(swaps_new(&w, &ops, NULL, NULL, 10), 0);
	cr_assert_eq(swaps_queue(w, step, NULL, 0, NULL, 0), 0);
	cr_assert_str_eq(said, "");
	swaps_free(w);
}

/* ---- blocks that a plan uses ---- */

static struct cache cache_under_way(void)
{
	return (struct cache){.ops = &ops,
			      .swaps = in_flight(),
			      .block_size = 16,
			      .n_blocks = 10,
			      .n_host_blocks = 10,
			      .kinds = KINDS_ONE};
}

/* Settle one row at `pos` of a sequence with two blocks. */
static void settle(int32_t first, int32_t second, int32_t pos, const char *want)
{
	const int32_t table[] = {first, second}, row0[] = {0, 1};
	struct cache c = cache_under_way();
	struct why why;
	cr_assert_eq(cache_settle(&c, step,
				  &(struct kern_batch){.n_rows = 1,
						       .n_seqs = 1,
						       .row0 = row0,
						       .pos0 = &pos,
						       .tables = table,
						       .table_stride = 2},
				  &why),
		     0);
	cr_expect_str_eq(said, want, "blocks %d %d, position %d: %s", first, second, pos, said);
	said[0] = '\0';
	swaps_free(c.swaps);
}

Test(swaps, the_block_that_a_row_is_written_to_has_left)
{
	settle(1, 3, 16, "step awaits moved "); /* the first token of the second block */
	settle(1, 3, 20, "step awaits moved ");
	settle(3, 1, 16, "");                   /* a block that is swapped out is only read */
	settle(3, 1, 15, "step awaits moved "); /* the last token of the first block */
	settle(7, 1, 16, "step awaits moved "); /* the block that is read is being swapped in */
}

static void copy(uint32_t from, uint32_t to, const char *want)
{
	struct cache c = cache_under_way();
	struct plan p = {0};
	struct why why;
	*plan_add_copy(&p) = (struct plan_pair){from, to};
	cr_assert_eq(cache_run(&c, step, &p, &why), 0);
	cr_expect_str_eq(said, want, "%u to %u: %s", from, to, said);
	said[0] = '\0';
	plan_fini(&p);
	swaps_free(c.swaps);
}

Test(swaps, the_block_that_a_copy_is_written_to_has_left)
{
	copy(1, 3, "step awaits moved step copies ");
	copy(3, 1, "step copies ");
	copy(7, 1, "step awaits moved step copies ");
}

/* ---- results ---- */

/* The prompt's blocks move; the block after them, which takes new tokens, stays. */
enum { N_PROMPT = 48, N_BLOCKS = 3, LAST_BLOCK = 400, N_TOKENS = 6 };

static struct driver d;
static uint32_t tokens[N_PROMPT], others[N_PROMPT];

static void seq_at(uint32_t slot, uint32_t first, const uint32_t *prompt)
{
	static struct params p;
	static uint32_t blocks[2][N_BLOCKS + 1];
	params_init(&p);
	p.temperature = 0;
	p.logprobs = 0; /* log-probabilities show more of the cache than tokens do */
	for (uint32_t i = 0; i < N_BLOCKS; i++)
		blocks[slot][i] = first + i;
	blocks[slot][N_BLOCKS] = LAST_BLOCK + slot;
	*plan_add_seq(&d.plan) = (struct plan_seq){.slot = slot,
						   .n_prompt = N_PROMPT,
						   .n_tokens = N_PROMPT,
						   .n_blocks = N_BLOCKS + 1,
						   .tokens = prompt,
						   .blocks = blocks[slot],
						   .params = &p};
}

static void move(uint32_t to)
{
	for (uint32_t i = 0; i < N_BLOCKS; i++)
		*plan_add_table(&d.plan) = (struct plan_table){0, i, to + i, 0};
}

struct chosen {
	uint32_t token;
	float logprob;
};

static struct chosen take(void)
{
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
	cr_assert_eq(d.result.n_tokens, 1);
	cr_assert_eq(d.result.n_logprobs, 1);
	return (struct chosen){d.result.tokens[0], d.result.logprobs[0].logprob};
}

/* Generate one sequence's greedy tokens. disturbed: before each token it is swapped out, another sequence
 * takes its blocks, and it returns in other blocks or copies; all in as few plans as possible. */
static void tokens_of(bool disturbed, struct chosen *got)
{
	uint32_t at = 2, host = 0;
	seq_at(0, at, tokens);
	driver_add_run(&d, 0, 0, N_PROMPT, true);
	got[0] = take();
	for (uint32_t n = 1; n < N_TOKENS; n++) {
		if (disturbed) {
			for (uint32_t i = 0; i < N_BLOCKS; i++)
				*plan_add_swap_out(&d.plan) = (struct plan_pair){at + i, host + i};
			seq_at(1, at, others);
			driver_add_run(&d, 1, 0, N_PROMPT, true);
			take();
			for (uint32_t i = 0; i < N_BLOCKS; i++) {
				*plan_add_swap_in(&d.plan) = (struct plan_pair){host + i, at + 10 + i};
				if (n % 2)
					*plan_add_copy(&d.plan) =
						(struct plan_pair){at + 10 + i, at + 20 + i};
			}
			at += n % 2 ? 20 : 10;
			move(at);
			host = host ? 0 : 2; /* a host block that was a source becomes a destination */
		}
		driver_add_run(&d, 0, N_PROMPT + n - 1, 1, true);
		got[n] = take();
	}
	step_reset(d.step, 1, NULL);
	d.number = 0;
}

static void check_tokens(const char *device)
{
	struct chosen want[N_TOKENS], got[N_TOKENS];
	const char *dir = tiny_model("llama3");
	if (!dir)
		cr_skip_test("tiny models need Python with numpy");
	struct bus_load load = driver_load(dir);
	const struct step_args a = {.device = device, .load = &load, .two_pools = true};
	cr_assert_eq(step_open(&d.step, &a, &d.ready, &d.why), 0, "%s", d.why.text);
	for (uint32_t i = 0; i < N_PROMPT; i++) {
		tokens[i] = (i * 17 + 3) % 331;
		others[i] = (i * 29 + 5) % 331;
	}
	tokens_of(false, want);
	tokens_of(true, got);
	for (int i = 0; i < N_TOKENS; i++)
		cr_expect(got[i].token == want[i].token && got[i].logprob == want[i].logprob,
			  "token %d is %u (%g), not %u (%g)", i, got[i].token, (double)got[i].logprob,
			  want[i].token, (double)want[i].logprob);
	driver_close(&d);
}

Test(swaps, a_sequence_that_was_away_goes_on_as_if_it_had_stayed)
{
	check_tokens("cpu");
}

Test(swaps, on_a_gpu_a_step_waits_for_the_swaps_that_it_needs, .timeout = 240)
{
	const char *library = builtfile("lib/libquern-cudasim.so");
	if (access(library, R_OK))
		cr_skip_test("the emulated CUDA device is not built; make cudasim-tests");
	setenv("QUERN_CUDA_LIBRARY", library, 1);
	check_tokens("cuda:0");
}
