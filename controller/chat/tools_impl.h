/* tools_impl.h - the steps of a call, shared by the files of tools.h. */
#ifndef QUERN_CONTROLLER_CHAT_TOOLS_IMPL_H
#define QUERN_CONTROLLER_CHAT_TOOLS_IMPL_H

#include "controller/chat/tools.h"

enum {
	TOOLS_KEY_MAX = 256,     /* bytes of an accepted key */
	TOOLS_NAME_MAX = 1024,   /* bytes of a tool's name */
	TOOLS_BLANKS_MAX = 1024, /* blanks held back until the next text decides about them */
	TOOLS_DEPTH_MAX = 512,   /* nested brackets in arguments */
	TOOLS_LITERAL_DEPTH = 64 /* nested brackets in one literal */
};

/* The result of a step. */
enum tools_found {
	TOOLS_MORE, /* more text is needed */
	TOOLS_YES,
	TOOLS_NO
};

/* Return the undecided text. */
static inline const char *tools_next(const struct tools *t)
{
	return t->held.p + t->at;
}
static inline size_t tools_left(const struct tools *t)
{
	return t->held.len - t->at;
}

/* Consume n bytes of the undecided text for the call. */
void tools_eat(struct tools *t, size_t n);
/* Consume blanks.  Return true if more text follows. */
bool tools_eat_blanks(struct tools *t);
/* Consume blanks, and this text if it is next. */
enum tools_found tools_eat_literal(struct tools *t, const char *text);

/* Begin the call, which has a name and arguments, unless it has begun. */
void tools_begin(struct tools *t, const struct tools_sink *to);
void tools_put(struct tools *t, const char *p, size_t n, const struct tools_sink *to);
/* Put the bytes as the inside of a JSON string. */
void tools_put_escaped(struct tools *t, const char *p, size_t n, const struct tools_sink *to);
/* Put "{" or ", ", and the key. */
void tools_put_key(struct tools *t, const struct tools_sink *to);
/* After the last pair: put "}", or "{}" if there was none. */
void tools_put_close(struct tools *t, const struct tools_sink *to);
/* If the next byte does not belong to the call (found is NO), complete its arguments with the
 * pairs so far. */
void tools_close_unless_closed(struct tools *t, enum tools_found found, const struct tools_sink *to);

/* The steps that parse arguments: tools_object.c, tools_pairs.c and tools_args.c. */
void tools_object_open(struct tools *t, bool arguments_only);
enum tools_found tools_object(struct tools *t, const struct tools_sink *to);
enum tools_found tools_json(struct tools *t, const struct tools_sink *to);
enum tools_found tools_pairs(struct tools *t, const struct tools_sink *to);
enum tools_found tools_literals(struct tools *t, const struct tools_sink *to);

/* Return true for a byte allowed in a tool's name in requests; digits may come first. */
static inline bool tools_is_name_byte(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
	       c == '-' || c == '.';
}

/* Return how a value of this schema between tags is converted; schema NULL: not declared. */
enum tools_arg_kind tools_arg_kind_of(const json_t *schema);
/* Return the kind declared for the current key of the current call. */
enum tools_arg_kind tools_declared_kind(const struct tools *t);

/* Decide whether a quote followed by these bytes ends a text. A text may contain the quote, so it ends the
 * text only where a literal may continue after it. */
enum tools_found tools_quote_ends(const char *p, size_t n);
/* Append the JSON of a literal.  Return false if it is not a literal. */
bool tools_literal_json(struct buf *out, const char *p, size_t n, const struct tools_literals *f);

#endif
