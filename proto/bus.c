/* bus.c - encoding of the bus messages' envelope and of the control messages; bus_*.c have the others.
 * Pure. */
#include "proto/bus.h"

#include "base/err.h"
#include "proto/bus_impl.h"

#include <string.h>

enum { ENVELOPE = 3 };

/* ---- encoding ---- */

/* msgpack's write callback: append to a struct buf. */
static int to_buf(void *data, const char *bytes, size_t n)
{
	buf_put(data, bytes, n);
	return 0;
}

void bus_pack_head(msgpack_packer *pk, struct buf *out, enum bus_type type)
{
	buf_clear(out);
	msgpack_packer_init(pk, out, to_buf);
	msgpack_pack_array(pk, ENVELOPE);
	msgpack_pack_uint32(pk, BUS_VERSION);
	msgpack_pack_uint32(pk, type);
}

void bus_pack_bin(msgpack_packer *pk, const void *p, size_t bytes)
{
	msgpack_pack_bin(pk, bytes);
	if (bytes)
		msgpack_pack_bin_body(pk, p, bytes);
}

static void pack_key(msgpack_packer *pk, const char *key)
{
	msgpack_pack_str(pk, strlen(key));
	msgpack_pack_str_body(pk, key, strlen(key));
}

static void pack_str(msgpack_packer *pk, const char *key, const char *value)
{
	pack_key(pk, key);
	pack_key(pk, value);
}

static void pack_uint(msgpack_packer *pk, const char *key, uint64_t value)
{
	pack_key(pk, key);
	msgpack_pack_uint64(pk, value);
}

static void pack_load(msgpack_packer *pk, const struct bus_load *l)
{
	msgpack_pack_map(pk, 23);
	pack_str(pk, "model", l->model);
	pack_str(pk, "compute", l->compute);
	pack_str(pk, "head", l->head);
	pack_str(pk, "kv", l->kv);
	pack_str(pk, "experts_compute", l->experts_compute);
	pack_uint(pk, "epoch", l->epoch);
	pack_uint(pk, "block_size", l->block_size);
	pack_uint(pk, "max_context", l->max_context);
	pack_uint(pk, "max_rows", l->max_rows);
	pack_uint(pk, "max_slots", l->max_slots);
	pack_uint(pk, "max_runs", l->max_runs);
	pack_uint(pk, "kv_bytes", l->kv_bytes);
	pack_uint(pk, "swap_bytes", l->swap_bytes);
	pack_uint(pk, "n_threads", l->n_threads);
	pack_uint(pk, "n_ranks", l->n_ranks ? l->n_ranks : 1);
	pack_uint(pk, "rank", l->rank);
	pack_uint(pk, "n_sharing", l->n_sharing);
	pack_str(pk, "meet", l->rendezvous);
	pack_uint(pk, "ep", l->ep);
	pack_uint(pk, "fast", l->fast);
	pack_str(pk, "model_sketch", l->quick_fingerprint);
	pack_str(pk, "fingerprint", l->fingerprint);
	pack_uint(pk, "offers", l->offers);
}

static void pack_ready(msgpack_packer *pk, const struct bus_ready *r)
{
	msgpack_pack_map(pk, 21);
	pack_key(pk, "windows");
	bus_pack_bin(pk, r->kinds.window, (r->kinds.n ? r->kinds.n : 1) * sizeof *r->kinds.window);
	pack_uint(pk, "send_above", r->stream_above_rows);
	pack_uint(pk, "block_bytes", r->block_bytes);
	pack_uint(pk, "link_bps", r->link_bps);
	pack_uint(pk, "epoch", r->epoch);
	pack_str(pk, "numerics", r->numerics);
	pack_str(pk, "device_name", r->device_name);
	pack_str(pk, "isa", r->isa);
	pack_uint(pk, "n_blocks", r->n_blocks);
	pack_uint(pk, "n_host_blocks", r->n_host_blocks);
	pack_uint(pk, "n_vocab", r->n_vocab);
	pack_uint(pk, "weights_bytes", r->weights_bytes);
	pack_uint(pk, "kv_bytes", r->kv_bytes);
	pack_uint(pk, "stored_bytes", r->stored_bytes);
	pack_uint(pk, "scratch_bytes", r->scratch_bytes);
	pack_uint(pk, "host_bytes", r->host_bytes);
	pack_uint(pk, "host_weights_bytes", r->host_weights_bytes);
	pack_uint(pk, "device_used", r->device_used);
	pack_uint(pk, "device_bytes", r->device_bytes);
	pack_uint(pk, "load_ms", r->load_ms);
	pack_uint(pk, "n_threads", r->n_threads);
}

