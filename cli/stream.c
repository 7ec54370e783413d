#include "cli/stream.h"

#include "base/alloc.h"
#include "base/err.h"
#include "cli/terminal/term.h"
#include "controller/chat/reasoning.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* One output: its text, and how much of it was printed. */
struct output {
	struct buf text; /* all of it */
	size_t printed;  /* bytes */
	bool ended;
	bool split;                /* the splitter was started */
	struct reasoning splitter; /* what was printed, where reasoning is dimmed */
	bool thought;              /* reasoning was printed, and no answer after it */
	bool newline;              /* what was printed ends with one */
};

struct printer {
	const struct stream *how;
	struct output *outputs;
	size_t n_outputs;
	size_t turn; /* the one being printed */
};

/* More outputs than any service allows: a larger index is ignored. */
static const size_t outputs_max = 1 << 20;

static struct output *output_at(struct printer *p, const json_t *reply)
{
	json_int_t index = json_integer_value(json_object_get(reply, "index"));
	if (index < 0 || (size_t)index >= outputs_max)
		return NULL;
	if ((size_t)index >= p->n_outputs) {
		p->outputs = xrealloc(p->outputs, (size_t)index + 1, sizeof *p->outputs);
		memset(p->outputs + p->n_outputs, 0, ((size_t)index + 1 - p->n_outputs) * sizeof *p->outputs);
		p->n_outputs = (size_t)index + 1;
	}
	return &p->outputs[index];
}

/* A terminal obeys control characters: a text may only break lines and use tabs. */
static void put_text(const char *p, size_t n)
{
	const bool terminal = term_is_tty(stdout);
	if (!terminal) {
		fwrite(p, 1, n, stdout);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		const unsigned char c = (unsigned char)p[i], next = i + 1 < n ? (unsigned char)p[i + 1] : 0;
		if (c == 0xc2 && next >= 0x80 && next < 0xa0)
			i++; /* U+0080 to U+009F */
		else if ((c >= ' ' && c != 0x7f) || c == '\n' || c == '\t')
			putchar(c);
	}
}

static void splitter_init(struct reasoning *r, const struct stream *how)
{
	reasoning_init(r, how->reasoning_open);
	if (how->marks)
		r->marks = how->marks;
}

/* Prints the new text of an output, its reasoning dimmed. */
static void print_split(const struct printer *p, struct output *o, const char *dim)
{
	struct buf thought = {0}, answer = {0};
	if (!o->split) {
		splitter_init(&o->splitter, p->how);
		o->split = true;
	}
	reasoning_push(&o->splitter, o->text.p + o->printed, o->text.len - o->printed, &thought, &answer);
	if (o->ended)
		reasoning_end(&o->splitter, &thought, &answer);
	if (thought.len) {
		fputs(dim, stdout);
		put_text(thought.p, thought.len);
		fputs(term_style(stdout, TERM_PLAIN), stdout);
		o->thought = true;
		o->newline = thought.p[thought.len - 1] == '\n';
	}
	if (answer.len) {
		if (o->thought)
			fputs(o->newline ? "\n" : "\n\n", stdout);
		o->thought = false;
		put_text(answer.p, answer.len);
		o->newline = answer.p[answer.len - 1] == '\n';
	}
	buf_fini(&thought);
	buf_fini(&answer);
}

static void print_output(const struct printer *p, struct output *o)
{
	const char *dim = p->how->reasoning ? term_style(stdout, TERM_DIM) : "";
	const bool more = o->text.len > o->printed;
	if (*dim && (more || (o->ended && o->split))) {
		print_split(p, o, dim);
	} else if (more) {
		put_text(o->text.p + o->printed, o->text.len - o->printed);
		o->newline = o->text.p[o->text.len - 1] == '\n';
	}
	o->printed = o->text.len;
}

/* Prints new text of the current output, and after its end of the next ones. */
static void print_some(struct printer *p)
{
	while (p->turn < p->n_outputs) {
		struct output *o = &p->outputs[p->turn];
		if (p->turn && !o->printed && (o->text.len || o->ended))
			putchar('\n');
		print_output(p, o);
		if (!o->ended)
			break;
		if (!o->newline)
			putchar('\n');
		p->turn++;
	}
	fflush(stdout);
}

static void on_delta(struct printer *p, const json_t *reply)
{
	const json_t *text = json_object_get(reply, "text");
	struct output *o = output_at(p, reply);
	if (!o || o->ended)
		return;
	if (json_is_string(text))
		buf_put(&o->text, json_string_value(text), json_string_length(text));
	/* Set in an output's last delta. */
	if (json_is_string(json_object_get(reply, "finish_reason")))
		o->ended = true;
	if (!p->how->json)
		print_some(p);
}

/* The whole result: text that no delta brought is added. */
static void on_done(struct printer *p, const json_t *reply)
{
	size_t i;
	const json_t *out;
	json_array_foreach(json_object_get(reply, "outputs"), i, out)
	{
		const json_t *text = json_object_get(out, "text");
		struct output *o = output_at(p, out);
		if (!o)
			continue;
		size_t n = json_string_length(text);
		if (!p->how->partial && n > o->text.len)
			buf_put(&o->text, json_string_value(text) + o->text.len, n - o->text.len);
		o->ended = true;
	}
	for (i = 0; i < p->n_outputs; i++)
		p->outputs[i].ended = true;
	if (!p->how->json)
		print_some(p);
}

