#include "quant/compare.h"

#include "quant/measure.h"
#include "quant/parallel.h"
#include "quant/progress.h"
#include "quant/runner.h"
#include "quant/windows.h"

#include "base/buf.h"
#include "base/json_write.h"

#include <math.h>
#include <stdio.h>

static void show_progress(void *arg, double done)
{
	progress_step(arg, done, "comparing");
}

/* Write null for infinities and NaN, which JSON lacks and a broken model may give. */
static void put_number(struct buf *b, const char *before, double x)
{
	buf_puts(b, before);
	if (isfinite(x))
		buf_printf(b, "%.9g", x);
	else
		buf_puts(b, "null");
}

static void print_json(const struct compare_options *o, const struct measure *m)
{
	struct buf b = {0};
	buf_puts(&b, "{\"a\":");
	json_write_str(&b, o->a);
	buf_puts(&b, ",\"b\":");
	json_write_str(&b, o->b);
	buf_printf(&b, ",\"tokens\":%d,\"scored\":%d", m->n_tokens, m->n_scored);
	put_number(&b, ",\"perplexity_a\":", exp(m->nll[0]));
	put_number(&b, ",\"perplexity_b\":", exp(m->nll[1]));
	put_number(&b, ",\"kl\":", m->kl);
	put_number(&b, ",\"kl_max\":", m->kl_max);
	put_number(&b, ",\"agreement\":", m->agree);
	put_number(&b, ",\"logits_snr_db\":", layer_error_db(&m->logits));
	buf_puts(&b, ",\"layers_snr_db\":[");
	for (int i = 0; i < m->n_layers; i++)
		put_number(&b, i ? "," : "", layer_error_db(&m->layers[i]));
	buf_puts(&b, "]}\n");
	fwrite(b.p, 1, b.len, stdout);
	buf_fini(&b);
}

static void print_text(const struct compare_options *o, const struct measure *m)
{
	printf("%d tokens of %s\n", m->n_scored, o->text);
	printf("perplexity     %.4f  %s\n", exp(m->nll[0]), o->a);
	printf("perplexity     %.4f  %s (%+.2f%%)\n", exp(m->nll[1]), o->b,
	       100 * (exp(m->nll[1] - m->nll[0]) - 1));
	printf("KL             %.6f nats, %.4f at most\n", m->kl, m->kl_max);
	printf("same top token %.2f%%\n", 100 * m->agree);
	printf("logits         %.1f dB signal to noise\n", layer_error_db(&m->logits));
	for (int i = 0; i < m->n_layers; i++)
		printf("layer %-8d %.1f dB, accumulated\n", i, layer_error_db(&m->layers[i]));
}

int compare_run(const struct compare_options *o, struct why *why)
{
	parallel_limit(o->n_threads);
	struct measure_model a = {0}, b = {0};
	struct windows text = {0};
	struct progress progress;
	struct measure m = {.progress = show_progress,
			    .progress_arg = &progress,
			    .n_threads = o->n_threads,
			    .no_linears = true};
	int rc = measure_model_open(&a, o->a, why);
	if (!rc)
		rc = measure_model_open(&b, o->b, why);
	if (!rc) {
		const int x = runner_window(&a.config), y = runner_window(&b.config);
		rc = windows_read(&text, o->a, o->text, x < y ? x : y, o->n_tokens, a.config.n_vocab, why);
	}
	progress_begin(&progress, 0);
	if (!rc)
		rc = measure_run(&m, &a, &b, &text, why);
	progress_end(&progress);
	if (!rc && o->json)
		print_json(o, &m);
	else if (!rc)
		print_text(o, &m);
	measure_fini(&m);
	windows_fini(&text);
	measure_model_close(&a);
	measure_model_close(&b);
	return rc;
}