static void pack_beat(msgpack_packer *pk, const struct bus_beat *b)
{
	const bool loading = b->state == BUS_LOADING, cells = !loading && b->cells.n;
	struct worker_counts counts = b->counts;
	size_t n = loading ? 3 : (b->grammar_bytes > 0) + 4 * (size_t)cells;
	for (size_t i = 0; i < n_worker_counts && !loading; i++)
		n += *worker_count(&counts, i) > 0;
	msgpack_pack_map(pk, 5 + n);
	pack_uint(pk, "epoch", b->epoch);
	pack_uint(pk, "state", b->state);
	pack_uint(pk, "progress", b->progress);
	pack_uint(pk, "expected", b->expected);
	pack_uint(pk, "moves", b->moves);
	for (size_t i = 0; i < n_worker_counts && !loading; i++)
		if (*worker_count(&counts, i))
			pack_uint(pk, worker_count_keys[i], *worker_count(&counts, i));
	if (!loading && b->grammar_bytes)
		pack_uint(pk, "grammar_bytes", b->grammar_bytes);
	if (cells) {
		pack_uint(pk, "cells", b->cells.n_all);
		pack_uint(pk, "cells_experts", b->cells.n_experts);
		pack_uint(pk, "cells_from", b->cells.from);
		pack_key(pk, "cells_rows");
		msgpack_pack_array(pk, b->cells.n);
		for (uint32_t i = 0; i < b->cells.n; i++)
			msgpack_pack_uint64(pk, b->cells.rows[i]);
	}
	if (loading) {
		pack_uint(pk, "doing", b->doing);
		pack_uint(pk, "done", b->done);
		pack_uint(pk, "total", b->total);
	}
}

void bus_encode(const struct bus_msg *m, struct buf *out)
{
	msgpack_packer pk;
	bus_pack_head(&pk, out, m->type);
	switch (m->type) {
	case BUS_HELLO:
		msgpack_pack_map(&pk, 9);
		pack_str(&pk, "compute", m->hello.compute);
		pack_uint(&pk, "loaded", m->hello.loaded);
		pack_str(&pk, "experts_compute", m->hello.experts_compute);
		pack_uint(&pk, "experts_loaded", m->hello.experts_loaded);
		pack_str(&pk, "device", m->hello.device);
		pack_str(&pk, "host", m->hello.host);
		pack_str(&pk, "meet", m->hello.rendezvous);
		pack_str(&pk, "token", m->hello.token);
		pack_key(&pk, "pid");
		msgpack_pack_int64(&pk, m->hello.pid);
		break;
	case BUS_LOAD:
		pack_load(&pk, &m->load);
		break;
	case BUS_READY:
		pack_ready(&pk, &m->ready);
		break;
	case BUS_FAILED:
		msgpack_pack_map(&pk, 2);
		pack_uint(&pk, "epoch", m->failed.epoch);
		pack_str(&pk, "why", m->failed.why);
		break;
	case BUS_BEAT:
		pack_beat(&pk, &m->beat);
		break;
	case BUS_WANT:
		msgpack_pack_map(&pk, 4);
		pack_uint(&pk, "epoch", m->want.epoch);
		pack_uint(&pk, "file", m->want.file);
		pack_uint(&pk, "offset", m->want.offset);
		pack_uint(&pk, "bytes", m->want.bytes);
		break;
	case BUS_AWAKE:
		msgpack_pack_map(&pk, 2);
		pack_uint(&pk, "epoch", m->awake.epoch);
		pack_key(&pk, "slots");
		bus_pack_bin(&pk, m->awake.slots, m->awake.n * sizeof *m->awake.slots);
		break;
	default:
		msgpack_pack_map(&pk, 0);
	}
}

/* ---- decoding ---- */

