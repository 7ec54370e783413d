#include "cli/commands.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/option_table.h"
#include "cli/command.h"
#include "cli/models/cache.h"
#include "cli/terminal/term.h"
#include "controller/tokenizer/detok.h"
#include "controller/tokenizer/tokenizer.h"
#include "formats/model_kind.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_MAX = 1 << 30 };

static const struct usage usage = {
	.name = "tokenize",
	.words = "MODEL",
	.about = "Turns the text on stdin into tokens, one per line, with id and text.\n"
		 "MODEL is a GGUF file, tokenizer.json, tokenizer.model, tokenizer.bin, or a directory with "
		 "one of these files.",
	.min_words = 1,
	.max_words = 1,
};

static int read_stdin(struct buf *in)
{
	char block[1 << 16];
	size_t n;
	while ((n = fread(block, 1, sizeof block, stdin)) > 0) {
		if (in->len + n > INPUT_MAX)
			return term_error("more than %d bytes on stdin", INPUT_MAX);
		buf_put(in, block, n);
	}
	buf_reserve(in, 1);
	return ferror(stdin) ? term_error("stdin: %s", strerror(errno)) : 0;
}

/* Parse numbers separated by white space, commas or brackets. */
static int parse_ids(const char *p, struct token_ids *ids)
{
	for (;;) {
		char *end;
		p += strspn(p, " \t\r\n,[]");
		if (!*p)
			return 0;
		errno = 0;
		unsigned long v = strtoul(p, &end, 10);
		if (*p < '0' || *p > '9' || errno || v > UINT32_MAX || (*end && !strchr(" \t\r\n,[]", *end)))
			return term_error("\"%.*s\" is not an id", (int)strcspn(p, " \t\r\n,[]"), p);
		token_ids_push(ids, (uint32_t)v);
		p = end;
	}
}

static int decode(const struct tokenizer *t, const struct buf *in, bool skip_special, bool json)
{
	struct token_ids ids = {0};
	struct buf out = {0};
	int status = 0;
	if (strlen(in->p) != in->len)
		status = term_error("a NUL byte among the ids");
	if (status == 0)
		status = parse_ids(in->p, &ids);
	for (size_t i = 0; i < ids.n && status == 0; i++)
		if (ids.ids[i] >= tokenizer_n_vocab(t))
			status = term_error("id %u is out of range, the largest is %u", ids.ids[i],
					    tokenizer_n_vocab(t) - 1);
	if (status == 0) {
		tokenizer_decode(t, ids.ids, ids.n, skip_special, &out);
		if (json) {
			json_t *o = json_pack("{s:o}", "text", json_stringn(out.p ? out.p : "", out.len));
			json_dumpf(o, stdout, JSON_COMPACT);
			json_decref(o);
			putchar('\n');
		} else {
			fwrite(out.p, 1, out.len, stdout);
		}
	}
	buf_fini(&out);
	token_ids_fini(&ids);
	return status;
}

/* Store the token's text.  Returns false if it is not whole characters; then text has its bytes. */
static bool token_text(const struct tokenizer *t, uint32_t id, struct buf *text)
{
	struct buf bytes = {0};
	struct detok *d = detok_new(t, false, true);
	buf_clear(text);
	detok_push(d, id, text);
	detok_flush(d, text);
	detok_free(d);
	tokenizer_piece(t, id, &bytes);
	bool whole = bytes.len == text->len &&
		     memcmp(bytes.p ? bytes.p : "", text->p ? text->p : "", text->len) == 0;
	if (!whole) {
		buf_clear(text);
		buf_put(text, bytes.p, bytes.len);
	}
	buf_fini(&bytes);
	return whole;
}

static void print_token(const struct tokenizer *t, uint32_t id)
{
	struct buf text = {0};
	bool whole = token_text(t, id, &text);
	printf("%u\t\"", id);
	for (size_t i = 0; i < text.len; i++) {
		unsigned char c = (unsigned char)text.p[i];
		if (c == '\n')
			fputs("\\n", stdout);
		else if (c == '\t')
			fputs("\\t", stdout);
		else if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < 0x20 || c == 0x7f || (c >= 0x80 && !whole))
			printf("\\x%02x", c);
		else
			putchar(c);
	}
	puts("\"");
	buf_fini(&text);
}

/* Print {"ids": [...], "pieces": [...]}; a piece that is not UTF-8 is an array of its bytes. */
static void print_json(const struct tokenizer *t, const struct token_ids *ids)
{
	json_t *list = json_array(), *pieces = json_array();
	struct buf text = {0};
	for (size_t i = 0; i < ids->n; i++) {
		json_array_append_new(list, json_integer(ids->ids[i]));
		if (token_text(t, ids->ids[i], &text)) {
			json_array_append_new(pieces, json_stringn(text.p ? text.p : "", text.len));
			continue;
		}
		json_t *bytes = json_array();
		for (size_t k = 0; k < text.len; k++)
			json_array_append_new(bytes, json_integer((unsigned char)text.p[k]));
		json_array_append_new(pieces, bytes);
	}
	json_t *o = json_pack("{s:o, s:o}", "ids", list, "pieces", pieces);
	json_dumpf(o, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(o);
	buf_fini(&text);
}

static int encode(const struct tokenizer *t, const struct opts *o, const struct buf *in)
{
	struct token_ids ids = {0};
	struct why why;
	unsigned flags = (opts_flag(o, "add-special") ? TOKENIZER_ADD_SPECIAL : 0) |
			 (opts_flag(o, "no-special") ? TOKENIZER_NO_SPECIAL : 0);
	int rc = tokenizer_encode(t, in->p, in->len, flags, NULL, 0, &ids, &why);
	if (rc)
		return term_error("%s", why.text);
	if (opts_flag(o, "json")) {
		print_json(t, &ids);
	} else if (opts_flag(o, "ids")) {
		for (size_t i = 0; i < ids.n; i++)
			printf("%s%u", i ? " " : "", ids.ids[i]);
		putchar('\n');
	} else {
		for (size_t i = 0; i < ids.n; i++)
			print_token(t, ids.ids[i]);
	}
	token_ids_fini(&ids);
	return 0;
}

static int tokenize(const struct opts *o)
{
	char dir[PATH_MAX], name[CACHED_NAME];
	cache_find(opts_text_or(o, "tokenizer", o->words[0]), dir, name);
	struct tokenizer *t;
	struct buf in = {0};
	struct why why;
	const int rc = tokenizer_load(dir, &t, &why);
	if (rc == -ENOENT && (file_is_dir(dir) || !file_exists(dir)))
		model_kind_check(dir, &why); /* may give a better reason */
	if (rc)
		return term_error("%s", why.text);
	int status = read_stdin(&in);
	if (status == 0)
		status = opts_flag(o, "decode")
				 ? decode(t, &in, opts_flag(o, "no-special"), opts_flag(o, "json"))
				 : encode(t, o, &in);
	buf_fini(&in);
	tokenizer_free(t);
	return status;
}

static int run(struct opts *o)
{
	if (opts_flag(o, "decode") && opts_flag(o, "ids"))
		return term_usage(usage.name, "--ids and --decode exclude each other");
	if (opts_flag(o, "decode") && opts_flag(o, "add-special"))
		return term_usage(usage.name, "--add-special has no meaning with --decode");
	return tokenize(o);
}

int cmd_tokenize(int argc, char **argv)
{
	return command_run(&usage, OPTION_TOKENIZE, run, argc, argv);
}
