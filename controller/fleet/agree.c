#include "controller/fleet/agree.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* Return a mode that workers know; for any other word f32, which all devices have. */
static const char *known(const char *mode)
{
	static const char *const modes[] = {"bf16", "int16", "int8"};
	for (int i = 0; i < 3; i++)
		if (strcmp(mode, modes[i]) == 0)
			return modes[i];
	return "f32";
}

/* Return the index of the kind of `device`, a->n if it is new; write the kind's name to kind. */
static int find_kind(const struct agree *a, const char *device, char *kind, size_t kind_n)
{
	int i = 0;
	snprintf(kind, kind_n, "%.*s", (int)strcspn(device, ":"), device);
	while (i < a->n && strcmp(a->kinds[i].kind, kind) != 0)
		i++;
	return i;
}

const char *agree_compute(struct agree *a, const char *wanted, const char *device, const char *own,
			  bool loaded, bool *first)
{
	*first = false;
	if (strcmp(wanted, "auto") != 0)
		return wanted;
	char kind[sizeof a->kinds[0].kind];
	const int i = find_kind(a, device, kind, sizeof kind);
	if (i == AGREE_KINDS)
		return wanted;
	*first = i == a->n || (loaded && !a->kinds[i].fixed && strcmp(a->kinds[i].mode, known(own)) != 0);
	if (*first) {
		memcpy(a->kinds[i].kind, kind, sizeof kind);
		snprintf(a->kinds[i].mode, sizeof a->kinds[i].mode, "%s", known(own));
	}
	a->kinds[i].fixed |= loaded;
	a->n += i == a->n;
	return a->kinds[i].mode;
}

/* ---- one worker's modes ---- */

#define EXPERTS "experts on the CPU" /* counts as a kind of device */

static const char *compute_of(struct agree *a, const char *wanted, const struct bus_hello *h, bool *first)
{
	return agree_compute(a, wanted, h->device, h->compute, h->loaded, first);
}

static const char *experts_of(struct agree *a, const struct bus_hello *h, bool *first)
{
	*first = false;
	if (!h->experts_compute[0])
		return h->experts_compute;
	return agree_compute(a, "auto", EXPERTS, h->experts_compute, h->experts_loaded, first);
}

struct choice {
	const char *option, *mode, *own;
	bool loaded, first;
};

static void log_choice(const struct choice *c, const char *device, uint64_t worker)
{
	const unsigned long long id = worker;
	const char *reason = c->loaded               ? "it is loaded"
			     : strcmp(c->own, "f32") ? "the worker has VNNI or AMX"
						     : "the worker has no VNNI";
	if (c->first)
		log_info("bus", "mode chosen option=%s mode=%s device=%s worker=%llu reason=\"%s\"",
			 c->option, c->mode, device, id, reason);
	else if (strcmp(c->mode, c->own) != 0)
		log_warn("bus",
			 "mode of the first worker is used option=%s mode=%s own_mode=%s loads_again=%s "
			 "device=%s worker=%llu",
			 c->option, c->mode, c->own, c->loaded ? "yes" : "no", device, id);
}

void agree_join(struct agree *a, const char *wanted, const struct bus_hello *h, uint64_t worker)
{
	struct choice c = {.option = "--compute", .own = h->compute, .loaded = h->loaded};
	c.mode = compute_of(a, wanted, h, &c.first);
	if (strcmp(wanted, "auto") == 0)
		log_choice(&c, h->device, worker);
	c = (struct choice){
		.option = "--experts-compute", .own = h->experts_compute, .loaded = h->experts_loaded};
	c.mode = experts_of(a, h, &c.first);
	log_choice(&c, h->device, worker);
}

void agree_modes(struct agree *a, const char *wanted, const struct bus_hello *h, struct agree_modes *out)
{
	bool first;
	snprintf(out->compute, sizeof out->compute, "%s", compute_of(a, wanted, h, &first));
	snprintf(out->experts, sizeof out->experts, "%s", experts_of(a, h, &first));
}

static void fix(struct agree *a, const char *device)
{
	char kind[sizeof a->kinds[0].kind];
	const int i = find_kind(a, device, kind, sizeof kind);
	if (i < a->n)
		a->kinds[i].fixed = true;
}

bool agree_decide(struct agree *a, const char *wanted, const struct bus_hello *h,
		  const struct agree_modes *modes)
{
	struct agree_modes now;
	agree_modes(a, wanted, h, &now);
	if (strcmp(now.compute, modes->compute) != 0 || strcmp(now.experts, modes->experts) != 0)
		return false;
	fix(a, h->device);
	if (h->experts_compute[0])
		fix(a, EXPERTS);
	return true;
}
