#include "controller/endpoints/live.h"

#include "base/json_write.h"
#include "base/version.h"
#include "proto/counts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const section_names[LIVE_SECTIONS] = {"service", "replicas", "workers", "jobs"};

void live_init(struct live *l, uint64_t instance)
{
	memset(l, 0, sizeof *l);
	snprintf(l->instance, sizeof l->instance, "%016" PRIx64, instance);
}

static void frame_fini(struct live_frame *f)
{
	for (int i = 0; i < LIVE_SECTIONS; i++)
		buf_fini(&f->section[i]);
	buf_fini(&f->steps);
	for (size_t i = 0; i < ENGINE_REPLICAS_MAX; i++) {
		buf_fini(&f->maps[i].device);
		buf_fini(&f->maps[i].host);
	}
}

void live_fini(struct live *l)
{
	frame_fini(&l->frames[0]);
	frame_fini(&l->frames[1]);
	json_decref(l->rows);
}

uint32_t live_cells(size_t n_replicas)
{
	uint32_t each = n_replicas ? LIVE_CELLS / (uint32_t)n_replicas : LIVE_CELLS_ONE;
	return each < LIVE_CELLS_LEAST ? LIVE_CELLS_LEAST : each > LIVE_CELLS_ONE ? LIVE_CELLS_ONE : each;
}

/* Return part / n in eighths, rounded; 0 only for part 0. */
static uint32_t eighths(uint32_t part, uint32_t n)
{
	uint32_t e = (uint32_t)(((uint64_t)part * 16 + n) / (2 * (uint64_t)n));
	return part && !e ? 1 : e;
}

char live_cell(uint32_t n, uint32_t held, uint32_t cached)
{
	if (!n)
		return '.';
	uint32_t h = eighths(held, n), c = eighths(cached, n), before = 0;
	if (h + c > 8) { /* both were rounded up: reduce the larger one */
		if (h > c)
			h = 8 - c;
		else
			c = 8 - h;
	}
	for (uint32_t k = 0; k < h; k++)
		before += 9 - k;
	return (char)('.' + before + c);
}

/* ---- numbers ---- */

static double positive(double x)
{
	return isfinite(x) && x > 0 ? x : 0;
}

static double rate(uint64_t now, uint64_t before, int64_t us)
{
	return us > 0 && now > before ? (double)(now - before) * 1e6 / (double)us : 0;
}

/* Compute quantiles over the last LIVE_WINDOW points, in milliseconds. */
static void latency(struct live_latency *t, const struct loghist *h, size_t nth, double *p50, double *p99)
{
	*p50 = *p99 = -1;
	if (!h)
		return;
	uint64_t *now = t->seen[nth % (LIVE_WINDOW + 1)];
	loghist_read(h, now);
	const uint64_t *since = t->seen[nth < LIVE_WINDOW ? 0 : (nth + 1) % (LIVE_WINDOW + 1)];
	/* The first reading is only the baseline, because the counters started earlier. */
	if (since == now)
		return;
	*p50 = loghist_quantile(now, since, 0.5) / 1000;
	*p99 = loghist_quantile(now, since, 0.99) / 1000;
}

static struct live_point *new_point(struct live *l, int64_t unix_ms)
{
	struct live_point *p = &l->history[l->next_history];
	l->next_history = (l->next_history + 1) % LIVE_HISTORY;
	l->n_history += l->n_history < LIVE_HISTORY;
	*p = (struct live_point){.unix_ms = unix_ms};
	return p;
}

static const struct live_point *last_point(const struct live *l, size_t back)
{
	return &l->history[(l->next_history + LIVE_HISTORY - 1 - back) % LIVE_HISTORY];
}

