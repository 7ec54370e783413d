/* The live stream: latencies, memory maps, frames and frame differences. */
#include "controller/endpoints/live.h"

#include "base/alloc.h"
#include "controller/sched/blocks.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(loghist, .timeout = 60);
TestSuite(live, .timeout = 60);

/* ---- latencies ---- */

static double quantile(const struct loghist *h, double p)
{
	uint64_t now[LOGHIST_BUCKETS];
	loghist_read(h, now);
	return loghist_quantile(now, NULL, p);
}

Test(loghist, every_value_reads_back_within_a_thirty_second)
{
	for (uint64_t us = 0; us < (uint64_t)1 << 40; us = us * 9 / 8 + 1) {
		struct loghist h = {0};
		loghist_add(&h, (int64_t)us);
		double got = quantile(&h, 0.5);
		cr_assert(fabs(got - (double)us) <= (double)us / 32, "%g of %g", got, (double)us);
	}
}

Test(loghist, values_beyond_the_ends_count_in_the_last_buckets)
{
	struct loghist h = {0};
	loghist_add(&h, -5);
	cr_expect_eq(quantile(&h, 0), 0);
	loghist_add(&h, INT64_MAX);
	cr_expect_gt(quantile(&h, 1), 1e12);
}

Test(loghist, quantiles_are_of_the_nearest_rank)
{
	struct loghist h = {0};
	for (int us = 1; us <= 15; us++)
		loghist_add(&h, us);
	cr_expect_eq(quantile(&h, 0), 1);
	cr_expect_eq(quantile(&h, 0.5), 8);
	cr_expect_eq(quantile(&h, 1), 15);
}

Test(loghist, only_values_since_a_reading_count)
{
	struct loghist h = {0};
	uint64_t before[LOGHIST_BUCKETS], now[LOGHIST_BUCKETS];
	loghist_add(&h, 3);
	loghist_read(&h, before);
	cr_expect_lt(loghist_quantile(before, before, 0.5), 0);
	loghist_add(&h, 9);
	loghist_read(&h, now);
	cr_expect_eq(loghist_quantile(now, before, 0.5), 9);
}

/* ---- memory maps ---- */

Test(live, cells_show_held_and_cached_in_eighths)
{
	bool seen[128] = {0};
	for (uint32_t held = 0; held <= 8; held++)
		for (uint32_t cached = 0; held + cached <= 8; cached++) {
			char c = live_cell(8, held, cached);
			cr_expect(c >= '.' && c <= 'Z' && !seen[(int)c], "%u %u: %c", held, cached, c);
			seen[(int)c] = true;
		}
	cr_expect_eq(live_cell(0, 0, 0), '.');
}

Test(live, a_cell_shows_every_count_above_zero)
{
	char none = live_cell(1000, 0, 0);
	cr_expect_eq(none, '.');
	cr_expect_eq(live_cell(1000, 1, 0), live_cell(8, 1, 0));
	cr_expect_eq(live_cell(1000, 0, 1), live_cell(8, 0, 1));
	cr_expect_eq(live_cell(1000, 999, 1), live_cell(8, 7, 1));
	cr_expect_eq(live_cell(1000, 1, 999), live_cell(8, 1, 7));
	cr_expect_eq(live_cell(UINT32_MAX, UINT32_MAX, 0), live_cell(8, 8, 0));
}

static void ignore_entry(void *user, uint32_t kind, uint32_t logical, uint32_t block)
{
	(void)kind;
	(void)user, (void)logical, (void)block;
}

static void ignore_copy(void *user, uint32_t from, uint32_t to)
{
	(void)user, (void)from, (void)to;
}

