/* config_rope.c - cos and sin of every RoPE scaling of formats/config.h, and the slopes of ALiBi.
 *
 * The arithmetic is in single precision wherever Hugging Face's modeling_rope_utils uses it (inverse
 * frequencies, their product with the position): at high positions a different rounding of the angle is
 * visible in the logits. */
#include "formats/config.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

/* base ^ (2i / dim) */
static float period(double base, int i, int dim)
{
	return (float)pow((float)base, (float)(2 * i) / (float)dim);
}

/* Dynamic NTK: the base grows with the served context, as if every sequence had that length. */
static double dynamic_base(const struct model_config *c, int max_context)
{
	double len = max_context > c->rope_original ? max_context : c->rope_original;
	double grown = c->rope_factor * len / c->rope_original - (c->rope_factor - 1);
	return c->rope_theta * pow(grown, (double)c->rope_dim / (c->rope_dim - 2));
}

/* Llama 3: long wavelengths are multiplied by the factor, short ones kept, those between interpolated. */
static float llama3_freq(const struct model_config *c, float inv)
{
	float old = (float)c->rope_original;
	float wave = (float)(2 * pi) / inv;
	if (wave < old / (float)c->rope_high)
		return inv;
	if (wave > old / (float)c->rope_low)
		return inv / (float)c->rope_factor;
	float smooth = (old / wave - (float)c->rope_low) / (float)(c->rope_high - c->rope_low);
	return (1 - smooth) * inv / (float)c->rope_factor + smooth * inv;
}

/* YaRN: return the (fractional) dimension that makes this many turns within the original context. */
static double yarn_dim(const struct model_config *c, double turns)
{
	return c->rope_dim * log(c->rope_original / (turns * 2 * pi)) / (2 * log(c->rope_theta));
}

static void yarn_freqs(const struct model_config *c, float *inv)
{
	double low = yarn_dim(c, c->yarn_beta_fast);
	double high = yarn_dim(c, c->yarn_beta_slow);
	if (c->yarn_truncate) {
		low = floor(low);
		high = ceil(high);
	}
	if (low < 0)
		low = 0;
	if (high > c->rope_dim - 1)
		high = c->rope_dim - 1;
	if (low == high)
		high += 0.001; /* avoids a division by zero, as in the paper's code */
	for (int i = 0; i < c->rope_dim / 2; i++) {
		float p = period(c->rope_theta, i, c->rope_dim);
		float ramp = (float)((i - low) / (high - low));
		float keep = 1 - (ramp < 0 ? 0 : ramp > 1 ? 1 : ramp);
		inv[i] = 1 / ((float)c->rope_factor * p) * (1 - keep) + 1 / p * keep;
	}
}

static double yarn_scale(double factor, double mscale)
{
	return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* Return the factor of cos and sin. */
static double attention_factor(const struct model_config *c)
{
	if (c->rope != ROPE_YARN && c->rope != ROPE_LONGROPE)
		return 1;
	if (c->yarn_attention_factor > 0)
		return c->yarn_attention_factor;
	if (c->rope == ROPE_LONGROPE)
		return c->rope_factor <= 1 ? 1 : sqrt(1 + log(c->rope_factor) / log(c->rope_original));
	if (c->yarn_mscale != 0 && c->yarn_mscale_all_dim != 0)
		return yarn_scale(c->rope_factor, c->yarn_mscale) /
		       yarn_scale(c->rope_factor, c->yarn_mscale_all_dim);
	return yarn_scale(c->rope_factor, 1);
}

static void inverse_freqs(const struct model_config *c, int max_context, float *inv)
{
	if (c->rope == ROPE_YARN) {
		yarn_freqs(c, inv);
		return;
	}
	double base = c->rope == ROPE_DYNAMIC ? dynamic_base(c, max_context) : c->rope_theta;
	const double *ext = max_context > c->rope_original ? c->long_long : c->long_short;
	for (int i = 0; i < c->rope_dim / 2; i++) {
		float p = period(base, i, c->rope_dim);
		inv[i] = 1 / p;
		if (c->rope == ROPE_LINEAR)
			inv[i] /= (float)c->rope_factor;
		else if (c->rope == ROPE_LLAMA3)
			inv[i] = llama3_freq(c, inv[i]);
		else if (c->rope == ROPE_LONGROPE)
			inv[i] = 1 / ((float)ext[i] * p);
	}
}

/* sign: of the angles. */
static void rotations(const float *inv, int half, float scale, float sign, int n, float *out)
{
	for (int pos = 0; pos < n; pos++) {
		float *row = out + (size_t)pos * (size_t)half * 2;
		for (int i = 0; i < half; i++) {
			float angle = (float)pos * inv[i];
			double sine, cosine;
			sincos(angle, &sine, &cosine);
			row[2 * i] = (float)cosine * scale;
			row[2 * i + 1] = (float)sine * scale * sign;
		}
	}
}

/* Heads beyond the largest power of two take every second slope of twice as many heads. */
void model_config_alibi(const struct model_config *c, float *out)
{
	int whole = 1;
	while (2 * whole <= c->n_heads)
		whole *= 2;
	const double by = c->attn_scale > 0 ? (double)c->attn_scale : 1 / sqrt(c->head_dim);
	for (int h = 0; h < c->n_heads; h++) {
		const double n = h < whole ? h + 1 : h - whole + 0.5;
		float slope = (float)pow(2, -(double)c->alibi_max * n / whole);
		if (c->alibi_scaled) {
			uint32_t u;
			memcpy(&u, &slope, sizeof u);
			u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000;
			memcpy(&slope, &u, sizeof slope);
			slope = (float)((double)slope * by);
		}
		out[h] = slope;
	}
}

bool model_config_long_factors(const struct model_config *c, int max_context)
{
	return c->rope == ROPE_LONGROPE && max_context > c->rope_original &&
	       memcmp(c->long_short, c->long_long, (size_t)c->rope_dim / 2 * sizeof *c->long_long) != 0;
}

void model_config_rope(const struct model_config *c, int n, int max_context, float *out)
{
	float *inv = xcalloc((size_t)c->rope_dim / 2 + 1, sizeof *inv);
	inverse_freqs(c, max_context, inv);
	rotations(inv, c->rope_dim / 2, (float)attention_factor(c), c->rope_reversed ? -1 : 1, n, out);
	free(inv);
}

void model_config_rope_local(const struct model_config *c, int n, float *out)
{
	float *inv = xcalloc((size_t)c->rope_dim / 2 + 1, sizeof *inv);
	for (int i = 0; i < c->rope_dim / 2; i++)
		inv[i] = 1 / period(c->rope_local_theta, i, c->rope_dim);
	rotations(inv, c->rope_dim / 2, 1, c->rope_reversed ? -1 : 1, n, out);
	free(inv);
}
