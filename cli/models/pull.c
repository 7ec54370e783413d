#include "cli/models/commands.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/option_table.h"
#include "cli/models/cache.h"
#include "cli/models/download.h"
#include "cli/models/hub.h"
#include "cli/terminal/environment.h"
#include "cli/terminal/table.h"
#include "cli/terminal/term.h"
#include "cli/terminal/usage.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>

#define HUB "https://huggingface.co"
enum { LINE_US = 20000000 };

static const struct usage usage = {
	.name = "pull",
	.words = "ORG/NAME[@REVISION] | URL",
	.about = "Fetches a model; quern serve, run, inspect and bench then accept its name.  URL is a "
		 "directory\n"
		 "or a file of any web server.  A pull that was interrupted resumes.  The token is\n"
		 "$QUERN_TOKEN (for any server), or $HF_TOKEN (for the hub).  Models are stored in "
		 "$QUERN_MODELS,\n"
		 "else quern/models in $XDG_CACHE_HOME or ~/.cache; see: quern list, quern rm.",
	.min_words = 1,
	.max_words = 1,
};

struct pull {
	const struct opts *o;
	struct source source;
	struct http *http;
	struct file_list files;
	struct cache_target target;
	int64_t began_us, line_us, at_first; /* at_first: bytes present at the start */
	int shown_percent;
};

/* ---- progress ---- */

/* Format "45 MiB/s, 3 min left". */
static const char *pace_text(const struct pull *p, int64_t done, int64_t total, char *out, size_t n)
{
	const double s = (double)(clock_us() - p->began_us) * 1e-6,
		     rate = s > 0 ? (double)(done - p->at_first) / s : 0;
	char text[32];
	if (rate < 1 || s < 1) {
		snprintf(out, n, "starting");
		return out;
	}
	const int64_t left = (int64_t)((double)(total - done) / rate);
	int k = snprintf(out, n, "%s/s", term_bytes(rate, text, sizeof text));
	if (left >= 60)
		snprintf(out + k, n - (size_t)k, ", %" PRId64 " min left", (left + 59) / 60);
	else
		snprintf(out + k, n - (size_t)k, ", %" PRId64 " s left", left);
	return out;
}

static void show(void *ctx, const char *doing, int64_t done, int64_t total)
{
	struct pull *p = ctx;
	const int64_t now = clock_us();
	char pace[96], line[256], text[32];
	if (p->at_first < 0)
		p->at_first = done;
	pace_text(p, done, total, pace, sizeof pace);
	if (term_is_tty(stderr)) {
		snprintf(line, sizeof line, "%s, %.100s", pace, doing);
		term_progress(line, (double)done, (double)total, (double)(now - p->began_us) * 1e-6);
		return;
	}
	const int percent = total ? (int)((double)done * 100 / (double)total) : 100;
	if (percent / 10 == p->shown_percent / 10 && now - p->line_us < LINE_US)
		return;
	p->shown_percent = percent;
	p->line_us = now;
	term_note("%s: %d%% of %s, %s", p->source.name, percent, term_bytes((double)total, text, sizeof text),
		  pace);
}

/* ---- the command ---- */

static void print_files(const struct pull *p)
{
	struct table t = {0};
	char size[32];
	table_row(&t, "FILE", "SIZE", "CHECKSUM", NULL);
	for (size_t i = 0; i < p->files.n; i++) {
		const struct file_entry *f = &p->files.files[i];
		if (!f->chosen)
			continue;
		table_begin(&t);
		table_text(&t, f->path);
		table_text(&t, term_bytes((double)f->size, size, sizeof size));
		table_text(&t, f->digest == DIGEST_SHA256 ? "SHA-256"
			       : f->digest == DIGEST_GIT  ? "Git's SHA-1"
							  : "none");
	}
	table_print(&t, stdout);
	table_fini(&t);
}

static void print_done(const struct pull *p, const struct download *d)
{
	int64_t bytes;
	char a[32], b[32];
	const size_t n = file_list_chosen(&p->files, &bytes);
	const double s = (double)(clock_us() - p->began_us) * 1e-6;
	printf("%s@%.12s: %zu file%s, %s", p->source.name, p->files.commit, n, n == 1 ? "" : "s",
	       term_bytes((double)bytes, a, sizeof a));
	if (d->received)
		printf("; %s fetched in %.0f s", term_bytes((double)d->received, b, sizeof b), s);
	printf("\n  in %s\n", p->target.final);
	if (d->unchecked)
		term_note("the server has no checksums for %zu of the files: only their sizes were checked",
			  d->unchecked);
}

