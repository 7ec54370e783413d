#include "cli/batch_file.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/replace.h"
#include "cli/command.h"
#include "cli/launch.h"
#include "cli/terminal/term.h"
#include "formats/batch_lines.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum {
	LINES_MAX = 10 * 1000 * 1000,
	LINE_BYTES_MAX = 16 << 20,
	RETRY_MS = 500,       /* wait after a temporary refusal, or while the service is away */
	DRAW_US = 100 * 1000, /* interval between two updates of the progress bar */
};

/* States of a line.  A running line returns to LINE_WAITS if the service refuses it temporarily or goes
 * away. */
enum { LINE_WAITS, LINE_RUNS, LINE_DONE };

/* Position of a line's result in the .part file. */
struct result {
	int64_t at;
	uint32_t n;
	bool failed;
};

struct in_flight {
	uint64_t id; /* id of the request */
	uint32_t line;
};

struct batch {
	struct client **client;
	const struct opts *o;
	const void *input; /* mapped */
	size_t input_n;
	char *output, *part_path;
	FILE *part;
	int64_t part_n;
	char run[33];    /* random, in hexadecimal; part of the jobs' idempotency keys */
	uint64_t digest; /* hash of the input */
	struct batch_line *lines;
	struct result *results; /* [n_lines] */
	uint32_t n_lines, next, n_done, n_failed;
	uint32_t window, window_max; /* limit of n_running; halved while the service refuses */
	struct in_flight *running;   /* [window_max] */
	uint32_t n_running;
	int64_t began_us, drawn_us;
	uint32_t n_before; /* lines done by an earlier command */
	bool away;
};

/* ---- progress ---- */

static void draw(struct batch *b, bool last)
{
	int64_t now = clock_us();
	if (!term_is_tty(stderr) || (!last && now - b->drawn_us < DRAW_US))
		return;
	b->drawn_us = now;
	char bar[31];
	uint32_t full = b->n_lines ? (uint32_t)((uint64_t)b->n_done * 30 / b->n_lines) : 30;
	for (uint32_t i = 0; i < 30; i++)
		bar[i] = i < full ? '#' : '.';
	bar[30] = 0;
	double s = (double)(now - b->began_us) / 1e6, rate = s > 0 ? (b->n_done - b->n_before) / s : 0;
	fprintf(stderr, "\r[%s] %u/%u lines", bar, b->n_done, b->n_lines);
	if (b->n_failed)
		fprintf(stderr, ", %s%u failed%s", term_style(stderr, TERM_RED), b->n_failed,
			term_style(stderr, TERM_PLAIN));
	if (b->away)
		fprintf(stderr, ", the service is away");
	else if (rate > 0 && b->n_done < b->n_lines)
		fprintf(stderr, ", %.1f/s, %.0f s left", rate, (b->n_lines - b->n_done) / rate);
	fprintf(stderr, "\033[K%s", last ? "\n" : "");
	fflush(stderr);
}

/* ---- input ---- */

static void line_where(const struct batch *b, char *out, size_t n, size_t line)
{
	snprintf(out, n, "%s: line %zu", opts_text(b->o, "batch"), line);
}

static int read_input(struct batch *b, struct why *why)
{
	struct batch_scan s;
	int rc = file_map(opts_text(b->o, "batch"), &b->input, &b->input_n, why);
	if (rc)
		return rc;
	b->digest = XXH3_64bits(b->input, b->input_n);
	batch_scan_init(&s, NULL, LINES_MAX, LINE_BYTES_MAX);
	batch_scan_put(&s, b->input, b->input_n);
	batch_scan_end(&s);
	const json_t *e = json_array_get(s.errors, 0);
	if (e) {
		char where[300];
		line_where(b, where, sizeof where, (size_t)json_integer_value(json_object_get(e, "line")));
		rc = err_why(why, -EINVAL, "%s: %s", where, json_string_value(json_object_get(e, "message")));
	} else {
		b->lines = s.lines;
		b->n_lines = s.n_lines;
		s.lines = NULL;
		b->results = xcalloc(b->n_lines, sizeof *b->results);
		b->running = xcalloc(b->window_max, sizeof *b->running);
	}
	batch_scan_fini(&s);
	return rc;
}

/* Return the output's name: "in.jsonl" becomes "in.out.jsonl". */
static char *output_of(const char *input)
{
	const char *dot = strrchr(input, '.'), *slash = strrchr(input, '/');
	if (!dot || (slash && dot < slash) || dot == input)
		return xasprintf("%s.out", input);
	return xasprintf("%.*s.out%s", (int)(dot - input), input, dot);
}

/* ---- the .part file ---- */

