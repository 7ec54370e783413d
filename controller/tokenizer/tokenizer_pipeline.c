/* Reads the members of tokenizer.json around the model: normalizer, pre_tokenizer, post_processor, decoder.
 * Unsupported options are refused by name. */
#include "controller/tokenizer/tokenizer_impl.h"

#include "base/alloc.h"
#include "base/err.h"

#include <string.h>

/* The tokenizer being read, the member for messages, and the buffer of the message. */
struct reading {
	struct tokenizer *t;
	const char *member;
	struct why *why;
};

/* Returns -EINVAL. */
static int refuse(const struct reading *r, const char *what, const char *name)
{
	return err_why(r->why, -EINVAL, "%s: %s \"%s\" is not supported", r->member, what, name);
}

static int fail(const struct reading *r, const char *what)
{
	return err_why(r->why, -EINVAL, "%s: %s", r->member, what);
}

static int get_bool(const struct reading *r, const json_t *o, const char *key, bool *out)
{
	int rc = json_get_bool(o, key, out, r->why);
	return rc ? err_prefix(r->why, rc, "%s", r->member) : 0;
}

/* Read a string without NUL bytes; *out stays NULL if it is absent. */
static int get_text(const struct reading *r, const json_t *o, const char *key, const char **out)
{
	const json_t *v = json_get(o, key);
	int rc = json_get_str(o, key, out, r->why);
	if (rc)
		return err_prefix(r->why, rc, "%s", r->member);
	if (v && strlen(*out) != json_string_length(v))
		return fail(r, "a NUL byte in a string");
	return 0;
}

/* Read the type of an object.  Callers walk the lists of "Sequence". */
static int get_type(const struct reading *r, const json_t *o, const char **type)
{
	*type = NULL;
	if (!json_is_object(o))
		return fail(r, "must be an object");
	int rc = get_text(r, o, "type", type);
	if (rc)
		return rc;
	return *type ? 0 : fail(r, "type is missing");
}

typedef int (*read_one)(const struct reading *r, const json_t *o, const char *type);

/* Call one for o, or for each element if o is a Sequence. Sequences must not nest: no file does that, and
 * input must not control the depth of recursion. */
static int for_each_step(const struct reading *r, const json_t *o, const char *list_key, read_one one)
{
	const char *type;
	size_t i;
	json_t *el;
	if (!o)
		return 0;
	int rc = get_type(r, o, &type);
	if (rc)
		return rc;
	if (strcmp(type, "Sequence") != 0)
		return one(r, o, type);
	const json_t *list = json_get(o, list_key);
	if (!json_is_array(list))
		return fail(r, "a Sequence without its list");
	json_array_foreach(list, i, el)
	{
		rc = get_type(r, el, &type);
		if (rc)
			return rc;
		rc = one(r, el, type);
		if (rc)
			return rc;
	}
	return 0;
}

/* Read pattern: {"String": s} or {"Regex": s}. */
static int get_pattern(const struct reading *r, const json_t *o, bool *regex, const char **text)
{
	const json_t *p = json_get(o, "pattern");
	*text = NULL;
	*regex = json_get(p, "Regex") != NULL;
	int rc = get_text(r, p, *regex ? "Regex" : "String", text);
	if (rc)
		return rc;
	if (!*text || !**text)
		return fail(r, "pattern must be {\"String\": ...} or {\"Regex\": ...}, and not empty");
	return 0;
}

/* ---- normalizer ---- */

static int push_norm(const struct reading *r, struct norm *nm, enum norm_kind kind, const char *from,
		     const char *to)
{
	if (nm->n == NORM_OPS_MAX)
		return fail(r, "too many steps");
	nm->ops[nm->n++] = (struct norm_op){kind, from ? xstrdup(from) : NULL, to ? xstrdup(to) : NULL};
	return 0;
}

static int read_replace(const struct reading *r, const json_t *o, struct norm *nm)
{
	bool regex;
	const char *from, *to = NULL;
	int rc = get_pattern(r, o, &regex, &from);
	if (rc)
		return rc;
	if (regex)
		return refuse(r, "Replace with the pattern", from);
	rc = get_text(r, o, "content", &to);
	if (rc)
		return rc;
	return to ? push_norm(r, nm, NORM_REPLACE, from, to) : fail(r, "Replace without content");
}