static void take_point(struct live *l, const struct engine_status *s, int64_t now_us, int64_t unix_ms,
		       const struct loghist *ttft, const struct loghist *itl)
{
	struct live_point *p = new_point(l, unix_ms);
	double *v = p->value;
	latency(&l->ttft, ttft, l->n_readings, &v[LIVE_TTFT_P50], &v[LIVE_TTFT_P99]);
	latency(&l->itl, itl, l->n_readings, &v[LIVE_ITL_P50], &v[LIVE_ITL_P99]);
	l->n_readings++;
	if (!s)
		return;
	if (l->status_us) {
		v[LIVE_PROMPT_TPS] = rate(s->counts.prompt_tokens, l->prompt_tokens, now_us - l->status_us);
		v[LIVE_DECODE_TPS] =
			rate(s->counts.generated_tokens, l->generated_tokens, now_us - l->status_us);
	}
	v[LIVE_RUNNING] = s->counts.n_running;
	v[LIVE_WAITING] = s->counts.n_waiting;
	v[LIVE_SWAPPED] = s->counts.n_swapped;
	if (s->counts.n_blocks) {
		v[LIVE_HELD] = (double)s->counts.n_held / s->counts.n_blocks;
		v[LIVE_CACHED] = (double)s->counts.n_cached / s->counts.n_blocks;
	}
	l->prompt_tokens = s->counts.prompt_tokens;
	l->generated_tokens = s->counts.generated_tokens;
	l->status_us = now_us;
}

/* Append [ms, prompt_tps, ...]; null: not measured. */
static void put_point(const struct live_point *p, struct buf *b)
{
	buf_printf(b, "[%" PRId64, p->unix_ms);
	for (int i = 0; i < LIVE_VALUES; i++)
		if (p->value[i] < 0)
			buf_puts(b, ",null");
		else
			buf_printf(b, ",%.4g", positive(p->value[i]));
	buf_putc(b, ']');
}

/* ---- sections ---- */

static void key(struct buf *b, const char *name)
{
	buf_printf(b, "%s\"%s\":", b->len && b->p[b->len - 1] != '{' ? "," : "", name);
}

static void key_text(struct buf *b, const char *name, const char *value)
{
	key(b, name);
	json_write_str(b, value);
}

static void key_uint(struct buf *b, const char *name, uint64_t value)
{
	key(b, name);
	json_write_uint(b, value);
}

static void key_number(struct buf *b, const char *name, double value)
{
	key(b, name);
	buf_printf(b, "%.6g", positive(value));
}

static void put_service(const struct live *l, const struct service *svc, const struct engine_status *s,
			struct buf *b)
{
	buf_putc(b, '{');
	key_text(b, "instance", l->instance);
	key_text(b, "version", QUERN_VERSION);
	key_text(b, "model", svc->model_name);
	key_uint(b, "started", svc->started_unix > 0 ? (uint64_t)svc->started_unix : 0);
	key(b, "ready");
	buf_puts(b, s->ready ? "true" : "false");
	key(b, "chat");
	buf_puts(b, svc->chat ? "true" : "false");
	key_uint(b, "max_context", s->max_context);
	key_uint(b, "model_context", svc->model_context);
	key_uint(b, "block_size", s->block_size);
	key_text(b, "note", s->note);
	buf_putc(b, '}');
}

static void put_replica(const struct engine_replica *r, struct buf *b)
{
	buf_putc(b, '{');
	key_uint(b, "id", r->id);
	key_text(b, "state", r->state);
	key_uint(b, "tp", r->tp);
	key(b, "workers");
	buf_putc(b, '[');
	for (uint32_t i = 0; i < r->n_workers && i < ENGINE_WORKERS_MAX; i++)
		buf_printf(b, "%s%" PRIu64, i ? "," : "", r->workers[i]);
	buf_putc(b, ']');
	key_text(b, "numerics", r->numerics);
	key_uint(b, "max_context", r->max_context);
	for (const struct count_row *f = counts_rows; f < counts_rows + n_counts_rows; f++)
		if (f->live && f->type == COUNT_double)
			key_number(b, f->live, count_number(f, &r->counts));
		else if (f->live)
			key_uint(b, f->live, count_uint(f, &r->counts));
	const struct counts *c = &r->counts;
	key(b, "blocks");
	buf_printf(b, "[%u,%u,%u]", c->n_blocks, c->n_held, c->n_cached);
	key(b, "host_blocks");
	buf_printf(b, "[%u,%u]", c->n_host_blocks,
		   c->n_host_blocks > c->n_host_free ? c->n_host_blocks - c->n_host_free : 0);
	buf_putc(b, '}');
}

static void put_worker(const struct engine_worker *w, struct buf *b)
{
	buf_putc(b, '{');
	key_uint(b, "id", w->id);
	key_uint(b, "replica", w->replica);
	key_uint(b, "rank", w->rank);
	key_text(b, "state", w->state);
	key_number(b, "progress", w->progress / 1000.0);
	key_text(b, "host", w->host);
	key_uint(b, "pid", w->pid > 0 ? (uint64_t)w->pid : 0);
	key_text(b, "device", w->device);
	key_text(b, "device_name", w->device_name);
	key_text(b, "isa", w->isa);
	key_uint(b, "weights_bytes", w->weights_bytes);
	key_uint(b, "kv_bytes", w->kv_bytes);
	key_uint(b, "threads", w->n_threads);
	buf_putc(b, '}');
}

