#include "quant/convert/hf_files.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/json_write.h"
#include "controller/tokenizer/piece_table.h"
#include "formats/gguf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- tokenizer.json, in the format of the package tokenizers ---- */

static bool is_added(const struct piece_row *r)
{
	return r->type == ROW_CONTROL || r->type == ROW_USER_DEFINED || r->type == ROW_UNKNOWN;
}

static void put_added(struct buf *b, const struct piece_table *pt)
{
	bool first = true;
	buf_puts(b, "\"added_tokens\": [");
	for (size_t i = 0; i < pt->n; i++) {
		const struct piece_row *r = &pt->rows[i];
		if (!is_added(r))
			continue;
		buf_printf(b, "%s\n    {\"id\": %zu, \"content\": ", first ? "" : ",", i);
		json_write_string(b, r->p, r->n);
		buf_printf(
			b,
			", \"single_word\": false, \"lstrip\": false, \"rstrip\": %s, \"normalized\": false, "
			"\"special\": %s}",
			r->rstrip ? "true" : "false", r->type == ROW_USER_DEFINED ? "false" : "true");
		first = false;
	}
	buf_puts(b, "],\n");
}

static void put_steps(struct buf *b, const struct piece_table *pt)
{
	buf_printf(b, "\"normalizer\": %s,\n\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [",
		   pt->nfc ? "{\"type\": \"NFC\"}" : "null");
	for (int i = 0; i < pt->n_splits; i++) {
		buf_puts(b, "\n    {\"type\": \"Split\", \"pattern\": {\"Regex\": ");
		json_write_str(b, pt->splits[i]);
		buf_puts(b, "}, \"behavior\": \"Isolated\", \"invert\": false},");
	}
	buf_puts(b, "\n    {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, "
		    "\"use_regex\": false}]},\n");
}

static void put_special(struct buf *b, const struct piece_table *pt, int64_t id)
{
	buf_puts(b, "{\"SpecialToken\": {\"id\": ");
	json_write_string(b, pt->rows[id].p, pt->rows[id].n);
	buf_puts(b, ", \"type_id\": 0}}");
}

static void put_special_id(struct buf *b, const struct piece_table *pt, int64_t id)
{
	json_write_string(b, pt->rows[id].p, pt->rows[id].n);
	buf_puts(b, ": {\"id\": ");
	json_write_string(b, pt->rows[id].p, pt->rows[id].n);
	buf_printf(b, ", \"ids\": [%" PRId64 "], \"tokens\": [", id);
	json_write_string(b, pt->rows[id].p, pt->rows[id].n);
	buf_puts(b, "]}");
}

static void put_template(struct buf *b, const struct piece_table *pt)
{
	const bool bos = pt->add_bos && pt->bos >= 0, eos = pt->add_eos && pt->eos >= 0;
	static const char sequence[] = "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}";
	if (!bos && !eos) {
		buf_puts(b, "\"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
			    "\"trim_offsets\": false, \"use_regex\": true},\n");
		return;
	}
	buf_puts(b, "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [");
	if (bos)
		put_special(b, pt, pt->bos);
	buf_printf(b, "%s%s%s", bos ? ", " : "", sequence, eos ? ", " : "");
	if (eos)
		put_special(b, pt, pt->eos);
	buf_printf(
		b,
		"], \"pair\": [%s, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], \"special_tokens\": {",
		sequence);
	if (bos)
		put_special_id(b, pt, pt->bos);
	if (bos && eos)
		buf_puts(b, ", ");
	if (eos)
		put_special_id(b, pt, pt->eos);
	buf_puts(b, "}},\n");
}

static void put_model(struct buf *b, const struct piece_table *pt)
{
	bool first = true;
	buf_printf(
		b,
		"\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
		"\"use_regex\": true},\n\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": "
		"null, "
		"\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, "
		"\"byte_fallback\": false, \"ignore_merges\": %s, \"vocab\": {",
		pt->ignore_merges ? "true" : "false");
	for (size_t i = 0; i < pt->n; i++) {
		if (is_added(&pt->rows[i]) || pt->rows[i].type == ROW_UNUSED)
			continue;
		buf_puts(b, first ? "\n" : ",\n");
		json_write_string(b, pt->rows[i].p, pt->rows[i].n);
		buf_printf(b, ": %zu", i);
		first = false;
	}
	buf_puts(b, "},\n\"merges\": [");
	for (size_t i = 0; i < pt->n_merges; i++) {
		buf_puts(b, i ? ",\n" : "\n");
		json_write_string(b, pt->merges[i].p, pt->merges[i].n);
	}
	buf_puts(b, "]}");
}