static int read_normalizer(const struct reading *r, const json_t *o, const char *type)
{
	static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
	struct norm *nm = &r->t->norm;
	for (int i = 0; i < 4; i++)
		if (strcmp(type, forms[i]) == 0)
			return push_norm(r, nm, (enum norm_kind)i, NULL, NULL);
	if (strcmp(type, "Replace") == 0)
		return read_replace(r, o, nm);
	if (strcmp(type, "Prepend") == 0) {
		const char *text = NULL;
		int rc = get_text(r, o, "prepend", &text);
		if (rc)
			return rc;
		return text ? push_norm(r, nm, NORM_PREPEND, NULL, text) : fail(r, "prepend is missing");
	}
	return refuse(r, "type", type);
}

/* ---- pre_tokenizer ---- */

/* Append an operation.  Return NULL after an error. */
static struct pretok_op *push_op(const struct reading *r)
{
	struct pretok *pt = &r->t->pretok;
	if (pt->byte_level)
		fail(r, "a step after ByteLevel is not supported");
	else if (pt->n == PRETOK_OPS_MAX)
		fail(r, "too many steps");
	else
		return &pt->ops[pt->n++];
	return NULL;
}

static int read_behavior(const struct reading *r, const json_t *o, enum pretok_behavior *out)
{
	static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
					    "Contiguous"};
	const char *name = NULL;
	int rc = get_text(r, o, "behavior", &name);
	if (rc)
		return rc;
	for (int i = 0; name && i < 5; i++) {
		if (strcmp(name, names[i]) == 0) {
			*out = (enum pretok_behavior)i;
			return 0;
		}
	}
	return name ? refuse(r, "behavior", name) : fail(r, "Split without behavior");
}

static int read_split(const struct reading *r, const json_t *o)
{
	bool regex;
	const char *pattern;
	int rc = get_pattern(r, o, &regex, &pattern);
	if (rc)
		return rc;
	struct pretok_op *op = push_op(r);
	if (!op)
		return -EINVAL;
	op->kind = PRETOK_SPLIT;
	rc = read_behavior(r, o, &op->behavior);
	if (rc == 0)
		rc = get_bool(r, o, "invert", &op->invert);
	if (rc)
		return rc;
	/* The hand-written matchers support only SPLIT_ISOLATED. */
	bool by_hand = op->behavior == SPLIT_ISOLATED;
	rc = splitter_init(&op->splitter, regex, pattern, by_hand, r->why);
	return rc ? err_prefix(r->why, rc, "%s", r->member) : 0;
}

static int push_regex(const struct reading *r, const char *pattern)
{
	struct pretok_op *op = push_op(r);
	if (!op)
		return -EINVAL;
	op->kind = PRETOK_SPLIT;
	op->behavior = SPLIT_ISOLATED;
	return splitter_init(&op->splitter, true, pattern, true, r->why);
}

static int read_byte_level(const struct reading *r, const json_t *o)
{
	bool prefix_space = true, use_regex = true;
	int rc = get_bool(r, o, "add_prefix_space", &prefix_space);
	if (rc == 0)
		rc = get_bool(r, o, "use_regex", &use_regex);
	if (rc)
		return rc;
	if (r->t->pretok.byte_level)
		return fail(r, "ByteLevel twice is not supported");
	if (prefix_space) {
		struct pretok_op *op = push_op(r);
		if (!op)
			return -EINVAL;
		op->kind = PRETOK_PREFIX;
		op->text = xstrdup(" ");
	}
	if (use_regex)
		rc = push_regex(r, splitter_gpt2_pattern);
	r->t->pretok.byte_level = true;
	return rc;
}

static int read_scheme(const struct reading *r, const json_t *o, enum pretok_scheme *out)
{
	static const char *const names[] = {"always", "first", "never"};
	const char *name = NULL;
	bool prefix_space = true;
	int rc = get_text(r, o, "prepend_scheme", &name);
	if (rc == 0)
		rc = get_bool(r, o, "add_prefix_space", &prefix_space); /* older files */
	if (rc)
		return rc;
	*out = prefix_space ? SCHEME_ALWAYS : SCHEME_NEVER;
	for (int i = 0; name && i < 3; i++) {
		if (strcmp(name, names[i]) == 0) {
			*out = (enum pretok_scheme)i;
			return 0;
		}
	}
	return name ? refuse(r, "prepend_scheme", name) : 0;
}

