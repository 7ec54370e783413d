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

/* Modules with the usual meaning, by the names of the family. */
struct part {
	enum family_part which;
	const char *gguf;
	enum name_part part;
};
static const struct part ends[] = {
	{PART_EMBED, "token_embd", NAME_EMBED},
	{PART_FINAL_NORM, "output_norm", NAME_NORM},
	{PART_HEAD, "output", NAME_HEAD},
};
static const struct part parts[] = {
	{PART_Q, "attn_q", NAME_Q},
	{PART_K, "attn_k", NAME_K},
	{PART_V, "attn_v", NAME_LINEAR},
	{PART_QKV, "attn_qkv", NAME_LINEAR},
	{PART_O, "attn_output", NAME_LINEAR},
	{PART_Q_NORM, "attn_q_norm", NAME_NORM},
	{PART_K_NORM, "attn_k_norm", NAME_NORM},
	{PART_GATE, "ffn_gate", NAME_LINEAR},
	{PART_UP, "ffn_up", NAME_LINEAR},
	{PART_DOWN, "ffn_down", NAME_LINEAR},
	{PART_GATE_UP, "ffn_up", NAME_LINEAR},
};
enum { N_ENDS = sizeof ends / sizeof *ends, N_PARTS = sizeof parts / sizeof *parts };

/* Return whether gate and up are one tensor named gate_up_proj (ffn_up in GGUF). */
static bool is_fused(const struct model_config *c)
{
	return c->family->gguf && c->family->gguf->gate_up;
}

static bool is(const char *text, size_t n, const char *name)
{
	return name && strlen(name) == n && memcmp(text, name, n) == 0;
}

static const char *prefix_of(const struct model_config *c)
{
	return c->family->prefix ? c->family->prefix : "model.";
}

static void fill(const struct model_config *c, struct name *out, const struct pair *p, int layer,
		 const char *suffix)
{
	*out = (struct name){.part = p->part};
	out->bias = strcmp(suffix, ".bias") == 0;
	if (layer < 0) {
		snprintf(out->hf, sizeof out->hf, "%s%s", p->hf, suffix);
		snprintf(out->gguf, sizeof out->gguf, "%s%s", p->gguf, suffix);
		return;
	}
	snprintf(out->hf, sizeof out->hf, "%s%s.%d.%s%s", prefix_of(c), family_name(c->family, PART_LAYERS),
		 layer, p->hf, suffix);
	snprintf(out->gguf, sizeof out->gguf, "blk.%d.%s%s", layer, p->gguf, suffix);
}

/* ---- mixtures ---- */

static const char choice_suffix[] = ".e_score_correction_bias", choice_gguf[] = "exp_probs_b";

/* Find a tensor of a mixture's layer other than its experts. */
static bool find_other_tensor(const struct model_config *c, const char *text, size_t n, bool gguf, int layer,
			      const char *suffix, struct name *out)
{
	const struct family_experts *x = c->family->experts;
	static const char *const ffn[][2] = {{"gate_proj", "ffn_gate_shexp"},
					     {"up_proj", "ffn_up_shexp"},
					     {"down_proj", "ffn_down_shexp"}};
	char hf[96];
	struct pair p = {hf, "ffn_gate_inp", NAME_ROUTER};
	snprintf(hf, sizeof hf, "%s.gate", x->module);
	if (is(text, n, gguf ? p.gguf : p.hf)) {
		fill(c, out, &p, layer, suffix);
		return true;
	}
	for (int i = 0; x->shared && i < 4; i++) {
		if (i < 3)
			snprintf(hf, sizeof hf, "%s.%s", x->shared, ffn[i][0]);
		else
			snprintf(hf, sizeof hf, "%s_gate", x->shared);
		p.gguf = i < 3 ? ffn[i][1] : "ffn_gate_inp_shexp";
		p.part = i < 3 ? NAME_LINEAR : NAME_SHARED_GATE;
		if (!is(text, n, gguf ? p.gguf : p.hf))
			continue;
		fill(c, out, &p, layer, suffix);
		return true;
	}
	return false;
}

/* Parse an expert's number at text, without sign or leading zero.  Return the number of digits; 0: none. */
static size_t expert_number(const char *text, size_t n, int *out)
{
	size_t digits = 0;
	*out = 0;
	while (digits < n && digits < 5 && text[digits] >= '0' && text[digits] <= '9')
		*out = *out * 10 + (text[digits++] - '0');
	return digits > 1 && text[0] == '0' ? 0 : digits;
}

