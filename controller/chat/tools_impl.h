/* tools_impl.h - what the files of tools.h share: the steps of a call. */
#ifndef QUERN_CONTROLLER_CHAT_TOOLS_IMPL_H
#define QUERN_CONTROLLER_CHAT_TOOLS_IMPL_H

#include "controller/chat/tools.h"

enum {
	TOOLS_KEY_MAX = 256,     /* bytes of a key that is passed on */
	TOOLS_NAME_MAX = 1024,   /* bytes of a tool's name */
	TOOLS_BLANKS_MAX = 1024, /* that are held back until what follows decides */
	TOOLS_DEPTH_MAX = 512,   /* brackets within arguments */
	TOOLS_LITERAL_DEPTH = 64 /* within one literal */
};

/* What came of a step. */
enum tools_found {
	TOOLS_MORE, /* more text decides */
	TOOLS_YES,
	TOOLS_NO
};

/* The undecided text. */
static inline const char *tools_next(const struct tools *t)
{
	return t->held.p + t->at;
}
static inline size_t tools_left(const struct tools *t)
{
	return t->held.len - t->at;
}

/* Takes n bytes of it for the call. */
void tools_eat(struct tools *t, size_t n);
/* Takes blanks, and returns whether there is more. */
bool tools_eat_blanks(struct tools *t);
/* Takes blanks, and this text if it is next. */
enum tools_found tools_eat_literal(struct tools *t, const char *text);

/* The call has a name and arguments: it begins, unless it has. */
void tools_begin(struct tools *t, const struct tools_sink *to);
void tools_put(struct tools *t, const char *p, size_t n, const struct tools_sink *to);
/* As the inside of a JSON string. */
void tools_put_escaped(struct tools *t, const char *p, size_t n, const struct tools_sink *to);
/* "{" or ", ", and the key. */
void tools_put_key(struct tools *t, const struct tools_sink *to);
/* Behind the last pair: "}", or "{}" if there was none. */
void tools_put_close(struct tools *t, const struct tools_sink *to);

/* The steps that read arguments, in tools_object.c and tools_args.c. */
void tools_object_open(struct tools *t, bool arguments_only);
enum tools_found tools_object(struct tools *t, const struct tools_sink *to);
enum tools_found tools_json(struct tools *t, const struct tools_sink *to);
enum tools_found tools_pairs(struct tools *t, const struct tools_sink *to);
enum tools_found tools_literals(struct tools *t, const struct tools_sink *to);

/* How a value of this schema reads between tags; NULL: not declared. */
enum tools_arg_kind tools_arg_kind_of(const json_t *schema);

/* Appends the JSON of a literal; false: it is none. */
bool tools_literal_json(struct buf *out, const char *p, size_t n, const struct tools_literals *f);

#endif