Test(live, blocks_are_counted_cell_by_cell)
{
	struct contents *c = contents_new((uint32_t[STORES]){10}, 4, &KINDS_ONE, true, 0);
	struct blocks *b = blocks_new(10, 4, &KINDS_ONE, c, STORE_DEVICE);
	struct block_table held = {0}, cached = {0};
	struct blocks_later later = {0};
	struct blocks_change change = {ignore_entry, ignore_copy, NULL};
	struct blocks_cell cells[16];
	uint32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8}, n[3] = {0};
	blocks_grow(b, &held, 12, 0, &change, &later);
	blocks_grow(b, &cached, 8, 0, &change, &later);
	for (uint32_t i = 0; i < 2; i++)
		contents_put(c, contents_add(c, &(struct contents_root){0}, CONTENTS_NONE, tokens + 4 * i), 0,
			     STORE_DEVICE, cached.ids[i]);
	blocks_drop(b, &cached, NULL);
	for (uint32_t n_cells = 1; n_cells <= 16; n_cells++) {
		uint32_t got = blocks_cells(b, cells, n_cells);
		memset(n, 0, sizeof n);
		cr_expect_eq(got, n_cells < 10 ? n_cells : 10);
		for (uint32_t i = 0; i < got; i++) {
			n[0] += cells[i].n;
			n[1] += cells[i].held;
			n[2] += cells[i].cached;
			cr_expect(cells[i].n >= 10 / got && cells[i].n <= 10 / got + 1);
		}
		cr_expect(n[0] == 10 && n[1] == 3 && n[2] == 2, "%u: %u %u %u", n_cells, n[0], n[1], n[2]);
	}
	blocks_drop(b, &held, NULL);
	block_table_fini(&held);
	block_table_fini(&cached);
	blocks_later_fini(&later);
	blocks_free(b);
	contents_free(c);
}

Test(live, all_maps_together_have_a_bound)
{
	cr_expect_eq(live_cells(0), LIVE_CELLS_ONE);
	cr_expect_eq(live_cells(1), LIVE_CELLS_ONE);
	cr_expect_eq(live_cells(64), LIVE_CELLS / 64);
	cr_expect_eq(live_cells(100000), LIVE_CELLS_LEAST);
}

/* ---- frames ---- */

static const struct service svc = {
	.model_name = "org/<b>\"model\"", .started_unix = 1700000000, .model_context = 4096};

static struct engine_status *status_of(uint32_t n)
{
	struct engine_status *s = xcalloc(1, sizeof *s);
	s->ready = true;
	s->counts.n_running = 3;
	s->counts.n_blocks = 100 * n;
	s->counts.n_held = 25 * n;
	s->counts.n_cached = 50 * n;
	s->n_replicas = s->n_workers = n;
	for (uint32_t i = 0; i < n; i++) {
		struct engine_replica *r = &s->replicas[i];
		r->id = i + 1;
		r->counts.n_blocks = 100;
		r->n_workers = 1;
		r->workers[0] = i + 10;
		r->n_map = r->n_host_map = 2;
		r->map = xcalloc(2, sizeof *r->map);
		r->host_map = xcalloc(2, sizeof *r->host_map);
		r->map[0] = (struct engine_cell){50, 25, 25};
		r->map[1] = r->host_map[0] = r->host_map[1] = (struct engine_cell){50, 0, 0};
		s->workers[i].id = i + 10;
		snprintf(s->workers[i].host, sizeof s->workers[i].host, "host%u", i);
		snprintf(s->workers[i].state, sizeof s->workers[i].state, "serving");
	}
	return s;
}

static struct live *live;

static void take(struct engine_status *s, int64_t second)
{
	struct mailbox_snapshot snap = {.status = s, .n_running = 1};
	live_take(live, &svc, &snap, second * 1000000, 1700000000000 + second * 1000, NULL, NULL);
	engine_status_free(s);
}

static json_t *event(bool whole)
{
	struct buf b = {0};
	if (whole)
		live_put_whole(live, NULL, &b);
	else
		live_put_change(live, NULL, &b);
	cr_assert(b.len > 8 && !memcmp(b.p, "data: ", 6) && !strcmp(b.p + b.len - 2, "\n\n"));
	cr_assert_null(memchr(b.p, '\n', b.len - 2));
	json_t *o = json_loadb(b.p + 6, b.len - 8, 0, NULL);
	cr_assert(o, "%s", b.p);
	buf_fini(&b);
	return o;
}

static void begin(void)
{
	live = xcalloc(1, sizeof *live);
	live_init(live, 0xabcdef);
}

static void end(void)
{
	live_fini(live);
	free(live);
}

static json_t *at(const json_t *o, const char *section, size_t i)
{
	return json_array_get(json_object_get(o, section), i);
}

