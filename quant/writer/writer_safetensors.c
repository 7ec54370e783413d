/* writer_safetensors.c - directories with safetensors: one file, or shards with an index. */
#include "quant/writer/writer_impl.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json_write.h"
#include "formats/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool type_of(const char *name, const char **own, uint32_t *code, int *values, int *bytes)
{
	for (enum st_dtype t = ST_BOOL; t <= ST_U64; t++) {
		if (strcmp(st_dtype_name(t), name) != 0)
			continue;
		*own = st_dtype_name(t);
		*code = (uint32_t)t;
		*values = 1;
		*bytes = st_dtype_bytes(t);
		return true;
	}
	return false;
}

static uint64_t bytes_of(const struct writer_slot *s)
{
	return (uint64_t)s->n_rows * s->row_bytes;
}

static void put_entry(struct buf *b, const struct writer_slot *s, uint64_t at)
{
	json_write_str(b, s->name);
	buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", s->type);
	for (int d = 0; d < s->n_dims; d++)
		buf_printf(b, "%s%" PRId64, d ? "," : "", s->shape[d]);
	buf_printf(b, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at, at + bytes_of(s));
}

/* Lay out the file of slots n0 .. n1 - 1: its header, and the tensors' offsets. */
static void lay_out_file(struct writer *w, struct writer_out *o, size_t n0, size_t n1)
{
	struct buf json = {0};
	uint64_t at = 0;
	buf_puts(&json, "{\"__metadata__\":{\"format\":\"pt\"}");
	for (size_t i = n0; i < n1; i++) {
		buf_putc(&json, ',');
		put_entry(&json, &w->slots[i], at);
		at += bytes_of(&w->slots[i]);
	}
	buf_putc(&json, '}');
	while (json.len % 8)
		buf_putc(&json, ' ');
	const uint64_t n = json.len;
	buf_put(&o->head, &n, sizeof n);
	buf_put(&o->head, json.p, json.len);
	buf_fini(&json);
	o->bytes = o->head.len + at;
	at = o->head.len;
	for (size_t i = n0; i < n1; i++) {
		w->slots[i].at = at;
		at += bytes_of(&w->slots[i]);
	}
}

/* Assign each slot a file; return the number of files.  A tensor that does not fit starts the next file. */
static int split(struct writer *w)
{
	uint64_t in_file = 0;
	int file = 0;
	for (size_t i = 0; i < w->n_slots; i++) {
		const uint64_t bytes = bytes_of(&w->slots[i]);
		if (in_file && in_file + bytes > (uint64_t)w->shard_bytes) {
			in_file = 0;
			file++;
		}
		w->slots[i].file = file;
		in_file += bytes;
	}
	return file + 1;
}

static int write_index(struct writer *w, struct why *why)
{
	struct buf b = {0};
	buf_printf(&b, "{\"metadata\":{\"total_size\":%" PRId64 "},\"weight_map\":{", writer_bytes(w));
	for (size_t i = 0; i < w->n_slots; i++) {
		buf_puts(&b, i ? ",\n" : "\n");
		json_write_str(&b, w->slots[i].name);
		buf_putc(&b, ':');
		json_write_str(&b, w->outs[w->slots[i].file].name);
	}
	buf_puts(&b, "\n}}\n");
	const int rc = writer_file(w, "model.safetensors.index.json", b.p, b.len, why);
	buf_fini(&b);
	return rc;
}

static int lay_out(struct writer *w, struct why *why)
{
	const int n_files = split(w);
	if (n_files > ST_SHARDS_MAX)
		return err_why(why, -EINVAL, "%d shards; at most %d are possible: larger ones needed",
			       n_files, ST_SHARDS_MAX);
	size_t n0 = 0;
	for (int f = 0; f < n_files; f++) {
		char name[64] = "model.safetensors";
		size_t n1 = n0;
		if (n_files > 1)
			snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", f + 1, n_files);
		while (n1 < w->n_slots && w->slots[n1].file == f)
			n1++;
		const int i = writer_out_new(w, name);
		lay_out_file(w, &w->outs[i], n0, n1);
		n0 = n1;
	}
	return n_files > 1 ? write_index(w, why) : 0;
}

const struct writer_backend writer_safetensors = {.name = "safetensors", .type = type_of, .lay_out = lay_out};