static int get_replacement(const struct reading *r, const json_t *o, const char **text)
{
	*text = "\xe2\x96\x81";
	int rc = get_text(r, o, "replacement", text);
	if (rc)
		return rc;
	return **text ? 0 : fail(r, "replacement is empty");
}

static int read_metaspace(const struct reading *r, const json_t *o)
{
	const char *text;
	bool split = true;
	int rc = get_replacement(r, o, &text);
	if (rc == 0)
		rc = get_bool(r, o, "split", &split);
	if (rc)
		return rc;
	struct pretok_op *op = push_op(r);
	if (!op)
		return -EINVAL;
	op->kind = PRETOK_METASPACE;
	op->text = xstrdup(text);
	rc = read_scheme(r, o, &op->scheme);
	if (rc || !split)
		return rc;
	op = push_op(r);
	if (!op)
		return -EINVAL;
	op->kind = PRETOK_SPLIT;
	op->behavior = SPLIT_MERGED_WITH_NEXT;
	return splitter_init(&op->splitter, false, text, true, r->why);
}

static int read_pre_tokenizer(const struct reading *r, const json_t *o, const char *type)
{
	bool one_by_one = false;
	if (strcmp(type, "Split") == 0)
		return read_split(r, o);
	if (strcmp(type, "ByteLevel") == 0)
		return read_byte_level(r, o);
	if (strcmp(type, "Metaspace") == 0)
		return read_metaspace(r, o);
	if (strcmp(type, "Digits") == 0) {
		int rc = get_bool(r, o, "individual_digits", &one_by_one);
		return rc ? rc : push_regex(r, one_by_one ? "\\p{N}" : "\\p{N}+");
	}
	return refuse(r, "type", type);
}

/* ---- post_processor ---- */

static int push_template_token(const struct reading *r, const json_t *tokens, const char *name,
			       struct token_ids *to)
{
	size_t i;
	json_t *id;
	const json_t *ids = json_get(json_get(tokens, name), "ids");
	if (!json_is_array(ids))
		return err_why(r->why, -EINVAL, "%s: special_tokens has no ids of \"%s\"", r->member, name);
	json_array_foreach(ids, i, id)
	{
		if (!json_is_integer(id) || json_integer_value(id) < 0 ||
		    json_integer_value(id) > VOCAB_ID_MAX)
			return err_why(r->why, -EINVAL, "%s: an id of \"%s\" is out of range", r->member,
				       name);
		token_ids_push(to, (uint32_t)json_integer_value(id));
	}
	return 0;
}

static int read_template(const struct reading *r, const json_t *o)
{
	const json_t *single = json_get(o, "single"), *tokens = json_get(o, "special_tokens");
	size_t i, n_texts = 0;
	json_t *el;
	if (!json_is_array(single))
		return fail(r, "single must be a list");
	json_array_foreach(single, i, el)
	{
		const json_t *special = json_get(el, "SpecialToken"), *text = json_get(el, "Sequence");
		const char *id = NULL;
		int rc = get_text(r, special ? special : text, "id", &id);
		if (rc)
			return rc;
		if (!id || (text && strcmp(id, "A") != 0))
			return fail(r, "single must be made of SpecialToken and one Sequence A");
		if (text)
			n_texts++;
		else if ((rc = push_template_token(r, tokens, id, n_texts ? &r->t->behind : &r->t->before)) !=
			 0)
			return rc;
	}
	return n_texts == 1 ? 0 : fail(r, "single must hold Sequence A once");
}

static int read_post_processor(const struct reading *r, const json_t *o, const char *type)
{
	if (strcmp(type, "ByteLevel") == 0) /* changes only offsets */
		return 0;
	if (strcmp(type, "TemplateProcessing") == 0) {
		if (r->t->before.n || r->t->behind.n)
			return fail(r, "more than one template is not supported");
		return read_template(r, o);
	}
	return refuse(r, "type", type);
}