static int write_part(struct batch *b, const struct buf *text, struct why *why)
{
	if (fwrite(text->p, 1, text->len, b->part) != text->len || fflush(b->part))
		return err_why(why, -errno, "%s: %s", b->part_path, strerror(errno));
	b->part_n += (int64_t)text->len;
	return 0;
}

/* Append a record: "LINE FAILED BYTES\n", the result, "\n". */
static int store(struct batch *b, uint32_t line, bool failed, const struct buf *result, struct why *why)
{
	struct buf text = {0};
	buf_printf(&text, "%u %d %zu\n", line, failed, result->len);
	b->results[line] = (struct result){
		.at = b->part_n + (int64_t)text.len, .n = (uint32_t)result->len, .failed = failed};
	buf_put(&text, result->p, result->len);
	buf_putc(&text, '\n');
	int rc = write_part(b, &text, why);
	buf_fini(&text);
	b->lines[line].state = LINE_DONE;
	b->n_done++;
	b->n_failed += failed;
	return rc;
}

/* Copy the first line of p.  sscanf() on p itself would scan to the end of the whole file. */
static bool head_of(const char *p, size_t n, char *out, size_t out_n)
{
	const char *end = memchr(p, '\n', n < out_n ? n : out_n);
	if (!end || (size_t)(end - p) >= out_n)
		return false;
	memcpy(out, p, (size_t)(end - p));
	out[end - p] = 0;
	return true;
}

/* Read the records of an interrupted command.  An incomplete record at the end is cut off. */
static int load_part(struct batch *b, const char *text, size_t n, struct why *why)
{
	uint64_t size, digest;
	char head[96];
	int n_read = 0;
	if (head_of(text, n, head, sizeof head))
		n_read = sscanf(head, "quern batch %32[0-9a-f] %" SCNu64 " %16" SCNx64, b->run, &size,
				&digest);
	if (n_read < 2)
		return err_why(why, -EBADMSG, "%s is not a .part file of an interrupted batch; remove it",
			       b->part_path);
	if (n_read < 3)
		return err_why(
			why, -EINVAL,
			"%s was written by an older quern, which did not record the input's digest; remove "
			"it to start over",
			b->part_path);
	if (size != b->input_n || digest != b->digest)
		return err_why(why, -EINVAL,
			       "%s belongs to other contents of the input file; remove it to start over",
			       b->part_path);
	size_t good = strlen(head) + 1;
	while (head_of(text + good, n - good, head, sizeof head)) {
		unsigned line, bytes;
		int failed;
		size_t from = good + strlen(head) + 1;
		if (sscanf(head, "%u %d %u", &line, &failed, &bytes) != 3 || line >= b->n_lines ||
		    bytes >= n - from || text[from + bytes] != '\n')
			break;
		if (b->lines[line].state != LINE_DONE) {
			b->lines[line].state = LINE_DONE;
			b->n_done++;
			b->n_failed += failed != 0;
		}
		b->results[line] = (struct result){(int64_t)from, bytes, failed != 0};
		good = from + bytes + 1;
	}
	b->part_n = (int64_t)good;
	b->n_before = b->n_done;
	return 0;
}

static int open_part(struct batch *b, struct why *why)
{
	const void *text = NULL;
	size_t n = 0;
	b->part = fopen(b->part_path, "ae+");
	if (!b->part)
		return err_why(why, -errno, "%s: %s", b->part_path, strerror(errno));
	if (flock(fileno(b->part), LOCK_EX | LOCK_NB))
		return err_why(why, -EBUSY, "%s is being written by another command", b->part_path);
	int rc = file_map(b->part_path, &text, &n, why);
	if (rc)
		return rc;
	if (n) {
		rc = load_part(b, text, n, why);
		file_unmap(text, n);
		if (!rc && ftruncate(fileno(b->part), b->part_n))
			rc = err_why(why, -errno, "%s: %s", b->part_path, strerror(errno));
	} else {
		uint8_t r[16];
		struct buf head = {0};
		if (getrandom(r, sizeof r, 0) != sizeof r)
			abort();
		for (size_t i = 0; i < sizeof r; i++)
			snprintf(b->run + 2 * i, 3, "%02x", r[i]);
		buf_printf(&head, "quern batch %s %zu %016" PRIx64 "\n", b->run, b->input_n, b->digest);
		rc = write_part(b, &head, why);
		buf_fini(&head);
	}
	return rc;
}

/* Write all results in the order of the input. */
static int write_output(struct batch *b, struct why *why)
{
	struct replace out;
	char *line = NULL;
	int rc = replace_begin(&out, b->output, 0666, why);
	size_t cap = 0;
	for (uint32_t i = 0; !rc && i < b->n_lines; i++) {
		const struct result *r = &b->results[i];
		if (r->n > cap)
			line = xrealloc(line, cap = r->n, 1);
		if (pread(fileno(b->part), line, r->n, r->at) != (ssize_t)r->n)
			rc = err_why(why, -EIO, "%s can no longer be read", b->part_path);
		else if (fwrite(line, 1, r->n, out.f) != r->n || putc('\n', out.f) == EOF)
			rc = err_why(why, -errno, "%s: %s", b->output, strerror(errno));
	}
	free(line);
	if (rc)
		replace_drop(&out);
	else
		rc = replace_end(&out, why);
	/* Remove the .part file only now, when the output's name is on the disk. */
	if (!rc)
		unlink(b->part_path);
	return rc;
}

