#include "formats/place/hot.h"

#include "base/alloc.h"
#include "base/err.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

int hot_check_options(const struct hot_options *o, const char *spec, struct why *why)
{
	if (!o->given)
		return !o->counts
			       ? 0
			       : err_why(why, -EINVAL,
					 "--expert-counts is for --hot-experts BYTES: give both, or neither");
	if (o->bytes <= 0)
		return err_why(why, -EINVAL,
			       "--hot-experts must be more than 0 bytes; leave it out for no hot experts");
	if (!o->counts)
		return err_why(why, -EINVAL,
			       "--hot-experts needs --expert-counts FILE. " EXPERT_COUNTS_REMEDY);
	return spec ? 0
		    : err_why(why, -EINVAL,
			      "--hot-experts is for experts that are on the CPU: give --experts cpu or "
			      "--place, "
			      "too");
}

int hot_check_placement(const struct hot_options *o, const struct placement *p, const char *device,
			struct why *why)
{
	if (!o->given || p->n_cpu || strncmp(device, "cpu", 3) == 0)
		return 0;
	return err_why(why, -EINVAL,
		       "--hot-experts: --place leaves all experts on the device; leave --hot-experts out");
}

/* ---- the choice ---- */

struct candidate {
	uint64_t rows;
	int layer, expert;
};

static int by_rows(const void *pa, const void *pb)
{
	const struct candidate *a = pa, *b = pb;
	if (a->rows != b->rows)
		return a->rows < b->rows ? 1 : -1;
	return a->layer != b->layer ? a->layer - b->layer : a->expert - b->expert;
}

struct sums {
	int n;          /* candidates with rows */
	int64_t bytes;  /* bytes of all host experts if they were on the device */
	int64_t lowest; /* bytes of the smallest candidate */
};

static struct sums list_candidates(struct candidate *to, const struct placement *p,
				   const struct hot_choice *a)
{
	struct sums s = {.lowest = INT64_MAX};
	const struct expert_counts *c = a->counts;
	for (int i = 0; i < c->n_layers; i++) {
		if (!p->cpu[i])
			continue;
		assert(a->expert_bytes[i] > 0);
		s.bytes += c->n_experts * a->expert_bytes[i];
		for (int e = 0; e < c->n_experts; e++) {
			const uint64_t rows = c->rows[(size_t)i * (size_t)c->n_experts + (size_t)e];
			if (!rows)
				continue;
			to[s.n++] = (struct candidate){rows, i, e};
			if (a->expert_bytes[i] < s.lowest)
				s.lowest = a->expert_bytes[i];
		}
	}
	return s;
}

static int check_sums(const struct sums *s, int64_t budget, struct why *why)
{
	if (budget >= s->bytes)
		return err_why(
			why, -EINVAL,
			"--hot-experts has room for all experts on the CPU, which take %lld MiB on the "
			"device: leave it, --experts and --place out",
			(long long)(s->bytes >> 20));
	if (!s->n)
		return err_why(
			why, -EINVAL,
			"--expert-counts: no expert that is on the CPU had a row. " EXPERT_COUNTS_REMEDY);
	return budget >= s->lowest ? 0
				   : err_why(why, -EINVAL,
					     "--hot-experts is %lld bytes, and one expert takes %lld on the "
					     "device: give more",
					     (long long)budget, (long long)s->lowest);
}

/* Move layers with all experts hot to the device. */
static void leave_cpu(struct placement *p, const struct hot *h, int n_layers)
{
	for (int i = 0; i < n_layers; i++) {
		int n = 0;
		for (int e = 0; e < h->n_experts; e++)
			n += hot_layer(h, i)[e];
		if (!p->cpu[i] || n < h->n_experts)
			continue;
		p->cpu[i] = false;
		p->n_cpu--;
	}
	assert(p->n_cpu > 0);
}

int hot_choose(struct hot *out, struct placement *p, const struct hot_choice *a, struct why *why)
{
	const size_t n = (size_t)a->counts->n_layers * (size_t)a->counts->n_experts;
	struct candidate *all = xcalloc(n + 1, sizeof *all);
	const struct sums s = list_candidates(all, p, a);
	*out = (struct hot){.n_experts = a->counts->n_experts};
	int rc = check_sums(&s, a->budget, why);
	if (!rc) {
		out->here = xcalloc(n, sizeof *out->here);
		qsort(all, (size_t)s.n, sizeof *all, by_rows);
	}
	for (int i = 0; !rc && i < s.n; i++) {
		const int64_t bytes = a->expert_bytes[all[i].layer];
		if (bytes > a->budget - out->bytes)
			continue;
		out->here[(size_t)all[i].layer * (size_t)out->n_experts + (size_t)all[i].expert] = true;
		out->bytes += bytes;
		out->n++;
	}
	free(all);
	if (!rc)
		leave_cpu(p, out, a->counts->n_layers);
	return rc;
}

void hot_fini(struct hot *h)
{
	free(h->here);
	*h = (struct hot){0};
}

const bool *hot_layer(const struct hot *h, int layer)
{
	return h->here ? h->here + (size_t)layer * (size_t)h->n_experts : NULL;
}

bool hot_any(const struct hot *h, int layer)
{
	const bool *here = hot_layer(h, layer);
	return here && memchr(here, true, (size_t)h->n_experts);
}

/* ---- fingerprint ---- */

void hot_text(const struct hot *h, int n_layers, char out[HOT_TEXT])
{
	uint64_t digest = 14695981039346656037u; /* FNV-1a */
	out[0] = '\0';
	if (!h->n)
		return;
	for (size_t i = 0; i < (size_t)n_layers * (size_t)h->n_experts; i++)
		digest = (digest ^ h->here[i]) * 1099511628211u;
	snprintf(out, HOT_TEXT, "hot=%d:%016" PRIx64, h->n, digest);
}
