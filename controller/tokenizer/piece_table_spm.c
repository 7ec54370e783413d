/* SentencePiece's tokenizer.model: a ModelProto message of Protocol Buffers (sentencepiece_model.proto),
 * from which the pieces, the normalization flags and the kind of model are read. Bytes are not trusted: a
 * field that extends beyond its message is an error with its offset. */
#include "controller/tokenizer/piece_table.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

struct reader {
	const uint8_t *p, *end;
	const uint8_t *begin, *file_end; /* errors give offsets from begin */
	struct why *why;
};

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* A field of a message: its number, wire type and value. */
struct field {
	uint64_t number;
	unsigned wire;
	uint64_t value;   /* WIRE_VARINT, WIRE_32, WIRE_64 */
	const uint8_t *p; /* WIRE_BYTES */
	size_t n;
};

static int fail(const struct reader *r, const char *what)
{
	return err_why(r->why, -EINVAL, "byte %zu: %s", (size_t)(r->p - r->begin), what);
}

static int read_varint(struct reader *r, uint64_t *out)
{
	*out = 0;
	for (unsigned shift = 0; shift < 64; shift += 7) {
		if (r->p == r->end)
			return fail(r,
				    "the file ends within a number; was the download or copy interrupted?");
		uint8_t b = *r->p++;
		*out |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return 0;
	}
	return fail(r, "a number is longer than 64 bits");
}

static int read_fixed(struct reader *r, size_t bytes, uint64_t *out)
{
	*out = 0;
	if ((size_t)(r->end - r->p) < bytes)
		return fail(r, "the file ends within a number; was the download or copy interrupted?");
	memcpy(out, r->p, bytes); /* little-endian, like this machine */
	r->p += bytes;
	return 0;
}

static int next_field(struct reader *r, struct field *f)
{
	uint64_t tag, n;
	int rc = read_varint(r, &tag);
	if (rc)
		return rc;
	*f = (struct field){.number = tag >> 3, .wire = tag & 7};
	switch (f->wire) {
	case WIRE_VARINT:
		return read_varint(r, &f->value);
	case WIRE_32:
		return read_fixed(r, 4, &f->value);
	case WIRE_64:
		return read_fixed(r, 8, &f->value);
	case WIRE_BYTES:
		rc = read_varint(r, &n);
		if (rc)
			return rc;
		if (n > (uint64_t)(r->end - r->p))
			return r->end == r->file_end ? fail(r, "a field reaches beyond the end of the file; "
							       "was the download or "
							       "copy interrupted?")
						     : fail(r, "a field reaches beyond its message");
		f->p = r->p;
		f->n = (size_t)n;
		r->p += n;
		return 0;
	default:
		return fail(r, "not a field of a protocol buffer");
	}
}

typedef int (*on_field)(const struct reader *r, const struct field *f, struct piece_table *pt);

static int each_field(const struct reader *outer, const uint8_t *p, size_t n, on_field on,
		      struct piece_table *pt)
{
	struct reader r = *outer;
	r.p = p;
	r.end = p + n;
	while (r.p < r.end) {
		struct field f;
		int rc = next_field(&r, &f);
		if (rc == 0)
			rc = on(&r, &f, pt);
		if (rc)
			return rc;
	}
	return 0;
}

static int on_piece_field(const struct reader *r, const struct field *f, struct piece_table *pt)
{
	struct piece_row *row = &pt->rows[pt->n - 1];
	if (f->number == 1 && f->wire == WIRE_BYTES) {
		row->p = (const char *)f->p;
		row->n = f->n;
	} else if (f->number == 2 && f->wire == WIRE_32) {
		memcpy(&row->score, &f->value, 4);
	} else if (f->number == 3 && f->wire == WIRE_VARINT) {
		row->type = f->value > 6 ? -1 : (int)f->value;
	} else if (f->number >= 1 && f->number <= 3) {
		return fail(r, "a field of a piece has another type");
	}
	return 0;
}

/* Settings of the trainer; the names of pieces are looked up when all pieces are known. */
enum { MODEL_UNIGRAM = 1, MODEL_BPE, MODEL_WORD, MODEL_CHAR };

static int on_trainer_field(const struct reader *r, const struct field *f, struct piece_table *pt)
{
	static const char *const names[] = {[MODEL_WORD] = "WORD", [MODEL_CHAR] = "CHAR"};
	if (f->number == 3) {
		if (f->wire != WIRE_VARINT || f->value < MODEL_UNIGRAM || f->value > MODEL_CHAR)
			return fail(r, "an unknown kind of model");
		if (f->value > MODEL_BPE)
			return err_why(
				r->why, -EINVAL,
				"a model of SentencePiece's kind %s is not supported, only UNIGRAM and BPE",
				names[f->value]);
		pt->model = f->value == MODEL_BPE ? TABLE_SCORE_BPE : TABLE_UNIGRAM;
	}
	if (f->number == 24 && f->wire == WIRE_VARINT)
		pt->whitespace_suffix = f->value != 0;
	if (f->number == 35 && f->wire == WIRE_VARINT)
		pt->byte_fallback = f->value != 0;
	return 0;
}