int bus_read_head(struct cursor *c, const void *bytes, size_t n, struct why *why)
{
	cursor_init(c, bytes, n);
	uint32_t fields = cursor_array(c, "message");
	uint64_t version = cursor_uint(c, "version", UINT32_MAX);
	uint64_t type = cursor_uint(c, "type", UINT32_MAX);
	if (c->bad)
		return err_why(why, -EBADMSG, "%s", c->what);
	if (version != BUS_VERSION)
		return err_why(why, -EPROTO, "the peer speaks version %llu of the bus, this program %d",
			       (unsigned long long)version, BUS_VERSION);
	if (fields != ENVELOPE || type < BUS_HELLO || type > BUS_AWAKE)
		return err_why(why, -EBADMSG, "a message of unknown type %llu", (unsigned long long)type);
	return (int)type;
}

int bus_finish_read(const struct cursor *c, struct why *why)
{
	if (c->bad)
		return err_why(why, -EBADMSG, "%s", c->what);
	if (c->p != c->end)
		return err_why(why, -EBADMSG, "%zu bytes after the message", (size_t)(c->end - c->p));
	return 0;
}

int bus_peek(const void *bytes, size_t n, struct why *why)
{
	struct cursor c;
	return bus_read_head(&c, bytes, n, why);
}

static void read_hello(struct cursor *c, const char *key, struct bus_hello *h)
{
	if (strcmp(key, "device") == 0)
		cursor_str(c, key, h->device, sizeof h->device);
	else if (strcmp(key, "host") == 0)
		cursor_str(c, key, h->host, sizeof h->host);
	else if (strcmp(key, "pid") == 0)
		h->pid = cursor_int(c, key, 0, INT32_MAX);
	else if (strcmp(key, "meet") == 0)
		cursor_str(c, key, h->rendezvous, sizeof h->rendezvous);
	else if (strcmp(key, "token") == 0)
		cursor_str(c, key, h->token, sizeof h->token);
	else if (strcmp(key, "compute") == 0)
		cursor_str(c, key, h->compute, sizeof h->compute);
	else if (strcmp(key, "experts_compute") == 0)
		cursor_str(c, key, h->experts_compute, sizeof h->experts_compute);
	else if (strcmp(key, "loaded") == 0)
		h->loaded = cursor_uint(c, key, 1) == 1;
	else if (strcmp(key, "experts_loaded") == 0)
		h->experts_loaded = cursor_uint(c, key, 1) == 1;
	else
		cursor_skip(c);
}

static void read_load(struct cursor *c, const char *key, struct bus_load *l)
{
	struct {
		const char *key;
		uint32_t *at;
	} words[] = {
		{"block_size", &l->block_size}, {"max_context", &l->max_context},
		{"max_rows", &l->max_rows},     {"max_slots", &l->max_slots},
		{"max_runs", &l->max_runs},     {"n_threads", &l->n_threads},
	};
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strcmp(key, words[i].key) == 0) {
			*words[i].at = (uint32_t)cursor_uint(c, key, INT32_MAX);
			return;
		}
	if (strcmp(key, "model") == 0)
		cursor_str(c, key, l->model, sizeof l->model);
	else if (strcmp(key, "compute") == 0)
		cursor_str(c, key, l->compute, sizeof l->compute);
	else if (strcmp(key, "experts_compute") == 0)
		cursor_str(c, key, l->experts_compute, sizeof l->experts_compute);
	else if (strcmp(key, "head") == 0)
		cursor_str(c, key, l->head, sizeof l->head);
	else if (strcmp(key, "kv") == 0)
		cursor_str(c, key, l->kv, sizeof l->kv);
	else if (strcmp(key, "epoch") == 0)
		l->epoch = cursor_uint(c, key, UINT64_MAX);
	else if (strcmp(key, "n_ranks") == 0)
		l->n_ranks = (uint32_t)cursor_uint(c, key, BUS_RANKS_MAX);
	else if (strcmp(key, "n_sharing") == 0)
		l->n_sharing = (uint32_t)cursor_uint(c, key, BUS_RANKS_MAX);
	else if (strcmp(key, "rank") == 0)
		l->rank = (uint32_t)cursor_uint(c, key, BUS_RANKS_MAX - 1);
	else if (strcmp(key, "meet") == 0)
		cursor_str(c, key, l->rendezvous, sizeof l->rendezvous);
	else if (strcmp(key, "model_sketch") == 0)
		cursor_str(c, key, l->quick_fingerprint, sizeof l->quick_fingerprint);
	else if (strcmp(key, "fingerprint") == 0)
		cursor_str(c, key, l->fingerprint, sizeof l->fingerprint);
	else if (strcmp(key, "offers") == 0)
		l->offers = cursor_uint(c, key, 1) == 1;
	else if (strcmp(key, "ep") == 0)
		l->ep = cursor_uint(c, key, 1) == 1;
	else if (strcmp(key, "fast") == 0)
		l->fast = cursor_uint(c, key, 1) == 1;
	else if (strcmp(key, "kv_bytes") == 0)
		l->kv_bytes = cursor_uint(c, key, INT64_MAX);
	else if (strcmp(key, "swap_bytes") == 0)
		l->swap_bytes = cursor_uint(c, key, INT64_MAX);
	else
		cursor_skip(c);
}

