#include "cli/stream.h"

#include "base/alloc.h"
#include "base/err.h"
#include "cli/terminal/term.h"
#include "cli/terminal/wrap.h"
#include "controller/chat/reasoning.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* One output, and how much of its text was printed. */
struct output {
	struct buf text; /* the whole text */
	size_t printed;  /* bytes printed */
	bool ended;
	bool split;                /* the splitter was initialised */
	struct reasoning splitter; /* state of the printed text, if reasoning is dimmed */
	bool reasoning;            /* reasoning was printed, but no answer after it yet */
	bool newline;              /* the printed text ends with a newline */
};

struct printer {
	const struct stream *how;
	struct output *outputs;
	size_t n_outputs;
	size_t turn; /* index of the output being printed */
	struct wrap wrap;
};

/* Limit of the outputs' index; larger than any service allows. */
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

/* On a terminal, drop control characters other than newline and tab, because a terminal would obey them. */
static void put_text(struct printer *p, const char *text, size_t n)
{
	struct buf plain = {0};
	if (!term_is_tty(stdout)) {
		fwrite(text, 1, n, stdout);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		const unsigned char c = (unsigned char)text[i],
				    next = i + 1 < n ? (unsigned char)text[i + 1] : 0;
		if (c == 0xc2 && next >= 0x80 && next < 0xa0)
			i++; /* a C1 control character, U+0080 to U+009F */
		else if ((c >= ' ' && c != 0x7f) || c == '\n' || c == '\t')
			buf_putc(&plain, (char)c);
	}
	if (plain.len)
		wrap_put(&p->wrap, stdout, term_width(stdout), plain.p, plain.len);
	buf_fini(&plain);
}

/* Print a newline that is not part of the text. */
static void put_line_end(struct printer *p)
{
	put_text(p, "\n", 1);
}

/* On a terminal, print the prompt before its completion. */
static void show_prompt(struct printer *p, const json_t *request)
{
	const json_t *prompt = json_object_get(request, "prompt");
	if (p->how->json || !term_is_tty(stdout) || !json_is_string(prompt))
		return;
	fputs(term_style(stdout, TERM_BOLD), stdout);
	put_text(p, json_string_value(prompt), json_string_length(prompt));
	fputs(term_style(stdout, TERM_PLAIN), stdout);
	fflush(stdout);
}

static void splitter_init(struct reasoning *r, const struct stream *how)
{
	reasoning_init(r, how->reasoning_open);
	if (how->marks)
		r->marks = how->marks;
}

/* Print the new text of an output, with its reasoning dimmed. */
static void print_split(struct printer *p, struct output *o, const char *dim)
{
	struct buf reasoning = {0}, answer = {0};
	if (!o->split) {
		splitter_init(&o->splitter, p->how);
		o->split = true;
	}
	reasoning_push(&o->splitter, o->text.p + o->printed, o->text.len - o->printed, &reasoning, &answer);
	if (o->ended)
		reasoning_end(&o->splitter, &reasoning, &answer);
	if (reasoning.len) {
		fputs(dim, stdout);
		put_text(p, reasoning.p, reasoning.len);
		fputs(term_style(stdout, TERM_PLAIN), stdout);
		o->reasoning = true;
		o->newline = reasoning.p[reasoning.len - 1] == '\n';
	}
	if (answer.len) {
		if (o->reasoning)
			put_text(p, "\n\n", o->newline ? 1 : 2);
		o->reasoning = false;
		put_text(p, answer.p, answer.len);
		o->newline = answer.p[answer.len - 1] == '\n';
	}
	buf_fini(&reasoning);
	buf_fini(&answer);
}

static void print_output(struct printer *p, struct output *o)
{
	const char *dim = p->how->reasoning ? term_style(stdout, TERM_DIM) : "";
	const bool more = o->text.len > o->printed;
	if (*dim && (more || (o->ended && o->split))) {
		print_split(p, o, dim);
	} else if (more) {
		put_text(p, o->text.p + o->printed, o->text.len - o->printed);
		o->newline = o->text.p[o->text.len - 1] == '\n';
	}
	o->printed = o->text.len;
}

