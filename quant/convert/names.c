#include "quant/convert/names.h"

#include "formats/family.h"
#include "formats/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pair {
	const char *hf, *gguf;
	enum name_part part;
};

static const struct pair ends[] = {
	{"model.embed_tokens", "token_embd", NAME_EMBED},
	{"model.norm", "output_norm", NAME_NORM},
	{"lm_head", "output", NAME_HEAD},
};

static const struct pair parts[] = {
	{"self_attn.q_proj", "attn_q", NAME_Q},           {"self_attn.k_proj", "attn_k", NAME_K},
	{"self_attn.v_proj", "attn_v", NAME_LINEAR},      {"self_attn.qkv_proj", "attn_qkv", NAME_LINEAR},
	{"self_attn.o_proj", "attn_output", NAME_LINEAR}, {"self_attn.q_norm", "attn_q_norm", NAME_NORM},
	{"self_attn.k_norm", "attn_k_norm", NAME_NORM},   {"mlp.gate_proj", "ffn_gate", NAME_LINEAR},
	{"mlp.up_proj", "ffn_up", NAME_LINEAR},           {"mlp.down_proj", "ffn_down", NAME_LINEAR},
	{"mlp.gate_up_proj", "ffn_up", NAME_LINEAR},
};
enum { N_ENDS = sizeof ends / sizeof *ends, N_PARTS = sizeof parts / sizeof *parts };

/* Phi-3 and GLM-4 have the gate within the same tensor, under the name of the other one. */
static bool is_fused(const struct model_config *c)
{
	return c->arch == ARCH_PHI3 || c->arch == ARCH_GLM4;
}

static bool is(const char *text, size_t n, const char *name)
{
	return name && strlen(name) == n && memcmp(text, name, n) == 0;
}

static void fill(struct name *out, const struct pair *p, int layer, const char *suffix)
{
	out->part = p->part;
	out->bias = strcmp(suffix, ".bias") == 0;
	if (layer < 0) {
		snprintf(out->hf, sizeof out->hf, "%s%s", p->hf, suffix);
		snprintf(out->gguf, sizeof out->gguf, "%s%s", p->gguf, suffix);
		return;
	}
	snprintf(out->hf, sizeof out->hf, "model.layers.%d.%s%s", layer, p->hf, suffix);
	snprintf(out->gguf, sizeof out->gguf, "blk.%d.%s%s", layer, p->gguf, suffix);
}

/* text[0..n): without the layer before it and the suffix behind it. */
static bool find(const struct model_config *c, const char *text, size_t n, bool gguf, int layer,
		 const char *suffix, struct name *out)
{
	const char *const *hf_norms = family_of(c->arch)->norms, *const *gguf_norms =
									 gguf_norm_names(c->arch);
	const struct pair *table = layer < 0 ? ends : parts;
	for (int i = 0; i < (layer < 0 ? N_ENDS : N_PARTS); i++) {
		const bool fused = strcmp(table[i].hf, "mlp.gate_up_proj") == 0;
		const bool apart = strcmp(table[i].hf, "mlp.up_proj") == 0;
		if ((fused && !is_fused(c)) || (apart && is_fused(c)) ||
		    !is(text, n, gguf ? table[i].gguf : table[i].hf))
			continue;
		fill(out, &table[i], layer, suffix);
		return true;
	}
	for (int i = 0; layer >= 0 && i < NORMS; i++) {
		const struct pair p = {hf_norms[i], gguf_norms[i], NAME_NORM};
		if (!p.hf || !p.gguf || !is(text, n, gguf ? p.gguf : p.hf))
			continue;
		fill(out, &p, layer, suffix);
		return true;
	}
	return false;
}

static bool name_of(const struct model_config *c, const char *text, const char *layers, bool gguf,
		    struct name *out)
{
	const char *suffix = strrchr(text, '.');
	int layer = -1;
	if (!suffix || (strcmp(suffix, ".weight") != 0 && strcmp(suffix, ".bias") != 0))
		return false;
	if (strncmp(text, layers, strlen(layers)) == 0) {
		char *end;
		text += strlen(layers);
		const long n = strtol(text, &end, 10);
		if (end == text || *text == '+' || *text == '-' || *end != '.' || n >= c->n_layers)
			return false;
		layer = (int)n;
		text = end + 1;
	}
	return text < suffix && find(c, text, (size_t)(suffix - text), gguf, layer, suffix, out);
}

bool name_of_hf(const struct model_config *c, const char *hf, struct name *out)
{
	return name_of(c, hf, "model.layers.", false, out);
}

bool name_of_gguf(const struct model_config *c, const char *gguf, struct name *out)
{
	return name_of(c, gguf, "blk.", true, out);
}
