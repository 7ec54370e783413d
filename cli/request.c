#include "cli/request.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "cli/command.h"
#include "cli/conversation.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The service accepts requests of 16 MB, so a longer prompt is refused in any case. */
static const size_t prompt_bytes_max = 16 << 20;

/* Values of `params`.  A parameter's name is the option's, with '_' for '-'. */

static json_t *texts(const struct opt_value *v)
{
	json_t *a = json_array();
	for (size_t i = 0; i < v->n_texts; i++) {
		json_t *s = json_string(v->texts[i]);
		/* Text that is not UTF-8 is sent as null, so that the service refuses the parameter by
		 * name. */
		json_array_append_new(a, s ? s : json_null());
	}
	return a;
}

static json_t *param_value(const struct opt_value *v)
{
	switch (v->spec->kind) {
	case OPT_FLAG:
		return json_boolean(v->n);
	case OPT_INT:
		return json_integer(v->n);
	case OPT_NUMBER:
		return json_real(v->x);
	default:
		return texts(v);
	}
}

static json_t *token_ids(const char *list)
{
	json_t *a = json_array();
	int64_t ids[1024];
	size_t n;
	if (ints_parse(list, 0, INT32_MAX, ids, 1024, &n, NULL)) {
		/* Send the text: the service refuses it with the reason. */
		json_array_append_new(a, json_string(list));
		return a;
	}
	for (size_t i = 0; i < n; i++)
		json_array_append_new(a, json_integer(ids[i]));
	return a;
}

/* Convert "yes" or "no" to a boolean; the service refuses other words. */
static json_t *early_value(const char *when)
{
	if (strcmp(when, "yes") == 0 || strcmp(when, "no") == 0)
		return json_boolean(when[0] == 'y');
	return json_string(when);
}

json_t *request_new(const struct opts *o)
{
	json_t *params = json_object();
	for (size_t i = 0; i < o->n_values; i++) {
		const struct opt_value *v = &o->values[i];
		char key[64];
		if (!(v->spec->pass & OPT_PARAM) || !v->n_texts)
			continue;
		snprintf(key, sizeof key, "%s", v->spec->name);
		for (char *p = key; *p; p++)
			*p = *p == '-' ? '_' : *p;
		json_object_set_new(params, key, param_value(v));
	}
	if (opts_has(o, "beam-width"))
		json_object_set_new(params, "use_beam_search", json_true());
	if (opts_has(o, "early-stopping"))
		json_object_set_new(params, "early_stopping", early_value(opts_text(o, "early-stopping")));
	if (opts_flag(o, "include-stop"))
		json_object_set_new(params, "include_stop_str_in_output", json_true());
	if (opts_flag(o, "keep-special-tokens"))
		json_object_set_new(params, "skip_special_tokens", json_false());
	if (opts_has(o, "stop-token-ids"))
		json_object_set_new(params, "stop_token_ids", token_ids(opts_text(o, "stop-token-ids")));
	if (opts_has(o, "allowed-token-ids"))
		json_object_set_new(params, "allowed_token_ids",
				    token_ids(opts_text(o, "allowed-token-ids")));
	json_t *r = json_pack("{s:s, s:b, s:o}", "op", "submit", "stream", 1, "params", params);
	if (opts_has(o, "deadline-ms"))
		json_object_set_new(r, "deadline_ms", json_integer(opts_int(o, "deadline-ms")));
	return r;
}

/* Check that a chat has a parameter of this name: 0, else -EINVAL. */
static int find_param(const struct opts *o, const char *name, struct why *why)
{
	const char **names = xmalloc((o->n_values + 1) * sizeof *names);
	size_t n = 0;
	int rc = -EINVAL;
	for (size_t i = 0; i < o->n_values; i++) {
		const struct opt *s = o->values[i].spec;
		if (!(s->pass & OPT_REQUEST))
			continue;
		if (strcmp(s->name, name) == 0)
			rc = 0;
		names[n++] = s->name;
	}
	const char *near = nearest_name(name, names, n);
	if (rc)
		err_why(why, rc, "unknown option %.60s%s%s%s", name, near ? "; did you mean " : "",
			near ? near : "", near ? "?" : "");
	free(names);
	return rc;
}

int request_set_param(struct opts *o, const char *name, const char *text, struct why *why)
{
	int rc = find_param(o, name, why);
	return rc ? rc : opts_set(o, name, text, why);
}

int request_unset_param(struct opts *o, const char *name, struct why *why)
{
	int rc = find_param(o, name, why);
	if (!rc)
		opts_unset(o, name);
	return rc;
}

void request_print_params(const struct opts *o, FILE *f)
{
	for (size_t i = 0; i < o->n_values; i++) {
		const struct opt_value *v = &o->values[i];
		for (size_t k = 0; (v->spec->pass & OPT_REQUEST) && k < v->n_texts; k++)
			fprintf(f, "  %s %s\n", v->spec->name, v->texts[k]);
	}
}

int request_check_mode(const struct opts *o, struct why *why)
{
	const char *other = opts_flag(o, "chat") ? "chat" : opts_has(o, "system") ? "system" : NULL;
	if (opts_flag(o, "raw") && other)
		return err_why(why, -EINVAL, "--raw and --%s exclude each other", other);
	return 0;
}

int request_is_chat(const struct opts *o, struct client *c, struct client_about *about, bool *chat,
		    struct why *why)
{
	*about = (struct client_about){0};
	*chat = false;
	if (opts_flag(o, "raw"))
		return 0;
	int rc = client_about(c, CALL_MS, about, why);
	*chat = about->chat || opts_flag(o, "chat") || opts_has(o, "system");
	return rc;
}

int request_set_prompt(json_t *request, const struct opts *o, bool chat, const char *text, size_t n,
		       struct why *why)
{
	if (chat) {
		struct conversation talk;
		int rc = conversation_init(&talk, opts_text(o, "system"), why);
		if (!rc)
			rc = conversation_add(&talk, "user", text, n, why);
		json_object_set_new(request, "messages", conversation_all(&talk));
		conversation_fini(&talk);
		return rc;
	}
	json_t *s = json_stringn(text, n);
	if (!s)
		return err_why(why, -EILSEQ, "the prompt is not valid UTF-8");
	json_object_set_new(request, "prompt", s);
	return 0;
}

int request_read_prompt(const char *word, char **text, size_t *n, struct why *why)
{
	struct buf b = {0};
	if (strcmp(word, "-") != 0) {
		*text = xstrdup(word);
		*n = strlen(word);
		return 0;
	}
	for (;;) {
		char part[65536];
		ssize_t k = read(STDIN_FILENO, part, sizeof part);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0) {
			buf_fini(&b);
			return err_why(why, -errno, "cannot read the prompt: %s", strerror(errno));
		}
		if (k == 0)
			break;
		buf_put(&b, part, (size_t)k);
		if (b.len > prompt_bytes_max) {
			buf_fini(&b);
			return err_why(why, -E2BIG, "the prompt on stdin is longer than %zu MB",
				       prompt_bytes_max >> 20);
		}
	}
	/* Drop a final newline, which echo and editors add. */
	if (b.len && b.p[b.len - 1] == '\n')
		b.p[--b.len] = '\0';
	*n = b.len;
	*text = buf_take(&b);
	return 0;
}