static void put_cells(const struct engine_cell *c, uint32_t n, struct buf *out)
{
	for (uint32_t i = 0; i < n; i++)
		buf_putc(out, live_cell(c[i].n, c[i].held, c[i].cached));
}

static void take_maps(const struct engine_status *s, struct live_frame *f)
{
	f->n_maps = 0;
	for (uint32_t i = 0; i < s->n_replicas && i < ENGINE_REPLICAS_MAX; i++) {
		const struct engine_replica *r = &s->replicas[i];
		struct live_map *m = &f->maps[f->n_maps];
		if (!r->map)
			continue;
		m->replica = r->id;
		buf_clear(&m->device);
		buf_clear(&m->host);
		put_cells(r->map, r->n_map, &m->device);
		put_cells(r->host_map, r->n_host_map, &m->host);
		f->n_maps++;
	}
}

static void take_engine(const struct live *l, const struct service *svc, const struct engine_status *s,
			struct live_frame *f)
{
	put_service(l, svc, s, &f->section[LIVE_SERVICE]);
	struct buf *b = &f->section[LIVE_REPLICAS];
	buf_putc(b, '[');
	for (uint32_t i = 0; i < s->n_replicas && i < ENGINE_REPLICAS_MAX; i++) {
		if (i)
			buf_putc(b, ',');
		put_replica(&s->replicas[i], b);
	}
	buf_putc(b, ']');
	b = &f->section[LIVE_WORKERS];
	buf_putc(b, '[');
	buf_putc(&f->steps, '[');
	for (uint32_t i = 0; i < s->n_workers && i < ENGINE_WORKERS_MAX; i++) {
		const struct engine_worker *w = &s->workers[i];
		if (i)
			buf_putc(b, ',');
		put_worker(w, b);
		buf_printf(&f->steps, "%s[%" PRIu64 ",%" PRIu64 ",%u]", i ? "," : "", w->id, w->steps,
			   w->step_us);
	}
	buf_putc(b, ']');
	buf_putc(&f->steps, ']');
	take_maps(s, f);
}

static void copy(struct buf *to, const struct buf *from)
{
	buf_clear(to);
	if (from->len)
		buf_put(to, from->p, from->len);
}

/* Without a status, copy the engine's sections from the previous frame. */
static void keep_engine(const struct live_frame *before, struct live_frame *f)
{
	copy(&f->section[LIVE_SERVICE], &before->section[LIVE_SERVICE]);
	copy(&f->section[LIVE_REPLICAS], &before->section[LIVE_REPLICAS]);
	copy(&f->section[LIVE_WORKERS], &before->section[LIVE_WORKERS]);
	copy(&f->steps, &before->steps);
	f->n_maps = before->n_maps;
	for (size_t i = 0; i < before->n_maps; i++) {
		f->maps[i].replica = before->maps[i].replica;
		copy(&f->maps[i].device, &before->maps[i].device);
		copy(&f->maps[i].host, &before->maps[i].host);
	}
}

static bool is_of(const json_t *row, const char *owner)
{
	const char *of = json_string_value(json_object_get(row, "owner"));
	return owner ? of && strcmp(of, owner) == 0 : !of;
}

static void put_rows(const json_t *rows, const char *owner, struct buf *b)
{
	size_t shown = 0;
	for (size_t i = 0; i < json_array_size(rows) && shown < LIVE_JOBS; i++) {
		const json_t *row = json_array_get(rows, i);
		char *text = is_of(row, owner) ? json_dumps(row, JSON_COMPACT) : NULL;
		if (!text)
			continue;
		if (shown++)
			buf_putc(b, ',');
		buf_puts(b, text);
		free(text);
	}
}