/* ---- decoder ---- */

/* Steps are optional but must have this order: replacing, byte fallback, fuse, strip. */
enum { STEP_REPLACE = 1, STEP_BYTES, STEP_FUSE, STEP_STRIP, STEP_ALONE };

static int read_strip(const struct reading *r, const json_t *o)
{
	struct decoder *d = &r->t->decoder;
	const char *content = NULL;
	int64_t start = 0, stop = 0;
	int rc = get_text(r, o, "content", &content);
	if (rc == 0)
		rc = json_get_int(o, "start", 0, 1000, &start, r->why);
	if (rc == 0)
		rc = json_get_int(o, "stop", 0, 1000, &stop, r->why);
	if (rc)
		return rc;
	if (!content || strlen(content) != 1)
		return fail(r, "Strip of anything but an ASCII character is not supported");
	if (stop > 0)
		return fail(r, "Strip at the end is not supported");
	d->strip = *content;
	d->n_strip = (unsigned)start;
	return 0;
}

static int read_meta_decoder(const struct reading *r, const json_t *o)
{
	struct decoder *d = &r->t->decoder;
	enum pretok_scheme scheme;
	const char *text;
	int rc = get_replacement(r, o, &text);
	if (rc == 0)
		rc = read_scheme(r, o, &scheme);
	if (rc)
		return rc;
	if (d->replace.n)
		return fail(r, "Metaspace after another step is not supported");
	d->meta = xstrdup(text);
	d->metaspace_first = scheme != SCHEME_NEVER;
	return push_norm(r, &d->replace, NORM_REPLACE, text, " ");
}

static int decoder_step(const char *type)
{
	static const char *const names[] = {"", "Replace", "ByteFallback", "Fuse", "Strip"};
	for (int i = STEP_REPLACE; i <= STEP_STRIP; i++)
		if (strcmp(type, names[i]) == 0)
			return i;
	return strcmp(type, "Metaspace") == 0   ? STEP_REPLACE
	       : strcmp(type, "ByteLevel") == 0 ? STEP_ALONE
						: 0;
}

static int read_decoder(const struct reading *r, const json_t *o, const char *type)
{
	struct decoder *d = &r->t->decoder;
	int step = decoder_step(type);
	if (step == 0)
		return refuse(r, "type", type);
	if (step < d->step || (step == d->step && step != STEP_REPLACE) || (step == STEP_ALONE && d->step))
		return refuse(r, "the order of steps that puts here", type);
	if (step == STEP_STRIP && d->step != STEP_FUSE)
		return fail(r, "Strip without Fuse is not supported");
	d->step = step;
	d->kind = step == STEP_ALONE ? DECODER_BYTE_LEVEL : DECODER_PIECES;
	if (step == STEP_BYTES)
		d->byte_fallback = true;
	if (step == STEP_STRIP)
		return read_strip(r, o);
	if (strcmp(type, "Replace") == 0)
		return read_replace(r, o, &d->replace);
	return strcmp(type, "Metaspace") == 0 ? read_meta_decoder(r, o) : 0;
}

/* ---- the whole pipeline ---- */

int tokenizer_load_pipeline(struct tokenizer *t, const json_t *normalizer, const json_t *pre_tokenizer,
			    const json_t *post_processor, const json_t *decoder, struct why *why)
{
	struct reading r = {.t = t, .member = "normalizer", .why = why};
	int rc = for_each_step(&r, normalizer, "normalizers", read_normalizer);
	r.member = "pre_tokenizer";
	if (rc == 0)
		rc = for_each_step(&r, pre_tokenizer, "pretokenizers", read_pre_tokenizer);
	r.member = "post_processor";
	if (rc == 0)
		rc = for_each_step(&r, post_processor, "processors", read_post_processor);
	r.member = "decoder";
	if (rc == 0)
		rc = for_each_step(&r, decoder, "decoders", read_decoder);
	if (rc == 0 && t->pretok.byte_level != (t->decoder.kind == DECODER_BYTE_LEVEL))
		rc = fail(&r, "ByteLevel must be both the last pre_tokenizer and the decoder, or neither");
	return rc;
}