static bool find_expert(const struct model_config *c, const char *text, size_t n, bool gguf, int layer,
			const char *suffix, struct name *out)
{
	const struct family_experts *x = c->family->experts;
	static const char *const stacks[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
	char hf[96];
	int expert = 0;
	const size_t head = (size_t)snprintf(hf, sizeof hf, "%s.experts.", x->module);
	if (!gguf) {
		if (n <= head || memcmp(text, hf, head) != 0)
			return false;
		const size_t digits = expert_number(text + head, n - head, &expert);
		if (!digits || n <= head + digits || text[head + digits] != '.' || expert >= c->experts.n)
			return false;
		text += head + digits + 1;
		n -= head + digits + 1;
	}
	for (int i = 0; i < 3; i++) {
		const struct pair p = {hf, stacks[i], NAME_EXPERT};
		if (!is(text, n, gguf ? stacks[i] : x->names[i]))
			continue;
		snprintf(hf + head, sizeof hf - head, "%d.%s", expert, x->names[i]);
		fill(c, out, &p, layer, suffix);
		out->expert = expert;
		return true;
	}
	return false;
}

static bool find_choice(const struct model_config *c, const char *text, size_t n, bool gguf, int layer,
			const char *suffix, struct name *out)
{
	char hf[96];
	snprintf(hf, sizeof hf, "%s.gate", c->family->experts->module);
	if (!c->experts.choice_bias || !is(text, n, gguf ? choice_gguf : hf) ||
	    strcmp(suffix, gguf ? ".bias" : choice_suffix) != 0)
		return false;
	*out = (struct name){.part = NAME_CHOICE_BIAS, .bias = true};
	snprintf(out->hf, sizeof out->hf, "model.layers.%d.%s%s", layer, hf, choice_suffix);
	snprintf(out->gguf, sizeof out->gguf, "blk.%d.%s.bias", layer, choice_gguf);
	return true;
}

static bool find_in_mixture(const struct model_config *c, const char *text, size_t n, bool gguf, int layer,
			    const char *suffix, struct name *out)
{
	const struct family_experts *x = c->family->experts;
	if (layer < 0 || !x || x->mxfp4 || !c->layers[layer].sparse)
		return false;
	if (find_choice(c, text, n, gguf, layer, suffix, out))
		return true;
	return strcmp(suffix, ".weight") == 0 && (find_other_tensor(c, text, n, gguf, layer, suffix, out) ||
						  find_expert(c, text, n, gguf, layer, suffix, out));
}

void name_expert(struct name *n, int expert)
{
	static const char mark[] = ".experts.";
	char *at = strstr(n->hf, mark), tail[NAME_SIZE];
	if (!at)
		return;
	at += strlen(mark);
	snprintf(tail, sizeof tail, "%s", at + strspn(at, "0123456789"));
	snprintf(at, sizeof n->hf - (size_t)(at - n->hf), "%d%s", expert, tail);
	n->expert = expert;
}

/* ---- skipped layers ---- */

bool name_is_of_predictor(const struct model_config *c, const char *name)
{
	static const char *const layers[] = {"model.layers.", "language_model.model.layers.",
					     "model.language_model.layers.", "layers.", "blk."};
	for (int i = 0; i < 5; i++) {
		const size_t n = strlen(layers[i]);
		if (strncmp(name, layers[i], n) != 0)
			continue;
		const size_t digits = strspn(name + n, "0123456789");
		if (!digits || digits > 5 || name[n + digits] != '.')
			return false;
		const long layer = strtol(name + n, NULL, 10);
		return layer >= c->n_layers && layer < (long)c->n_layers + c->n_predict;
	}
	return false;
}

/* ---- both formats ---- */

/* Find the pair of names for text[0..n), which has neither the layer before it nor the suffix after it. */
static bool find(const struct model_config *c, const char *text, size_t n, bool gguf, int layer,
		 const char *suffix, struct name *out)
{
	const char *const *hf_norms = c->family->norms, *const *gguf_norms = c->family->gguf
										     ? c->family->gguf->norms
										     : NULL;
	const struct part *table = layer < 0 ? ends : parts;
	for (int i = 0; i < (layer < 0 ? N_ENDS : N_PARTS); i++) {
		const bool fused = table[i].which == PART_GATE_UP, apart = table[i].which == PART_UP;
		const char *const prefix = layer < 0 && table[i].which != PART_HEAD ? prefix_of(c) : "";
		char hf[96];
		snprintf(hf, sizeof hf, "%s%s", prefix, family_name(c->family, table[i].which));
		const struct pair p = {hf, table[i].gguf, table[i].part};
		if ((fused && !is_fused(c)) || (apart && is_fused(c)) || !is(text, n, gguf ? p.gguf : p.hf))
			continue;
		fill(c, out, &p, layer, suffix);
		return true;
	}
	for (int i = 0; gguf_norms && layer >= 0 && i < NORMS; i++) {
		const struct pair p = {hf_norms[i], gguf_norms[i], NAME_NORM};
		if (!p.hf || !p.gguf || !is(text, n, gguf ? p.gguf : p.hf))
			continue;
		fill(c, out, &p, layer, suffix);
		return true;
	}
	return false;
}

static bool name_of(const struct model_config *c, const char *text, const char *layers, bool gguf,
		    struct name *out)
{
	const char *suffix = strrchr(text, '.');
	int layer = -1;
	const bool choice = suffix && !gguf && strcmp(suffix, choice_suffix) == 0;
	if (!suffix || (!choice && strcmp(suffix, ".weight") != 0 && strcmp(suffix, ".bias") != 0))
		return false;
	if (strncmp(text, layers, strlen(layers)) == 0) {
		char *end;
		text += strlen(layers);
		const long number = strtol(text, &end, 10);
		if (end == text || *text == '+' || *text == '-' || *end != '.' || number >= c->n_layers)
			return false;
		layer = (int)number;
		text = end + 1;
	}
	if (text >= suffix)
		return false;
	const size_t n = (size_t)(suffix - text);
	return (!choice && find(c, text, n, gguf, layer, suffix, out)) ||
	       find_in_mixture(c, text, n, gguf, layer, suffix, out);
}

bool name_of_hf(const struct model_config *c, const char *hf, struct name *out)
{
	char layers[96];
	snprintf(layers, sizeof layers, "%s%s.", prefix_of(c), family_name(c->family, PART_LAYERS));
	return name_of(c, hf, layers, false, out);
}

bool name_of_gguf(const struct model_config *c, const char *gguf, struct name *out)
{
	return name_of(c, gguf, "blk.", true, out);
}
