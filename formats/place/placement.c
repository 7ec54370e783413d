#include "formats/place/placement.h"

#include "base/err.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum rule_of { RULE_RANGE, RULE_EXPERTS, RULE_ALL };

struct rule {
	const char *text; /* the rule as written: n bytes within the text of all rules */
	int n;
	enum rule_of of;
	int first, last; /* RULE_RANGE */
	bool cpu;
};

struct parser {
	struct placement *out;
	const char *device;
	const struct model_config *c;
	bool named[CONFIG_LAYERS_MAX]; /* named by a range */
	bool experts, all;             /* true: such a rule was given */
	bool rest_cpu;                 /* experts that no range names are on the CPU */
	struct why *why;
};

__attribute__((format(printf, 3, 4))) static int wrong(const struct parser *p, const struct rule *r,
						       const char *fmt, ...)
{
	char text[320];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	return err_why(p->why, -EINVAL, "placement \"%.*s\": %s", r->n < 80 ? r->n : 80, r->text, text);
}

/* ---- one rule ---- */

static const char *number(const char *s, const char *end, int *out)
{
	const char *at = s;
	for (*out = 0; at < end && *at >= '0' && *at <= '9'; at++)
		if (*out < CONFIG_LAYERS_MAX) /* larger numbers are refused anyway */
			*out = 10 * *out + (*at - '0');
	return at > s ? at : NULL;
}

static bool is(const char *s, const char *end, const char *text)
{
	return (size_t)(end - s) == strlen(text) && memcmp(s, text, (size_t)(end - s)) == 0;
}

/* Parse "layers.A.experts" or "layers.A-B.experts". */
static bool range(struct rule *r, const char *s, const char *end)
{
	static const char begin[] = "layers.";
	if ((size_t)(end - s) < sizeof begin || memcmp(s, begin, sizeof begin - 1) != 0 ||
	    !(s = number(s + sizeof begin - 1, end, &r->first)))
		return false;
	r->last = r->first;
	if (s < end && *s == '-' && !(s = number(s + 1, end, &r->last)))
		return false;
	return is(s, end, ".experts");
}

/* Parse a device: "cpu", the worker's device by name, or its kind. */
static int device(const struct parser *p, struct rule *r, const char *s, const char *end)
{
	char kind[32];
	snprintf(kind, sizeof kind, "%.*s", (int)strcspn(p->device, ":"), p->device);
	r->cpu = is(s, end, "cpu") && strcmp(kind, "cpu") != 0;
	if (r->cpu || is(s, end, p->device) || is(s, end, kind))
		return 0;
	return wrong(p, r, "a part of this worker can be on cpu or on %s, its --device", kind);
}

static int read_rule(const struct parser *p, struct rule *r)
{
	const char *end = r->text + r->n, *eq = memchr(r->text, '=', (size_t)r->n);
	if (!eq)
		return wrong(p, r, "a rule is PART=DEVICE, such as *.experts=cpu");
	if (is(r->text, eq, "*"))
		r->of = RULE_ALL;
	else if (is(r->text, eq, "*.experts"))
		r->of = RULE_EXPERTS;
	else if (!range(r, r->text, eq))
		return wrong(p, r, "no such part: there are layers.A-B.experts, *.experts and * (all else)");
	return device(p, r, eq + 1, end);
}

/* ---- applying rules ---- */

static int add_range(struct parser *p, const struct rule *r)
{
	int n = 0;
	if (r->last >= p->c->n_layers)
		return wrong(p, r, "the model has %d layers, 0 to %d", p->c->n_layers, p->c->n_layers - 1);
	for (int i = r->first; i <= r->last; i++) {
		if (p->named[i])
			return wrong(p, r, "another rule names layer %d, too", i);
		p->named[i] = true;
		n += p->c->layers[i].sparse;
		p->out->cpu[i] = r->cpu && p->c->layers[i].sparse;
	}
	if (n == 0)
		return wrong(p, r, "names nothing: there are no experts in such layers");
	return 0;
}

static int add_rule(struct parser *p, const struct rule *r)
{
	if (r->of == RULE_ALL) {
		if (r->cpu)
			return wrong(p, r,
				     "only experts can be on the CPU: *.experts=cpu; a whole model with "
				     "--device cpu");
		if (p->all)
			return wrong(p, r, "a second rule for all else");
		p->all = true;
		return 0;
	}
	if (!p->out->n_sparse)
		return wrong(p, r, "the model is no mixture of experts; leave --experts and --place out");
	if (r->of == RULE_RANGE)
		return add_range(p, r);
	if (p->experts)
		return wrong(p, r, "a second rule for all experts");
	p->experts = true;
	p->rest_cpu = r->cpu;
	return 0;
}

/* Place the experts that no range names. */
static int add_rest(struct parser *p)
{
	int n = 0;
	for (int i = 0; i < p->c->n_layers; i++) {
		if (p->named[i] || !p->c->layers[i].sparse)
			continue;
		p->out->cpu[i] = p->rest_cpu;
		n++;
	}
	if (p->experts && n == 0)
		return err_why(
			p->why, -EINVAL,
			"placement \"*.experts\": names nothing, since other rules name all layers that have "
			"experts; leave it out");
	for (int i = 0; i < p->c->n_layers; i++)
		p->out->n_cpu += p->out->cpu[i];
	return 0;
}

int placement_parse(struct placement *out, const char *spec, const char *device_name,
		    const struct model_config *c, struct why *why)
{
	struct parser p = {.out = out, .device = device_name, .c = c, .why = why};
	*out = (struct placement){0};
	for (int i = 0; i < c->n_layers; i++)
		out->n_sparse += c->layers[i].sparse;
	for (const char *at = spec; at; at = *at ? at + 1 : NULL) {
		struct rule r = {.text = at, .n = (int)strcspn(at, ",")};
		int rc = read_rule(&p, &r);
		if (rc || (rc = add_rule(&p, &r)))
			return rc;
		at += r.n;
	}
	return spec ? add_rest(&p) : 0;
}

int placement_options(const char *experts, const char *place, const char **spec, struct why *why)
{
	const bool cpu = experts && strcmp(experts, "cpu") == 0;
	*spec = cpu ? PLACEMENT_EXPERTS_CPU : place;
	if (experts && !cpu && strcmp(experts, "device") != 0)
		return err_why(why, -EINVAL, "--experts is \"%s\", must be cpu or device", experts);
	if (experts && place)
		return err_why(why, -EINVAL,
			       "--experts and --place both say where experts are: leave one out");
	return 0;
}

int placement_check_ranks(const struct placement *p, int n_ranks, struct why *why)
{
	if (!p->n_cpu || n_ranks <= 1)
		return 0;
	return err_why(why, -ENOTSUP,
		       "experts on the CPU with the rest on a GPU are not supported with --tp: leave --tp "
		       "out, or --experts and "
		       "--place");
}

/* ---- fingerprint ---- */

void placement_text(const struct placement *p, char out[PLACEMENT_TEXT])
{
	uint64_t h = 14695981039346656037u; /* FNV-1a */
	for (int i = 0; i < CONFIG_LAYERS_MAX; i++)
		h = (h ^ p->cpu[i]) * 1099511628211u;
	if (p->n_cpu == p->n_sparse)
		snprintf(out, PLACEMENT_TEXT, "all");
	else
		snprintf(out, PLACEMENT_TEXT, "%d/%d:%016" PRIx64, p->n_cpu, p->n_sparse, h);
}