/* ---- lines ---- */

/* Parse a line; the caller owns the tree.  NULL: the file has changed. */
static json_t *parse_line(const struct batch *b, uint32_t line, struct batch_line_request *request)
{
	const struct batch_line *l = &b->lines[line];
	struct batch_line_problem problem;
	if (batch_line_parse((const char *)b->input + l->at, l->n, NULL, request, &problem)) {
		json_decref(request->tree);
		return NULL;
	}
	return request->tree;
}

static json_t *line_request(const struct batch *b, uint32_t line, const struct batch_line_request *l)
{
	char key[80];
	snprintf(key, sizeof key, "batch %s %u", b->run, line);
	json_t *request = json_pack(
		"{s:s, s:O, s:o, s:s, s:s}", "op", "request", "url", json_object_get(l->tree, "url"), "body",
		json_stringn(l->body_text, l->body_text_n), "key", key, "on_disconnect", "keep");
	if (opts_flag(b->o, "durable"))
		json_object_set_new(request, "durable", json_true());
	if (opts_has(b->o, "priority"))
		json_object_set_new(request, "priority", json_integer(opts_int(b->o, "priority")));
	return request;
}

static int send_line(struct batch *b, uint32_t line, struct why *why)
{
	struct batch_line_request l;
	json_t *tree = parse_line(b, line, &l);
	if (!tree)
		return err_why(why, -EIO, "the input file has changed");
	json_t *request = line_request(b, line, &l);
	struct in_flight *u = &b->running[b->n_running];
	u->line = line;
	int rc = client_send(*b->client, request, &u->id, why);
	if (!rc) {
		b->lines[line].state = LINE_RUNS;
		b->n_running++;
	}
	json_decref(request);
	json_decref(tree);
	return rc;
}

static int send_lines(struct batch *b, struct why *why)
{
	int rc = 0;
	while (!rc && b->n_running < b->window && b->next < b->n_lines) {
		if (b->lines[b->next].state == LINE_WAITS)
			rc = send_line(b, b->next, why);
		b->next += !rc;
	}
	return rc;
}

/* Return a running line to LINE_WAITS. */
static void put_back(struct batch *b, uint32_t i)
{
	uint32_t line = b->running[i].line;
	b->lines[line].state = LINE_WAITS;
	b->running[i] = b->running[--b->n_running];
	if (line < b->next)
		b->next = line;
}

/* Return the index in running of a request; -1: none. */
static int64_t find_running(const struct batch *b, uint64_t id)
{
	for (uint32_t i = 0; i < b->n_running; i++)
		if (b->running[i].id == id)
			return i;
	return -1;
}

static bool is_code(const json_t *reply, const char *code)
{
	const char *c = json_string_value(json_object_get(reply, "code"));
	return c && strcmp(c, code) == 0;
}

/* Write the error of a request that the service refused, as the route of its url would.  Return the HTTP
 * status. */
static json_int_t put_refusal(struct buf *out, const json_t *reply)
{
	const bool too_long = is_code(reply, "E_TOO_LONG");
	json_t *error =
		json_pack("{s:{s:O?, s:s, s:O?, s:s?}}", "error", "message",
			  json_object_get(reply, "message"), "type", "invalid_request_error", "param",
			  json_object_get(reply, "field"), "code", too_long ? "request_too_large" : NULL);
	char *text = json_dumps(error, JSON_COMPACT);
	buf_puts(out, text ? text : "null");
	free(text);
	json_decref(error);
	return too_long ? 413 : 400;
}

static bool names_field(const json_t *reply, const char *field)
{
	const char *f = json_string_value(json_object_get(reply, "field"));
	return f && strcmp(f, field) == 0;
}

/* Store the result of a line that has ended. */
static int take_result(struct batch *b, uint32_t line, const json_t *reply, struct why *why)
{
	struct batch_line_request l;
	json_t *tree = parse_line(b, line, &l);
	if (!tree)
		return err_why(why, -EIO, "the input file has changed");
	const json_t *body = json_object_get(reply, "body");
	const char *id = json_string_value(json_object_get(reply, "request_id"));
	struct buf text = {0}, result = {0};
	json_int_t status = json_integer_value(json_object_get(reply, "status_code"));
	if (json_string_length(body)) {
		buf_put(&text, json_string_value(body), json_string_length(body));
	} else {
		status = put_refusal(&text, reply);
	}
	batch_line_result(&result, l.custom_id, (unsigned)status, id ? id : "", text.p, text.len);
	int rc = store(b, line, status != 200, &result, why);
	buf_fini(&text);
	buf_fini(&result);
	json_decref(tree);
	return rc;
}

