/* fleet_loading.c - reports workers that load: to the log every few seconds, and to the supervisor and
 * /health while no replica serves. */
#include "controller/fleet/emit.h"
#include "controller/fleet/fleet_impl.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
	NOTICE_US = 200 * 1000,
	STATE_US = 1000 * 1000,
	LOG_US = 5 * 1000 * 1000,
};

static const char *doing_text(uint32_t doing)
{
	static const char *const texts[] = {
		[BUS_DOING_OPEN] = "opening the model",
		[BUS_DOING_READ] = "reading weights",
		[BUS_DOING_PACK] = "packing weights",
		[BUS_DOING_CACHE] = "allocating the KV cache",
		[BUS_DOING_WARM_UP] = "warming up the device",
		[BUS_DOING_WAIT] = "waiting for the model's files",
		[BUS_DOING_CHECK] = "checking the model's files",
		[BUS_DOING_FETCH] = "fetching the model",
	};
	return texts[doing < BUS_DOINGS ? doing : BUS_DOING_OPEN];
}

static double mib(uint64_t bytes)
{
	return (double)bytes / (1 << 20);
}

static void log_loads(struct fleet *f, int64_t now_us)
{
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++) {
		struct worker *k = &f->workers->rows[i];
		if (k->state != WORKER_LOADING || now_us - k->load_logged_us < LOG_US)
			continue;
		k->load_logged_us = now_us;
		log_info("fleet",
			 "loading worker=%" PRIu64
			 " device=%s doing=\"%s\" mib=%.0f total_mib=%.0f seconds=%lld",
			 k->id, k->hello.device, doing_text(k->load.doing), mib(k->load.done),
			 mib(k->load.total), (long long)((now_us - k->load_us) / 1000000));
	}
}

/* Summarise all loads: the sum of their bytes, and the activity of the slowest. */
static struct engine_loading sum_loads(const struct fleet *f, int64_t now_us)
{
	struct engine_loading sum = {0};
	const struct worker *slowest = NULL;
	double least = 2;
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++) {
		const struct worker *k = &f->workers->rows[i];
		if (k->state != WORKER_LOADING)
			continue;
		const double part = k->load.total ? (double)k->load.done / (double)k->load.total : 0;
		sum.n_workers++;
		sum.done += k->load.done;
		sum.total += k->load.total;
		if (now_us - k->load_us > sum.us)
			sum.us = now_us - k->load_us;
		if (part < least) {
			least = part;
			slowest = k;
		}
	}
	if (slowest)
		sum.doing = doing_text(slowest->load.doing);
	return sum;
}

static void describe(const struct fleet *f, const struct engine_loading *l, char *out, size_t n)
{
	if (l->n_workers)
		snprintf(out, n, "%u worker%s load%s: %s, %.0f of %.0f MiB, %lld s", l->n_workers,
			 l->n_workers == 1 ? "" : "s", l->n_workers == 1 ? "s" : "", l->doing, mib(l->done),
			 mib(l->total), (long long)(l->us / 1000000));
	else if (f->last_loss.text[0])
		snprintf(out, n, "no worker serves or loads; the last loss: %.200s", f->last_loss.text);
	else
		snprintf(out, n, "no worker has connected yet");
}

/* Return whether a load has begun since the last report, so that even the shortest load is reported once. */
static bool has_begun(const struct fleet *f)
{
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++)
		if (f->workers->rows[i].state == WORKER_LOADING &&
		    f->workers->rows[i].load_us > f->loading_us)
			return true;
	return false;
}

void fleet_report_loading(struct fleet *f, int64_t now_us)
{
	char waits[sizeof f->waits];
	if (now_us - f->loading_us < NOTICE_US && (f->ready || !has_begun(f)))
		return;
	f->loading_us = now_us;
	log_loads(f, now_us);
	if (f->ready)
		return;
	const struct engine_loading l = sum_loads(f, now_us);
	if (l.n_workers)
		fleet_notice(f, (struct engine_notice){.kind = ENGINE_NOTICE_LOADING, .loading = &l});
	describe(f, &l, waits, sizeof waits);
	if (strcmp(waits, f->waits) == 0 || now_us - f->waits_us < STATE_US)
		return;
	f->waits_us = now_us;
	memcpy(f->waits, waits, sizeof waits);
	struct engine_event *ev = emit_event_new(ENGINE_WAITS, 0);
	snprintf(ev->why, sizeof ev->why, "%s", waits);
	emit_event(f->emit, ev);
}
