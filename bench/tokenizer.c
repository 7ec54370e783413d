/* Everything runs in one thread.  The reference runs alternate with our runs in one invocation, so that both
 * see the same load of the machine.  The reference's conversion of ids to Python lists is not counted.  The
 * ids of both are compared. */
#include "bench/commands.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/option_table.h"
#include "cli/command.h"
#include "cli/terminal/term.h"
#include "cli/models/cache.h"
#include "controller/tokenizer/tokenizer.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEXT_MAX = 1 << 30, RUNS_MAX = 1000, REPLY_MS = 600 * 1000 };

static const struct usage usage = {
	.name = "bench tokenizer",
	.words = "MODEL",
	.about = "Measures how fast the tokenizer of the model in directory MODEL encodes --text, in one "
		 "thread.",
	.min_words = 1,
	.max_words = 1,
};

/* Arguments: tokenizer.json, text, chunk.  Prints one line per line on stdin: seconds, ids, CRC-32. */
static const char python_script[] =
	"import sys, time, zlib, array\n"
	"import tokenizers\n"
	"tok = tokenizers.Tokenizer.from_file(sys.argv[1])\n"
	"b, chunk, texts, at = open(sys.argv[2], 'rb').read(), int(sys.argv[3]), [], 0\n"
	"while at < len(b):\n"
	"    to = min(len(b), at + chunk) if chunk else len(b)\n"
	"    while to < len(b) and to > at and b[to] & 0xc0 == 0x80: to -= 1\n"
	"    texts.append(b[at:to].decode()); at = to\n"
	"print(tokenizers.__version__, flush=True)\n"
	"for _ in sys.stdin:\n"
	"    t = time.perf_counter()\n"
	"    out = [tok.encode(x, add_special_tokens=False) for x in texts]\n"
	"    t = time.perf_counter() - t\n"
	"    n = crc = 0\n"
	"    for e in out: n += len(e.ids); crc = zlib.crc32(array.array('I', e.ids).tobytes(), crc)\n"
	"    print(t, n, crc, flush=True)\n";

struct python {
	pid_t pid;
	FILE *to;
	int from;
	struct buf line;
	char version[64];
};

struct run_result {
	double seconds;
	uint64_t n_ids;
	uint32_t crc;
};

struct bench {
	struct tokenizer *tokenizer;
	char *tokenizer_path;
	const char *text_path;
	char *text;
	size_t n;
	size_t chunk;
	int64_t runs;
	double ours[RUNS_MAX], theirs[RUNS_MAX]; /* seconds */
	struct run_result last, last_theirs;
};

/* ---- the reference ---- */

static int python_start(struct python *py, const char *program, const struct bench *b, struct why *why)
{
	char chunk[32],
		*argv[] = {
			(char *)program, "-c", (char *)python_script, b->tokenizer_path, (char *)b->text_path,
			chunk,           NULL};
	int in[2], out[2];
	posix_spawn_file_actions_t fa;
	snprintf(chunk, sizeof chunk, "%zu", b->chunk);
	if (pipe2(in, O_CLOEXEC))
		return err_why(why, -errno, "pipe: %s", strerror(errno));
	if (pipe2(out, O_CLOEXEC)) {
		close(in[0]);
		close(in[1]);
		return err_why(why, -errno, "pipe: %s", strerror(errno));
	}
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, in[0], 0);
	posix_spawn_file_actions_adddup2(&fa, out[1], 1);
	int rc = posix_spawnp(&py->pid, program, &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	close(in[0]);
	close(out[1]);
	py->to = fdopen(in[1], "w");
	py->from = out[0];
	return rc ? err_why(why, -rc, "%s: %s", program, strerror(rc)) : 0;
}