static int outcome(const json_t *done, char *why, size_t why_n)
{
	size_t i;
	const json_t *out;
	json_array_foreach(json_object_get(done, "outputs"), i, out)
	{
		const char *finish = json_string_value(json_object_get(out, "finish_reason"));
		if (finish && strcmp(finish, "abort") == 0)
			return json_is_true(json_object_get(done, "service_ended"))
				       ? err_why(why, why_n, -ECANCELED,
						 "the service ended before the job did")
				       : err_why(why, why_n, -ECANCELED, "cancelled");
		if (finish && strcmp(finish, "error") == 0)
			return err_why(why, why_n, -EIO, "an output ended with an error");
	}
	return 0;
}

void stream_print_json(json_t *reply)
{
	json_object_del(reply, "op");
	json_object_del(reply, "id");
	json_dumpf(reply, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
	putchar('\n');
	fflush(stdout);
}

static void printer_fini(struct printer *p)
{
	for (size_t i = 0; i < p->n_outputs; i++) {
		buf_fini(&p->outputs[i].text);
		if (p->outputs[i].split)
			reasoning_fini(&p->outputs[i].splitter);
	}
	free(p->outputs);
}

void stream_print_done(const json_t *done)
{
	const struct stream how = {0};
	struct printer p = {.how = &how};
	on_done(&p, done);
	printer_fini(&p);
}

/* One reply of the job; *over when it was the last. */
static int on_reply(struct printer *p, json_t *reply, bool *over, char *why, size_t why_n)
{
	const char *op = client_reply_op(reply);
	if (strcmp(op, "delta") == 0) {
		on_delta(p, reply);
	} else if (strcmp(op, "done") == 0) {
		*over = true;
		on_done(p, reply);
		if (p->how->json)
			stream_print_json(reply);
		return outcome(reply, why, why_n);
	} else if (strcmp(op, "error") == 0) {
		*over = true;
		client_reply_error(reply, why, why_n);
		return -EREMOTEIO;
	}
	return 0;
}

/* The first output without its reasoning. */
static void collect_answer(const struct printer *p)
{
	const struct buf *text = &p->outputs[0].text;
	struct reasoning splitter;
	struct buf thought = {0};
	if (!p->how->reasoning) {
		buf_put(p->how->text, text->p ? text->p : "", text->len);
		return;
	}
	splitter_init(&splitter, p->how);
	reasoning_push(&splitter, text->p ? text->p : "", text->len, &thought, p->how->text);
	reasoning_end(&splitter, &thought, p->how->text);
	reasoning_fini(&splitter);
	buf_fini(&thought);
}

/* Cancels the job; its end arrives as `done`. */
static int cancel(struct client *c, const char *job, char *why, size_t why_n)
{
	json_t *r = json_pack("{s:s, s:s}", "op", "cancel", "job", job);
	int rc = client_send(c, r, NULL, why, why_n);
	json_decref(r);
	return rc;
}

int stream_job(struct client *c, json_t *request, const struct stream *how, char *why, size_t why_n)
{
	struct printer p = {.how = how};
	/* Time for a cancelled job to end. */
	const int cancel_ms = 5000;
	const char *known = json_string_value(json_object_get(request, "job"));
	char *job = known ? xstrdup(known) : NULL;
	bool over = false, stop = false, cancelled = false;
	uint64_t id;
	int rc = client_send(c, request, &id, why, why_n);
	while (!rc && !over) {
		json_t *reply = NULL;
		rc = client_recv(c, stop ? cancel_ms : -1, &reply, why, why_n);
		if (rc == -EINTR && how->stay && interrupt_signal() == SIGINT) {
			interrupt_arm();
			stop = true;
			rc = 0;
		} else if (rc == -EINTR && !how->stay && !how->watch && !stop && job) {
			interrupt_disarm(); /* from here on Ctrl-C kills */
			stop = true;
			rc = 0;
		}
		if (!rc && client_reply_id(reply) == id) {
			const char *name = json_string_value(json_object_get(reply, "job"));
			if (name && !job)
				job = xstrdup(name);
			rc = on_reply(&p, reply, &over, why, why_n);
		}
		if (!rc && stop && job && !cancelled && !over) {
			cancelled = true;
			rc = cancel(c, job, why, why_n);
		}
		json_decref(reply);
	}
	/* Text before a failure ends its line. */
	if (!how->json && p.turn < p.n_outputs && p.outputs[p.turn].printed && !p.outputs[p.turn].newline)
		putchar('\n');
	fflush(stdout);
	if (how->text && p.n_outputs)
		collect_answer(&p);
	if (rc == -EINTR && how->watch)
		rc = 0;
	else if ((cancelled && over) || rc == -EINTR)
		rc = err_why(why, why_n, -ECANCELED, "cancelled");
	free(job);
	printer_fini(&p);
	return rc;
}