static int write_json(struct writer *w, const struct piece_table *pt, struct why *why)
{
	struct buf b = {0};
	buf_puts(&b, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n");
	put_added(&b, pt);
	put_steps(&b, pt);
	put_template(&b, pt);
	put_model(&b, pt);
	buf_puts(&b, "}\n");
	const int rc = writer_file(w, "tokenizer.json", b.p, b.len, why);
	buf_fini(&b);
	return rc;
}

/* ---- tokenizer.model: SentencePiece's message ModelProto ---- */

static void put_varint(struct buf *b, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		buf_putc(b, (char)(v | 0x80));
	buf_putc(b, (char)v);
}

static void put_number(struct buf *b, unsigned field, int64_t v)
{
	put_varint(b, field << 3);
	put_varint(b, (uint64_t)v);
}

static void put_bytes(struct buf *b, unsigned field, const void *p, size_t n)
{
	put_varint(b, field << 3 | 2);
	put_varint(b, n);
	buf_put(b, p, n);
}

static int write_spm(struct writer *w, const struct piece_table *pt, struct why *why)
{
	struct buf b = {0}, part = {0};
	for (size_t i = 0; i < pt->n; i++) {
		const struct piece_row *r = &pt->rows[i];
		buf_clear(&part);
		put_bytes(&part, 1, r->p, r->n);
		put_varint(&part, 2 << 3 | 5);
		buf_put(&part, &r->score, sizeof r->score);
		if (r->type != ROW_NORMAL)
			put_number(&part, 3, r->type);
		put_bytes(&b, 1, part.p, part.len);
	}
	buf_clear(&part);
	put_number(&part, 3, pt->model == TABLE_UNIGRAM ? 1 : 2);
	put_number(&part, 4, (int64_t)pt->n);
	put_number(&part, 35, pt->byte_fallback);
	put_number(&part, 40, pt->unk);
	put_number(&part, 41, pt->bos);
	put_number(&part, 42, pt->eos);
	put_number(&part, 43, -1);
	put_bytes(&b, 2, part.p, part.len);
	buf_clear(&part);
	put_bytes(&part, 1, "identity", 8);
	if (pt->charsmap_n)
		put_bytes(&part, 2, pt->charsmap, pt->charsmap_n);
	put_number(&part, 3, pt->add_dummy_prefix);
	put_number(&part, 4, pt->remove_extra_whitespaces);
	put_number(&part, 5, pt->escape_whitespaces);
	put_bytes(&b, 3, part.p, part.len);
	const int rc = writer_file(w, "tokenizer.model", b.p, b.len, why);
	buf_fini(&part);
	buf_fini(&b);
	return rc;
}

/* ---- tokenizer_config.json ---- */

static void set_token(json_t *o, const char *key, const struct piece_table *pt, int64_t id)
{
	if (id >= 0 && (size_t)id < pt->n)
		json_object_set_new(o, key, json_stringn(pt->rows[id].p, pt->rows[id].n));
}

static int write_config(struct writer *w, const struct gguf *g, const struct piece_table *pt,
			const struct model_config *c, struct why *why)
{
	struct gguf_string text;
	json_t *o = json_object();
	set_token(o, "bos_token", pt, pt->bos);
	set_token(o, "eos_token", pt, pt->eos);
	if (pt->model != TABLE_BYTE_BPE)
		set_token(o, "unk_token", pt, pt->unk);
	json_object_set_new(o, "add_bos_token", json_boolean(pt->add_bos));
	json_object_set_new(o, "add_eos_token", json_boolean(pt->add_eos));
	json_object_set_new(o, "model_max_length", json_integer(c->max_position));
	json_object_set_new(o, "tokenizer_class",
			    json_string(pt->model == TABLE_BYTE_BPE    ? "PreTrainedTokenizerFast"
					: pt->model == TABLE_SCORE_BPE ? "LlamaTokenizer"
								       : "T5Tokenizer"));
	if (gguf_find_string(g, "tokenizer.chat_template", &text, NULL) == 0)
		json_object_set_new(o, "chat_template", json_stringn(text.p, text.n));
	const int rc = writer_json(w, "tokenizer_config.json", o, why);
	json_decref(o);
	return rc;
}

int hf_vocab_files(struct writer *w, const struct gguf *g, const struct model_config *c, struct why *why)
{
	struct piece_table pt;
	piece_table_init(&pt);
	int rc = gguf_vocab_read(g, &pt, why);
	if (!rc)
		rc = pt.model == TABLE_BYTE_BPE ? write_json(w, &pt, why) : write_spm(w, &pt, why);
	if (!rc)
		rc = write_config(w, g, &pt, c, why);
	piece_table_fini(&pt);
	return rc == -ENOENT ? 0 : rc;
}