Test(live, a_whole_frame_has_every_section, .init = begin, .fini = end)
{
	take(status_of(2), 1);
	json_t *o = event(true);
	static const char *const names[] = {"history", "service", "replicas", "workers",
					    "jobs",    "steps",   "maps"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		cr_expect(json_object_get(o, names[i]), "%s", names[i]);
	const json_t *service = json_object_get(o, "service");
	cr_expect_str_eq(json_string_value(json_object_get(service, "model")), svc.model_name);
	cr_expect_str_eq(json_string_value(json_object_get(service, "instance")), "0000000000abcdef");
	cr_expect_eq(json_array_size(json_object_get(o, "replicas")), 2);
	cr_expect_str_eq(json_string_value(json_object_get(at(o, "workers", 1), "host")), "host1");
	const json_t *map = json_object_get(json_object_get(o, "maps"), "2");
	char want[3] = {live_cell(50, 25, 25), '.', 0};
	cr_expect_str_eq(json_string_value(json_array_get(map, 0)), want);
	cr_expect_str_eq(json_string_value(json_array_get(map, 1)), "..");
	json_decref(o);
}

Test(live, a_change_holds_only_changed_sections, .init = begin, .fini = end)
{
	take(status_of(2), 1);
	take(status_of(2), 2);
	json_t *o = event(false);
	cr_expect(json_object_size(o) == 2 && json_object_get(o, "now") && json_object_get(o, "steps"));
	json_decref(o);
	struct engine_status *s = status_of(2);
	s->replicas[1].map[1].held = 50;
	snprintf(s->workers[0].state, sizeof s->workers[0].state, "draining");
	take(s, 3);
	o = event(false);
	cr_expect_eq(json_object_size(o), 4);
	cr_expect_eq(json_object_size(json_object_get(o, "maps")), 1);
	cr_expect(json_object_get(json_object_get(o, "maps"), "2"));
	cr_expect_eq(json_array_size(json_object_get(o, "workers")), 2);
	json_decref(o);
}

Test(live, rates_come_from_counters_and_a_restart_gives_no_negative_rate, .init = begin, .fini = end)
{
	uint64_t generated[] = {1000, 1500, 100};
	double want[] = {0, 250, 0};
	for (int i = 0; i < 3; i++) {
		struct engine_status *s = status_of(1);
		s->counts.generated_tokens = generated[i];
		take(s, 2 * i + 1);
		json_t *o = event(false);
		const json_t *now = json_object_get(o, "now");
		cr_expect_eq(json_array_size(now), 1 + LIVE_VALUES);
		cr_expect_eq(json_number_value(json_array_get(now, 1 + LIVE_DECODE_TPS)), want[i]);
		cr_expect_eq(json_number_value(json_array_get(now, 1 + LIVE_HELD)), 0.25);
		cr_expect(json_is_null(json_array_get(now, 1 + LIVE_TTFT_P50)), "nothing was measured");
		json_decref(o);
	}
}

Test(live, latencies_cover_the_last_points, .init = begin, .fini = end)
{
	static struct loghist ttft;
	for (int i = 0; i < 40; i++) {
		struct mailbox_snapshot snap = {.status = status_of(1)};
		if (i == 3)
			loghist_add(&ttft, 8000);
		live_take(live, &svc, &snap, i * 1000000, i * 1000, &ttft, NULL);
		engine_status_free(snap.status);
		json_t *o = event(false);
		const json_t *p50 = json_array_get(json_object_get(o, "now"), 1 + LIVE_TTFT_P50);
		bool within = i >= 3 && i < 3 + LIVE_WINDOW;
		cr_expect_eq(json_is_null(p50), !within, "%d", i);
		cr_expect(!within || fabs(json_number_value(p50) - 8) <= 0.25);
		json_decref(o);
	}
}

Test(live, without_a_status_the_sections_stay, .init = begin, .fini = end)
{
	take(status_of(2), 1);
	take(NULL, 2);
	json_t *o = event(false), *whole = event(true);
	cr_expect_null(json_object_get(o, "replicas"));
	cr_expect_eq(json_array_size(json_object_get(whole, "replicas")), 2);
	json_decref(o);
	json_decref(whole);
}

static size_t rows_of(const char *owner, bool whole)
{
	struct buf b = {0};
	(whole ? live_put_whole : live_put_change)(live, owner, &b);
	json_t *o = json_loadb(b.p + 6, b.len - 8, 0, NULL);
	const json_t *rows = json_object_get(json_object_get(o, "jobs"), "rows");
	size_t n = json_array_size(rows);
	for (size_t i = 0; owner && i < n; i++)
		cr_expect_str_eq(json_string_value(json_object_get(json_array_get(rows, i), "owner")), owner);
	json_decref(o);
	buf_fini(&b);
	return n;
}

Test(live, a_viewer_with_a_key_sees_its_own_jobs, .init = begin, .fini = end)
{
	struct mailbox_snapshot s = {.status = status_of(1)};
	/* A job of the job socket may name any user. */
	s.jobs = json_pack("[{s:s, s:s}, {s:s, s:s}, {s:s}, {s:s, s:s}, {s:s, s:s}]", "job", "1", "owner",
			   "alice", "job", "2", "owner", "bob", "job", "3", "job", "4", "owner", "alice",
			   "job", "5", "user", "alice");
	live_take(live, &svc, &s, 1, 1, NULL, NULL);
	engine_status_free(s.status);
	cr_expect_null(s.jobs);
	for (int whole = 0; whole < 2; whole++) {
		cr_expect_eq(rows_of(NULL, whole), 2);
		cr_expect_eq(rows_of("alice", whole), 2);
		cr_expect_eq(rows_of("bob", whole), 1);
		cr_expect_eq(rows_of("carol", whole), 0);
	}
}

static void expect_counts(const char *owner, int queued, int running, int finished)
{
	struct buf b = {0};
	json_error_t error;
	int got[3];
	live_put_whole(live, owner, &b);
	json_t *o = json_loadb(b.p + 6, b.len - 8, 0, &error);
	cr_assert_eq(json_unpack(json_object_get(o, "jobs"), "{s:i, s:i, s:i}", "queued", &got[0], "running",
				 &got[1], "finished", &got[2]),
		     0);
	cr_expect(got[0] == queued && got[1] == running && got[2] == finished, "%s: %d %d %d", owner, got[0],
		  got[1], got[2]);
	json_decref(o);
	buf_fini(&b);
}

Test(live, a_viewer_with_a_key_gets_the_counts_of_its_own_jobs, .init = begin, .fini = end)
{
	struct mailbox_snapshot s = {
		.status = status_of(1), .n_queued = 10, .n_running = 20, .n_finished = 30};
	s.jobs = json_pack("[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}, {s:s, s:s}, {s:s, s:s}]", "state", "running",
			   "owner", "alice", "state", "queued", "owner", "bob", "state", "done", "owner",
			   "alice", "state", "failed", "owner", "alice", "state", "running", "owner", "bob");
	live_take(live, &svc, &s, 1, 1, NULL, NULL);
	engine_status_free(s.status);
	expect_counts(NULL, 10, 20, 30);
	expect_counts("alice", 0, 1, 2);
	expect_counts("bob", 1, 1, 0);
	expect_counts("carol", 0, 0, 0);
}

Test(live, the_history_has_a_bound_and_is_in_order, .init = begin, .fini = end)
{
	for (int i = 0; i < LIVE_HISTORY + 20; i++)
		take(status_of(1), i);
	json_t *o = event(true);
	const json_t *h = json_object_get(o, "history");
	cr_expect_eq(json_array_size(h), LIVE_HISTORY);
	int64_t last = 0;
	for (size_t i = 0; i < LIVE_HISTORY; i++) {
		int64_t ms = json_integer_value(json_array_get(json_array_get(h, i), 0));
		cr_assert(i == 0 || ms == last + 1000);
		last = ms;
	}
	cr_expect_eq(last, 1700000000000 + (LIVE_HISTORY + 19) * 1000);
	json_decref(o);
}

Test(live, the_most_workers_fit_a_frame, .init = begin, .fini = end)
{
	take(status_of(ENGINE_WORKERS_MAX), 1);
	json_t *o = event(true);
	cr_expect_eq(json_array_size(json_object_get(o, "workers")), ENGINE_WORKERS_MAX);
	cr_expect_eq(json_object_size(json_object_get(o, "maps")), ENGINE_WORKERS_MAX);
	json_decref(o);
}