static void read_kinds(struct cursor *c, struct kinds *k)
{
	uint32_t n;
	const void *windows = cursor_bin(c, "windows", sizeof *k->window, KINDS_MAX, &n);
	if (c->bad)
		return;
	if (n == 0)
		cursor_fail(c, "windows: a model has a kind of layers");
	k->n = n;
	if (n)
		memcpy(k->window, windows, n * sizeof *k->window);
}

static void read_ready(struct cursor *c, const char *key, struct bus_ready *r)
{
	struct {
		const char *key;
		uint32_t *at;
	} words[] = {
		{"n_blocks", &r->n_blocks},   {"n_host_blocks", &r->n_host_blocks},
		{"n_vocab", &r->n_vocab},     {"load_ms", &r->load_ms},
		{"n_threads", &r->n_threads}, {"send_above", &r->stream_above_rows},
	};
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strcmp(key, words[i].key) == 0) {
			*words[i].at = (uint32_t)cursor_uint(c, key, INT32_MAX);
			return;
		}
	struct {
		const char *key;
		uint64_t *at;
	} sizes[] = {
		{"weights_bytes", &r->weights_bytes}, {"kv_bytes", &r->kv_bytes},
		{"stored_bytes", &r->stored_bytes},   {"scratch_bytes", &r->scratch_bytes},
		{"host_bytes", &r->host_bytes},       {"device_used", &r->device_used},
		{"device_bytes", &r->device_bytes},   {"block_bytes", &r->block_bytes},
		{"link_bps", &r->link_bps},           {"host_weights_bytes", &r->host_weights_bytes},
	};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		if (strcmp(key, sizes[i].key) == 0) {
			*sizes[i].at = cursor_uint(c, key, INT64_MAX);
			return;
		}
	if (strcmp(key, "windows") == 0)
		read_kinds(c, &r->kinds);
	else if (strcmp(key, "numerics") == 0)
		cursor_str(c, key, r->numerics, sizeof r->numerics);
	else if (strcmp(key, "device_name") == 0)
		cursor_str(c, key, r->device_name, sizeof r->device_name);
	else if (strcmp(key, "isa") == 0)
		cursor_str(c, key, r->isa, sizeof r->isa);
	else if (strcmp(key, "epoch") == 0)
		r->epoch = cursor_uint(c, key, UINT64_MAX);
	else
		cursor_skip(c);
}

static void read_failed(struct cursor *c, const char *key, struct bus_failed *f)
{
	if (strcmp(key, "epoch") == 0)
		f->epoch = cursor_uint(c, key, UINT64_MAX);
	else if (strcmp(key, "why") == 0)
		cursor_str(c, key, f->why, sizeof f->why);
	else
		cursor_skip(c);
}

static void read_cells(struct cursor *c, struct bus_cells *s)
{
	const uint32_t n = cursor_array(c, "cells_rows");
	if (n > BUS_CELLS)
		cursor_fail(c, "cells_rows: too many");
	for (s->n = 0; s->n < n && !c->bad; s->n++)
		s->rows[s->n] = cursor_uint(c, "cells_rows", INT64_MAX);
}

static void read_count(struct cursor *c, const char *key, struct worker_counts *counts)
{
	for (size_t i = 0; i < n_worker_counts; i++)
		if (strcmp(key, worker_count_keys[i]) == 0) {
			*worker_count(counts, i) = cursor_uint(c, key, INT64_MAX);
			return;
		}
	cursor_skip(c);
}