static int on_normalizer_field(const struct reader *r, const struct field *f, struct piece_table *pt)
{
	(void)r;
	if (f->number == 2 && f->wire == WIRE_BYTES) {
		pt->charsmap = (const char *)f->p;
		pt->charsmap_n = f->n;
	} else if (f->number == 3 && f->wire == WIRE_VARINT) {
		pt->add_dummy_prefix = f->value != 0;
	} else if (f->number == 4 && f->wire == WIRE_VARINT) {
		pt->remove_extra_whitespaces = f->value != 0;
	} else if (f->number == 5 && f->wire == WIRE_VARINT) {
		pt->escape_whitespaces = f->value != 0;
	}
	return 0;
}

static int on_model_field(const struct reader *r, const struct field *f, struct piece_table *pt)
{
	static const struct {
		on_field on;
	} parts[] = {{NULL}, {on_piece_field}, {on_trainer_field}, {on_normalizer_field}};
	if (f->number < 1 || f->number > 3)
		return 0;
	if (f->wire != WIRE_BYTES)
		return fail(r, "a part of the model is not a message");
	if (f->number == 1)
		piece_table_add(pt, "", 0, 0, ROW_NORMAL);
	return each_field(r, f->p, f->n, parts[f->number].on, pt);
}

/* The names that the trainer's settings give to <s> and </s>. */
struct names {
	const uint8_t *p[2];
	size_t n[2];
};

static int64_t control_named(const struct piece_table *pt, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < pt->n; i++)
		if (pt->rows[i].type == ROW_CONTROL && pt->rows[i].n == n && memcmp(pt->rows[i].p, p, n) == 0)
			return (int64_t)i;
	return -1;
}

static void find_names(const struct reader *whole, struct names *names)
{
	struct reader r = *whole;
	struct field f, g;
	while (r.p < r.end && next_field(&r, &f) == 0) {
		if (f.number != 2 || f.wire != WIRE_BYTES)
			continue;
		struct reader in = r;
		in.p = f.p;
		in.end = f.p + f.n;
		while (in.p < in.end && next_field(&in, &g) == 0) {
			if ((g.number == 46 || g.number == 47) && g.wire == WIRE_BYTES) {
				names->p[g.number - 46] = g.p;
				names->n[g.number - 46] = g.n;
			}
		}
	}
}

/* Require a normalizer_spec, which SentencePiece writes after the pieces: without it, the file may have been
 * cut between two pieces. */
static int check_end(const struct reader *whole)
{
	struct reader r = *whole;
	struct field f;
	while (r.p < r.end && next_field(&r, &f) == 0)
		if (f.number == 3)
			return 0;
	r.p = r.end;
	return fail(&r, "the file ends after its pieces, without a normalizer_spec; was the download or copy "
			"interrupted?");
}

static int find_special(const struct reader *whole, struct piece_table *pt)
{
	struct names names = {{(const uint8_t *)"<s>", (const uint8_t *)"</s>"}, {3, 4}};
	find_names(whole, &names);
	for (size_t i = 0; i < pt->n; i++) {
		if (pt->rows[i].type != ROW_UNKNOWN)
			continue;
		if (pt->unk >= 0)
			return err_why(whole->why, -EINVAL, "pieces %lld and %zu are both the unknown one",
				       (long long)pt->unk, i);
		pt->unk = (int64_t)i;
	}
	if (pt->unk < 0)
		return err_why(whole->why, -EINVAL, "no piece is the unknown one");
	pt->bos = control_named(pt, names.p[0], names.n[0]);
	pt->eos = control_named(pt, names.p[1], names.n[1]);
	return 0;
}

int spm_file_read(const void *data, size_t n, struct piece_table *pt, struct why *why)
{
	const uint8_t *p = n ? data : (const uint8_t *)"";
	struct reader r = {p, p + n, p, p + n, why};
	pt->model = TABLE_UNIGRAM;
	int rc = each_field(&r, p, n, on_model_field, pt);
	if (rc && pt->n)
		rc = err_prefix(why, rc, "after piece %zu", pt->n - 1);
	if (rc == 0 && pt->n == 0)
		rc = err_why(why, -EINVAL, "no pieces: not a SentencePiece model");
	if (rc == 0)
		rc = find_special(&r, pt);
	if (rc == 0)
		rc = check_end(&r);
	pt->add_bos = true; /* as transformers does if tokenizer_config.json does not specify it */
	return rc;
}