/* Read the next line of the reference's output into py->line, without the newline. */
static int python_line(struct python *py, struct why *why)
{
	char c;
	buf_clear(&py->line);
	for (;;) {
		struct pollfd fd = {.fd = py->from, .events = POLLIN};
		if (poll(&fd, 1, REPLY_MS) <= 0)
			return err_why(why, -ETIMEDOUT, "the Python process does not answer");
		if (read(py->from, &c, 1) != 1)
			return err_why(why, -EPIPE,
				       "the Python process ended (is the package tokenizers there?)");
		if (c == '\n')
			return 0;
		buf_putc(&py->line, c);
	}
}

static int python_run(struct python *py, struct run_result *r, struct why *why)
{
	fputs("run\n", py->to);
	fflush(py->to);
	int rc = python_line(py, why);
	if (rc)
		return rc;
	if (sscanf(py->line.p, "%lf %" SCNu64 " %" SCNu32, &r->seconds, &r->n_ids, &r->crc) != 3)
		return err_why(why, -EPROTO, "unexpected output of the Python process: \"%.100s\"",
			       py->line.p);
	return 0;
}

static void python_stop(struct python *py)
{
	if (py->to)
		fclose(py->to);
	if (py->pid > 0) {
		close(py->from);
		kill(py->pid, SIGTERM);
		waitpid(py->pid, NULL, 0);
	}
	buf_fini(&py->line);
}

/* ---- one run ---- */

/* Compute CRC-32 as zlib does. */
static uint32_t crc32_of(const void *data, size_t n)
{
	uint32_t table[256], crc = UINT32_MAX;
	const unsigned char *p = data;
	for (uint32_t i = 0; i < 256; i++) {
		table[i] = i;
		for (int k = 0; k < 8; k++)
			table[i] = table[i] & 1 ? table[i] >> 1 ^ 0xedb88320u : table[i] >> 1;
	}
	for (size_t i = 0; i < n; i++)
		crc = table[(crc ^ p[i]) & 255] ^ crc >> 8;
	return ~crc;
}

/* Return the end of the chunk that begins at `at`, at a character boundary. */
static size_t chunk_end(const struct bench *b, size_t at)
{
	size_t to = b->chunk && b->chunk < b->n - at ? at + b->chunk : b->n;
	while (to < b->n && to > at && ((unsigned char)b->text[to] & 0xc0) == 0x80)
		to--;
	return to;
}

static int our_run(struct bench *b, struct token_ids *ids, struct why *why)
{
	ids->n = 0;
	int64_t begin = clock_us();
	for (size_t at = 0, to; at < b->n; at = to) {
		to = chunk_end(b, at);
		int rc = tokenizer_encode(b->tokenizer, b->text + at, to - at, 0, NULL, 0, ids, why);
		if (rc)
			return rc;
	}
	int64_t us = clock_us() - begin;
	b->last = (struct run_result){(double)(us ? us : 1) / 1e6, ids->n, crc32_of(ids->ids, ids->n * 4)};
	return 0;
}

static int measure(struct bench *b, struct python *py, struct why *why)
{
	struct token_ids ids = {0};
	int rc = our_run(b, &ids, why); /* warm-up */
	for (int64_t i = 0; i < b->runs && rc == 0; i++) {
		rc = our_run(b, &ids, why);
		b->ours[i] = b->last.seconds;
		if (rc == 0 && py) {
			rc = python_run(py, &b->last_theirs, why);
			b->theirs[i] = b->last_theirs.seconds;
		}
	}
	token_ids_fini(&ids);
	return rc;
}

