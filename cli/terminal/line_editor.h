/* line_editor.h - lines of input: from a terminal with editing and history (libedit; ~/.editrc is read),
 * from a pipe or a dumb terminal as they come.
 * Signals are term.h's: the caller arms them before a read. */
#ifndef QUERN_CLI_TERMINAL_LINE_EDITOR_H
#define QUERN_CLI_TERMINAL_LINE_EDITOR_H

#include <stdbool.h>
#include <stddef.h>

struct line_editor;

/* history: the file of former lines, read now and written by line_editor_remember(); NULL: none is kept.
 * A file that cannot be read or written costs its lines, nothing else. */
struct line_editor *line_editor_open(const char *history);
void line_editor_close(struct line_editor *e); /* NULL is fine */

/* Whether lines are typed at a terminal: prompts are shown only there. */
bool line_editor_is_terminal(const struct line_editor *e);

/* The next line without its newline; it belongs to e until the next call.  A line of a terminal may hold
 * newlines: text that was pasted, or Alt-Enter.  0; -ENODATA: the input has ended (Ctrl-D on an empty line);
 * -EINTR: interrupted (term.h), what was typed is dropped; others as read(2). */
int line_editor_read(struct line_editor *e, const char *prompt, const char **line, size_t *n);

/* Adds a line to the history. */
void line_editor_remember(struct line_editor *e, const char *line);

#endif