/* Append the rows that the owner may see, and their counts. */
static void put_jobs(const struct live *l, const char *owner, struct buf *b)
{
	uint32_t queued = l->n_queued, running = l->n_running, finished = l->n_finished;
	if (owner) {
		queued = running = finished = 0;
		for (size_t i = 0; i < json_array_size(l->rows); i++) {
			const json_t *row = json_array_get(l->rows, i);
			const char *state = json_string_value(json_object_get(row, "state"));
			if (!state || !is_of(row, owner))
				continue;
			queued += strcmp(state, "queued") == 0;
			running += strcmp(state, "running") == 0;
			finished += strcmp(state, "done") == 0 || strcmp(state, "failed") == 0;
		}
	}
	buf_printf(b, "{\"queued\":%u,\"running\":%u,\"finished\":%u,\"rows\":[", queued, running, finished);
	put_rows(l->rows, owner, b);
	buf_puts(b, "]}");
}

void live_take(struct live *l, const struct service *svc, struct mailbox_snapshot *s, int64_t now_us,
	       int64_t unix_ms, const struct loghist *ttft, const struct loghist *itl)
{
	const struct live_frame *before = &l->frames[l->last];
	struct live_frame *f = &l->frames[l->last ^= 1];
	for (int i = 0; i < LIVE_SECTIONS; i++)
		buf_clear(&f->section[i]);
	buf_clear(&f->steps);
	take_point(l, s->status, now_us, unix_ms, ttft, itl);
	if (s->status)
		take_engine(l, svc, s->status, f);
	else
		keep_engine(before, f);
	json_decref(l->rows);
	l->rows = s->jobs;
	s->jobs = NULL;
	l->n_queued = s->n_queued;
	l->n_running = s->n_running;
	l->n_finished = s->n_finished;
	put_jobs(l, NULL, &f->section[LIVE_JOBS_TABLE]);
}

/* ---- events ---- */

static bool same(const struct buf *a, const struct buf *b)
{
	return a->len == b->len && (!a->len || memcmp(a->p, b->p, a->len) == 0);
}

static const struct live_map *find_map(const struct live_frame *f, uint64_t replica)
{
	for (size_t i = 0; i < f->n_maps; i++)
		if (f->maps[i].replica == replica)
			return &f->maps[i];
	return NULL;
}

static void put_section(const char *name, const struct buf *json, struct buf *out)
{
	if (!json->len)
		return;
	key(out, name);
	buf_put(out, json->p, json->len);
}

/* Append the maps that changed after `since`; NULL: all maps. */
static void put_maps(const struct live_frame *f, const struct live_frame *since, struct buf *out)
{
	bool first = true;
	for (size_t i = 0; i < f->n_maps; i++) {
		const struct live_map *m = &f->maps[i], *old = since ? find_map(since, m->replica) : NULL;
		if (old && same(&m->device, &old->device) && same(&m->host, &old->host))
			continue;
		if (first)
			key(out, "maps");
		buf_printf(out, "%s\"%" PRIu64 "\":[\"", first ? "{" : ",", m->replica);
		buf_put(out, m->device.p ? m->device.p : "", m->device.len);
		buf_puts(out, "\",\"");
		buf_put(out, m->host.p ? m->host.p : "", m->host.len);
		buf_puts(out, "\"]");
		first = false;
	}
	if (!first)
		buf_putc(out, '}');
}

static void put_event(const struct live *l, const struct live_frame *since, const char *owner,
		      struct buf *out)
{
	const struct live_frame *f = &l->frames[l->last];
	buf_puts(out, "data: {");
	if (!since && l->n_history) {
		key(out, "history");
		for (size_t i = l->n_history; i-- > 0;) {
			buf_putc(out, i + 1 == l->n_history ? '[' : ',');
			put_point(last_point(l, i), out);
		}
		buf_putc(out, ']');
	} else if (l->n_history) {
		key(out, "now");
		put_point(last_point(l, 0), out);
	}
	for (int i = 0; i < LIVE_SECTIONS; i++)
		if (owner && i == LIVE_JOBS_TABLE) {
			key(out, section_names[i]);
			put_jobs(l, owner, out);
		} else if (!since || !same(&f->section[i], &since->section[i])) {
			put_section(section_names[i], &f->section[i], out);
		}
	put_section("steps", &f->steps, out);
	put_maps(f, since, out);
	buf_puts(out, "}\n\n");
}

void live_put_whole(const struct live *l, const char *owner, struct buf *out)
{
	put_event(l, NULL, owner, out);
}

void live_put_change(const struct live *l, const char *owner, struct buf *out)
{
	put_event(l, &l->frames[l->last ^ 1], owner, out);
}