/* ---- report ---- */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *x, int64_t n)
{
	qsort(x, (size_t)n, sizeof *x, compare);
	return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static json_t *figures(const struct bench *b, const struct run_result *r, double seconds)
{
	return json_pack("{s:f, s:f, s:f, s:I}", "seconds", seconds, "mb_per_s", (double)b->n / 1e6 / seconds,
			 "tokens_per_s", (double)r->n_ids / seconds, "tokens", (json_int_t)r->n_ids);
}

static void print_line(const char *name, const char *version, const struct bench *b,
		       const struct run_result *r, double seconds)
{
	printf("%-10s %-10s %10.2f MB/s %14.0f tokens/s %10" PRIu64 " tokens\n", name, version,
	       (double)b->n / 1e6 / seconds, (double)r->n_ids / seconds, r->n_ids);
}

/* Print the results.  Returns the exit status: 1 if the ids differ. */
static int report(struct bench *b, const struct python *py, bool json)
{
	double ours = median(b->ours, b->runs), theirs = py ? median(b->theirs, b->runs) : 0;
	bool same = !py || (b->last.n_ids == b->last_theirs.n_ids && b->last.crc == b->last_theirs.crc);
	if (json) {
		json_t *o = json_pack("{s:s, s:I, s:I, s:I, s:o}", "text", b->text_path, "bytes",
				      (json_int_t)b->n, "chunk", (json_int_t)b->chunk, "runs",
				      (json_int_t)b->runs, "quern", figures(b, &b->last, ours));
		if (py) {
			json_t *f = figures(b, &b->last_theirs, theirs);
			json_object_set_new(f, "version", json_string(py->version));
			json_object_set_new(o, "tokenizers", f);
			json_object_set_new(o, "ratio", json_real(theirs / ours));
			json_object_set_new(o, "same_ids", json_boolean(same));
		}
		json_dumpf(o, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(o);
	} else {
		print_line("quern", "", b, &b->last, ours);
		if (py) {
			print_line("tokenizers", py->version, b, &b->last_theirs, theirs);
			printf("ratio %.2f, ids %s (median of %" PRId64 ", one thread)\n", theirs / ours,
			       same ? "identical" : "DIFFERENT", b->runs);
		}
	}
	return same ? 0 : term_error("the ids differ from the reference's");
}

static int run_bench(struct bench *b, const struct opts *o, struct why *why)
{
	struct python py = {0};
	bool with = opts_flag(o, "compare");
	int rc = 0, status = 1;
	if (with) {
		/* Use one thread for both.  A dead child must be an error of write(), not a signal. */
		setenv("TOKENIZERS_PARALLELISM", "false", 1);
		setenv("RAYON_NUM_THREADS", "1", 1);
		signal(SIGPIPE, SIG_IGN);
		rc = python_start(&py, opts_text(o, "python"), b, why);
		if (rc == 0)
			rc = python_line(&py, why);
		snprintf(py.version, sizeof py.version, "%.60s", py.line.p ? py.line.p : "");
	}
	if (rc == 0)
		rc = measure(b, with ? &py : NULL, why);
	status = rc ? term_error("%s", why->text) : report(b, with ? &py : NULL, opts_flag(o, "json"));
	python_stop(&py);
	return status;
}

static int bench_tokenizer(const struct opts *o)
{
	struct bench *b = xcalloc(1, sizeof *b);
	struct why why;
	b->text_path = opts_text(o, "text");
	b->runs = opts_int(o, "runs");
	b->chunk = (size_t)opts_int(o, "chunk");
	char dir[PATH_MAX], name[CACHED_NAME];
	cache_find(o->words[0], dir, name);
	b->tokenizer_path = file_join(dir, "tokenizer.json");
	int status = 1, rc = tokenizer_load(dir, &b->tokenizer, &why);
	if (rc == 0)
		rc = file_read(b->text_path, TEXT_MAX, &b->text, &b->n, &why);
	if (rc == 0 && b->n == 0)
		rc = err_why(&why, -EINVAL, "%s is empty", b->text_path);
	if (rc == 0 && b->chunk > 0 && b->chunk < 4)
		rc = err_why(&why, -EINVAL, "--chunk must be 0 or at least 4, the bytes of a character");
	status = rc ? term_error("%s", why.text) : run_bench(b, o, &why);
	tokenizer_free(b->tokenizer);
	free(b->tokenizer_path);
	free(b->text);
	free(b);
	return status;
}

static int run(struct opts *o)
{
	return opts_text(o, "text") ? bench_tokenizer(o) : term_usage(usage.name, "--text is missing");
}

int cmd_bench_tokenizer(int argc, char **argv)
{
	return command_run(&usage, OPTION_BENCH_TOKENIZER, run, argc, argv);
}
