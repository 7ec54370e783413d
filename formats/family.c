#include "formats/family_impl.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

const struct family *family_at(size_t i)
{
	const struct {
		const struct family *rows;
		size_t n;
	} tables[] = {{family_dense, family_n_dense},
		      {family_positions, family_n_positions},
		      {family_mixtures, family_n_mixtures}};
	for (size_t j = 0; j < sizeof tables / sizeof *tables; i -= tables[j++].n)
		if (i < tables[j].n)
			return &tables[j].rows[i];
	return NULL;
}

static const char *const parts[PARTS] = {
	[PART_EMBED] = "embed_tokens",      [PART_POSITIONS] = "embed_positions",
	[PART_FINAL_NORM] = "norm",         [PART_HEAD] = "lm_head",
	[PART_LAYERS] = "layers",           [PART_Q] = "self_attn.q_proj",
	[PART_K] = "self_attn.k_proj",      [PART_V] = "self_attn.v_proj",
	[PART_QKV] = "self_attn.qkv_proj",  [PART_O] = "self_attn.o_proj",
	[PART_Q_NORM] = "self_attn.q_norm", [PART_K_NORM] = "self_attn.k_norm",
	[PART_SINKS] = "self_attn.sinks",   [PART_GATE] = "mlp.gate_proj",
	[PART_UP] = "mlp.up_proj",          [PART_GATE_UP] = "mlp.gate_up_proj",
	[PART_DOWN] = "mlp.down_proj",
};

const char *family_name(const struct family *f, enum family_part part)
{
	for (size_t i = 0; i < sizeof f->names / sizeof *f->names && f->names[i].name; i++)
		if (f->names[i].part == part)
			return f->names[i].name;
	return parts[part];
}

bool family_is_also(const struct family *f, const char *type)
{
	for (size_t j = 0; j < sizeof f->also / sizeof *f->also && f->also[j]; j++)
		if (strcmp(type, f->also[j]) == 0)
			return true;
	return false;
}

const struct family *family_find(const char *arch, const char *type)
{
	const char *name = arch ? arch : type;
	const struct family *f;
	for (size_t i = 0; (f = family_at(i)); i++)
		if (strcmp(name, arch ? f->arch : f->type) == 0)
			return f;
	for (size_t i = 0; (f = family_at(i)); i++)
		if (family_is_also(f, name))
			return f;
	return NULL;
}

const struct family *family_find_gguf(const char *name, bool mixture)
{
	const struct family *found = NULL;
	const struct family *f;
	for (size_t i = 0; (f = family_at(i)); i++) {
		if (!f->gguf || strcmp(f->gguf->name, name) != 0)
			continue;
		if ((f->experts != NULL) == mixture)
			return f;
		found = found ? found : f;
	}
	return found;
}

const struct family *family_find_file(const char *file)
{
	const struct family *f = family_at(0);
	for (size_t i = 1; !f->file || strcmp(f->file, file) != 0; i++) {
		f = family_at(i);
		assert(f);
	}
	return f;
}

const struct family *family_with_window(const struct family *f)
{
	const struct family *other;
	for (size_t i = 0; f->gguf && f->window == WINDOW_NONE && (other = family_at(i)); i++)
		if (other->gguf == f->gguf && other->experts == f->experts && other->window)
			return other;
	return f;
}

bool family_permutes(const struct family *f)
{
	return f->gguf && f->gguf->permuted && !f->rope_pairs;
}

/* Return the length of the common prefix of a and b, ignoring case. */
static size_t common(const char *a, const char *b)
{
	size_t n = 0;
	while (a[n] && tolower((unsigned char)a[n]) == tolower((unsigned char)b[n]))
		n++;
	return n;
}

const char *family_nearest(const char *typed, const char *const *names, size_t n, char *out, size_t size)
{
	enum { SAME_LETTERS = 3, SHOWN = 3 };
	const char *shown[SHOWN];
	size_t len = 0, n_shown = 0;
	out[0] = '\0';
	for (size_t want = strlen(typed); want >= SAME_LETTERS && n_shown < SHOWN; want--)
		for (size_t i = 0; i < n && n_shown < SHOWN; i++)
			if (common(typed, names[i]) == want)
				shown[n_shown++] = names[i];
	for (size_t i = 0; i < n_shown && len < size; i++)
		len += (size_t)snprintf(out + len, size - len, "%s%s%s", i ? ", " : "nearest: ", shown[i],
					i + 1 == n_shown ? "; " : "");
	return out;
}

const char *family_near(const char *typed, bool gguf, char *out, size_t size)
{
	enum { NAMES_MAX = 256 };
	const char *names[NAMES_MAX];
	size_t n = 0;
	const struct family *f;
	for (size_t i = 0; (f = family_at(i)) && n < NAMES_MAX; i++) {
		const char *name = !gguf ? f->arch : f->gguf ? f->gguf->name : NULL;
		bool known = !name;
		for (size_t j = 0; j < n && !known; j++)
			known = strcmp(names[j], name) == 0;
		if (!known)
			names[n++] = name;
	}
	return family_nearest(typed, names, n, out, size);
}