static void read_beat(struct cursor *c, const char *key, struct bus_beat *b)
{
	if (strcmp(key, "epoch") == 0)
		b->epoch = cursor_uint(c, key, UINT64_MAX);
	else if (strcmp(key, "state") == 0)
		b->state = (uint32_t)cursor_uint(c, key, BUS_LEAVING);
	else if (strcmp(key, "progress") == 0)
		b->progress = cursor_uint(c, key, UINT64_MAX);
	else if (strcmp(key, "expected") == 0)
		b->expected = cursor_uint(c, key, UINT64_MAX);
	else if (strcmp(key, "moves") == 0)
		b->moves = cursor_uint(c, key, UINT64_MAX);
	/* a later program may send further values */
	else if (strcmp(key, "doing") == 0)
		b->doing = (uint32_t)cursor_uint(c, key, UINT32_MAX);
	else if (strcmp(key, "done") == 0)
		b->done = cursor_uint(c, key, INT64_MAX);
	else if (strcmp(key, "total") == 0)
		b->total = cursor_uint(c, key, INT64_MAX);
	else if (strcmp(key, "grammar_bytes") == 0)
		b->grammar_bytes = cursor_uint(c, key, INT64_MAX);
	else if (strcmp(key, "cells") == 0)
		b->cells.n_all = (uint32_t)cursor_uint(c, key, BUS_CELLS_MAX);
	else if (strcmp(key, "cells_experts") == 0)
		b->cells.n_experts = (uint32_t)cursor_uint(c, key, BUS_CELLS);
	else if (strcmp(key, "cells_from") == 0)
		b->cells.from = (uint32_t)cursor_uint(c, key, BUS_CELLS_MAX);
	else if (strcmp(key, "cells_rows") == 0)
		read_cells(c, &b->cells);
	else
		read_count(c, key, &b->counts);
}

static void read_want(struct cursor *c, const char *key, struct bus_want *w)
{
	if (strcmp(key, "epoch") == 0)
		w->epoch = cursor_uint(c, key, UINT64_MAX);
	else if (strcmp(key, "file") == 0)
		w->file = (uint32_t)cursor_uint(c, key, BUS_WANT_LIST);
	else if (strcmp(key, "offset") == 0)
		w->offset = cursor_uint(c, key, MANIFEST_BYTES_MAX);
	else if (strcmp(key, "bytes") == 0)
		w->bytes = (uint32_t)cursor_uint(c, key, BUS_CHUNK_MAX);
	else
		cursor_skip(c);
}

static void read_awake(struct cursor *c, const char *key, struct bus_awake *a)
{
	const void *slots;
	if (strcmp(key, "epoch") == 0) {
		a->epoch = cursor_uint(c, key, UINT64_MAX);
	} else if (strcmp(key, "slots") == 0) {
		slots = cursor_bin(c, key, sizeof *a->slots, BUS_AWAKE_MAX, &a->n);
		if (a->n)
			memcpy(a->slots, slots, a->n * sizeof *a->slots);
	} else {
		cursor_skip(c);
	}
}

/* Decode a control message.  Unknown keys are skipped: a later program of the same version may add some. */
int bus_decode(const void *bytes, size_t n, struct bus_msg *out, struct why *why)
{
	struct cursor c;
	int type = bus_read_head(&c, bytes, n, why);
	if (type < 0)
		return type;
	memset(out, 0, sizeof *out);
	out->type = (enum bus_type)type;
	if (type == BUS_PLAN || type == BUS_RESULT || type == BUS_VOCABULARY || type == BUS_FILES ||
	    type == BUS_CHUNK)
		return err_why(why, -EBADMSG,
			       "a plan, a result, a vocabulary or files where another message was due");
	uint32_t keys = cursor_map(&c, "body");
	for (uint32_t i = 0; i < keys && !c.bad; i++) {
		char key[32];
		cursor_str(&c, "key", key, sizeof key);
		if (c.bad)
			break;
		if (type == BUS_HELLO)
			read_hello(&c, key, &out->hello);
		else if (type == BUS_LOAD)
			read_load(&c, key, &out->load);
		else if (type == BUS_READY)
			read_ready(&c, key, &out->ready);
		else if (type == BUS_FAILED)
			read_failed(&c, key, &out->failed);
		else if (type == BUS_BEAT)
			read_beat(&c, key, &out->beat);
		else if (type == BUS_WANT)
			read_want(&c, key, &out->want);
		else if (type == BUS_AWAKE)
			read_awake(&c, key, &out->awake);
		else
			cursor_skip(&c);
	}
	return bus_finish_read(&c, why);
}