/* Choose the token and the server that receives it: QUERN_TOKEN is for the server given on the command line,
 * HF_TOKEN for the hub. */
static void choose_token(const struct source *s, struct http_settings *settings, char *origin, size_t n)
{
	const struct environment env = environment_read();
	char hub[SOURCE_URL_MAX];
	source_origin(s->kind == SOURCE_HUB ? s->endpoint : s->url, origin, n);
	settings->token_origin = origin;
	settings->token = env.token;
	if (!settings->token && env.hub_token && source_origin(s->endpoint, hub, sizeof hub) &&
	    strcmp(hub, origin) == 0)
		settings->token = env.hub_token;
}

static int list_files(struct pull *p, struct why *why)
{
	char origin[SOURCE_URL_MAX];
	struct http_settings settings = {.ca = opts_text(p->o, "ca")};
	const struct opt_value *include = opts_value(p->o, "include"), *exclude = opts_value(p->o, "exclude");
	const struct file_globs globs = {include->texts, exclude->texts, include->n_texts, exclude->n_texts};
	choose_token(&p->source, &settings, origin, sizeof origin);
	int rc = http_open(&settings, &p->http, why);
	if (!rc)
		rc = hub_list(p->http, &p->source, &p->files, why);
	if (!rc) {
		rc = file_list_choose(&p->files, &globs, why);
		if (rc)
			err_prefix(why, rc, "%s", p->source.name);
	}
	return rc;
}

static int fetch(struct pull *p, struct why *why)
{
	struct download d = {.list = &p->files,
			     .connections = (int)opts_int(p->o, "connections"),
			     .progress = show,
			     .ctx = p};
	int rc = cache_target_open(&p->target, p->source.name, p->files.commit, why);
	if (rc)
		return rc;
	d.dir = p->target.staging;
	if (!cache_target_has(&p->target, &p->files)) {
		rc = cache_target_stage(&p->target, &p->files, why);
		if (!rc)
			rc = download_check_space(&p->files, d.dir, why);
		p->began_us = p->line_us = clock_us();
		if (!rc)
			rc = download_run(p->http, &d, why);
		term_progress_end();
	}
	/* Also update an entry that was already complete: it is now the newest, and its revision may have
	 * another name. */
	if (!rc && d.received == 0 && cache_target_has(&p->target, &p->files))
		rc = cache_target_touch(&p->target, &p->source, &p->files, why);
	else if (!rc)
		rc = cache_target_publish(&p->target, &p->source, &p->files, why);
	if (!rc)
		print_done(p, &d);
	return rc;
}

static int pull(struct pull *p, struct why *why)
{
	int rc = list_files(p, why);
	if (!rc && opts_flag(p->o, "dry-run"))
		print_files(p);
	else if (!rc) {
		rc = fetch(p, why);
		if (rc == -EINTR || rc == -EAGAIN || rc == -ECONNABORTED || rc == -ETIMEDOUT ||
		    rc == -EHOSTUNREACH)
			err_append(why, rc, "; what was fetched is kept: the same command resumes");
	}
	return rc;
}

int cmd_pull(int argc, char **argv)
{
	struct opts o = {0};
	struct pull p = {.o = &o, .at_first = -1, .target.lock = -1};
	struct why why;
	opts_add_program(&o, OPTION_PULL);
	int status = command_parse(&o, &usage, argc, argv);
	if (status == COMMAND_GO_ON) {
		const char *hub = environment_read().hub;
		if (source_parse(o.words[0], opts_text_or(&o, "endpoint", hub ? hub : HUB),
				 opts_text(&o, "as"), &p.source, &why)) {
			status = term_usage("pull", "%s", why.text);
		} else {
			signal(SIGPIPE, SIG_IGN); /* SIGPIPE of connections */
			signal(SIGXFSZ, SIG_IGN); /* writes beyond RLIMIT_FSIZE return an error instead */
			interrupt_arm();
			const int rc = pull(&p, &why);
			interrupt_disarm();
			status = term_finish(rc ? term_error("%s", why.text) : 0);
		}
	}
	cache_target_close(&p.target);
	file_list_fini(&p.files);
	http_close(p.http);
	opts_fini(&o);
	return status;
}
