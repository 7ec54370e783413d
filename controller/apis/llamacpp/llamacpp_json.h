/* llamacpp_json.h - the shapes of the replies of llama.cpp's server: pure functions that append JSON to a
 * buffer.
 *
 * A stream has an event for each delta, and a last event with everything except the text:
 *
 *   data: {"index": 0, "content": "...", "tokens": [...], "stop": false, ...}
 *   data: {"index": 0, "content": "", "tokens": [], "stop": true, "stop_type", "timings", ...} */
#ifndef QUERN_CONTROLLER_APIS_LLAMACPP_LLAMACPP_JSON_H
#define QUERN_CONTROLLER_APIS_LLAMACPP_LLAMACPP_JSON_H

#include "base/buf.h"
#include "controller/apis/answer.h"
#include "controller/message/job_event.h"
#include "controller/message/submit.h"
#include "controller/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

/* How an output ended.  Borrowed pointers. */
struct llamacpp_end {
	const char *stop_type; /* "eos", "limit", "word", "none"; static */
	const char *word;      /* the stop string, or "" */
	bool has_new_line;     /* the output's text has a newline */
	uint64_t n_prompt, n_cached, n_predicted;
	struct answer_timing timing;
	const char *model;
	const struct buf *settings, *prompt; /* JSON */
};

const char *llamacpp_stop_type(const struct output_view *v);

/* Append the request's settings: {"n_predict":..., ...}. */
void llamacpp_put_settings(struct buf *b, const struct submit *s, bool stream);
/* Append the object of a delta's event. */
void llamacpp_put_delta(struct buf *b, const struct tokenizer *t, const struct output_view *v,
			uint64_t n_predicted, uint64_t n_prompt);
/* Append the last object.  v: the whole output; NULL in a stream.  tokens: show its tokens. */
void llamacpp_put_end(struct buf *b, const struct tokenizer *t, uint32_t index, const struct output_view *v,
		      bool tokens, const struct llamacpp_end *e);

#endif