/* Print new text of the current output; when that output has ended, continue with the next. */
static void print_some(struct printer *p)
{
	while (p->turn < p->n_outputs) {
		struct output *o = &p->outputs[p->turn];
		if (p->turn && !o->printed && (o->text.len || o->ended))
			put_line_end(p);
		print_output(p, o);
		if (!o->ended)
			break;
		if (!o->newline)
			put_line_end(p);
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
	/* Only an output's last delta has it. */
	if (json_is_string(json_object_get(reply, "finish_reason")))
		o->ended = true;
	if (!p->how->json)
		print_some(p);
}

/* Take the whole result: add text that no delta contained. */
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

static int outcome(const json_t *done, struct why *why)
{
	size_t i;
	const json_t *out;
	json_array_foreach(json_object_get(done, "outputs"), i, out)
	{
		const char *finish = json_string_value(json_object_get(out, "finish_reason"));
		if (finish && strcmp(finish, "abort") == 0)
			return json_is_true(json_object_get(done, "service_ended"))
				       ? err_why(why, -ECANCELED, "the service ended before the job did")
				       : err_why(why, -ECANCELED, "cancelled");
		if (finish && strcmp(finish, "error") == 0)
			return err_why(why, -EIO, "an output ended with an error");
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
	wrap_fini(&p->wrap);
}

void stream_print_done(const json_t *done)
{
	const struct stream how = {0};
	struct printer p = {.how = &how};
	on_done(&p, done);
	printer_fini(&p);
}

/* Handle one reply of the job.  *over: it was the last one. */
static int on_reply(struct printer *p, json_t *reply, bool *over, struct why *why)
{
	const char *op = client_reply_op(reply);
	if (strcmp(op, "delta") == 0) {
		on_delta(p, reply);
	} else if (strcmp(op, "done") == 0) {
		*over = true;
		on_done(p, reply);
		if (p->how->json)
			stream_print_json(reply);
		return outcome(reply, why);
	} else if (strcmp(op, "error") == 0) {
		*over = true;
		client_reply_error(reply, why);
		return -EREMOTEIO;
	}
	return 0;
}

/* Append the first output, without its reasoning, to how->text. */
static void collect_answer(const struct printer *p)
{
	const struct buf *text = &p->outputs[0].text;
	struct reasoning splitter;
	struct buf reasoning = {0};
	if (!p->how->reasoning) {
		buf_put(p->how->text, text->p ? text->p : "", text->len);
		return;
	}
	splitter_init(&splitter, p->how);
	reasoning_push(&splitter, text->p ? text->p : "", text->len, &reasoning, p->how->text);
	reasoning_end(&splitter, &reasoning, p->how->text);
	reasoning_fini(&splitter);
	buf_fini(&reasoning);
}

/* Request the job's cancellation; its end arrives as `done`. */
static int cancel(struct client *c, const char *job, struct why *why)
{
	json_t *r = json_pack("{s:s, s:s}", "op", "cancel", "job", job);
	int rc = client_send(c, r, NULL, why);
	json_decref(r);
	return rc;
}

int stream_job(struct client *c, json_t *request, const struct stream *how, struct why *why)
{
	struct printer p = {.how = how};
	/* Time for a cancelled job to end. */
	const int cancel_ms = 5000;
	const char *known = json_string_value(json_object_get(request, "job"));
	char *job = known ? xstrdup(known) : NULL;
	bool over = false, stop = false, cancelled = false;
	uint64_t id;
	int rc = client_send(c, request, &id, why);
	if (!rc)
		show_prompt(&p, request);
	while (!rc && !over) {
		json_t *reply = NULL;
		rc = client_recv(c, stop ? cancel_ms : -1, &reply, why);
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
			rc = on_reply(&p, reply, &over, why);
		}
		if (!rc && stop && job && !cancelled && !over) {
			cancelled = true;
			rc = cancel(c, job, why);
		}
		json_decref(reply);
	}
	/* End the line of text that was printed before a failure. */
	if (!how->json && p.turn < p.n_outputs && p.outputs[p.turn].printed && !p.outputs[p.turn].newline)
		put_line_end(&p);
	fflush(stdout);
	if (how->text && p.n_outputs)
		collect_answer(&p);
	if (rc == -EINTR && how->watch)
		rc = 0;
	else if ((cancelled && over) || rc == -EINTR)
		rc = err_why(why, -ECANCELED, "cancelled");
	free(job);
	printer_fini(&p);
	return rc;
}