/* Handle a reply.  0, or 1: the service refuses temporarily.  Negative with the reason: the batch cannot
 * continue. */
static int take_reply(struct batch *b, const json_t *reply, struct why *why)
{
	const int64_t at = find_running(b, client_reply_id(reply));
	const bool failed = strcmp(client_reply_op(reply), "error") == 0;
	if (at < 0)
		return 0;
	if (failed && (is_code(reply, "E_OVERLOADED") || is_code(reply, "E_NOT_READY") ||
		       is_code(reply, "E_INTERNAL"))) {
		client_reply_error(reply, why);
		put_back(b, (uint32_t)at);
		return 1;
	}
	/* Every line would be refused: the service has no journal, is older, or does not accept the key. */
	if (failed &&
	    (names_field(reply, "durable") || names_field(reply, "op") || is_code(reply, "E_AUTH"))) {
		client_reply_error(reply, why);
		return -EREMOTEIO;
	}
	uint32_t line = b->running[at].line;
	b->running[at] = b->running[--b->n_running];
	return take_result(b, line, reply, why);
}

/* ---- the run ---- */

/* The service has gone away: reconnect, and submit the lines in flight again under the same keys. */
static int reconnect(struct batch *b, struct why *why)
{
	client_close(*b->client);
	*b->client = NULL;
	while (b->n_running)
		put_back(b, b->n_running - 1);
	for (;;) {
		b->away = true;
		draw(b, false);
		if (interrupt_pending())
			return err_why(why, -EINTR, "interrupted");
		if (!command_open(b->o, b->client, why))
			break;
		usleep(RETRY_MS * 1000);
	}
	b->away = false;
	return 0;
}

static int run_lines(struct batch *b, struct why *why)
{
	int64_t wait_until = 0;
	while (b->n_done < b->n_lines) {
		json_t *reply = NULL;
		uint32_t n_done = b->n_done;
		int rc = clock_us() >= wait_until ? send_lines(b, why) : 0;
		draw(b, false);
		if (!rc && b->n_done < b->n_lines)
			rc = client_recv(*b->client, RETRY_MS, &reply, why);
		if (!rc && reply)
			rc = take_reply(b, reply, why);
		json_decref(reply);
		if (b->n_done > n_done && b->window < b->window_max)
			b->window++;
		if (rc == 1) {
			/* A full queue refuses many lines at once: halve the window only once. */
			if (clock_us() >= wait_until)
				b->window = b->window > 16 ? b->window / 2 : b->window > 8 ? 8 : b->window;
			wait_until = clock_us() + RETRY_MS * 1000;
			rc = 0;
		}
		if (rc == -ECONNRESET)
			rc = reconnect(b, why);
		if (rc && rc != -ETIMEDOUT)
			return rc;
	}
	return 0;
}

static int open_all(struct batch *b, struct why *why)
{
	const char *output = opts_text(b->o, "output");
	b->output = output ? xstrdup(output) : output_of(opts_text(b->o, "batch"));
	b->part_path = xasprintf("%s.part", b->output);
	if (file_exists(b->output) && !file_exists(b->part_path))
		return err_why(why, -EEXIST,
			       "%s already exists; remove it, or name another file with --output", b->output);
	int rc = read_input(b, why);
	return rc ? rc : open_part(b, why);
}

int batch_file_run(struct client **c, const struct opts *o)
{
	struct why why;
	uint32_t window = (uint32_t)opts_int(o, "concurrency");
	struct batch b = {.client = c, .o = o, .window = window, .window_max = window};
	int rc = open_all(&b, &why), status;
	b.began_us = clock_us();
	if (!rc)
		rc = run_lines(&b, &why);
	if (b.n_lines && !(rc && rc != -EINTR))
		draw(&b, true);
	if (!rc)
		rc = write_output(&b, &why);
	if (rc == -EINTR)
		status = term_error("interrupted: %u of %u lines are done; the same command continues",
				    b.n_done, b.n_lines);
	else if (rc)
		status = term_error("%s", why.text);
	else
		status = b.n_failed ? term_error("%u of %u lines have failed; see %s", b.n_failed, b.n_lines,
						 b.output)
				    : 0;
	if (!rc && !b.n_failed)
		printf("%s\n", b.output);
	if (b.part)
		fclose(b.part);
	file_unmap(b.input, b.input_n);
	free(b.lines);
	free(b.results);
	free(b.running);
	free(b.output);
	free(b.part_path);
	return status;
}
