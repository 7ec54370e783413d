/* line_editor.h - reads lines of input: from a terminal with editing and history (libedit; ~/.editrc is
 * read), from a pipe or a dumb terminal unchanged.
 * Signals are term.h's: the caller arms them before a read. */
#ifndef QUERN_CLI_TERMINAL_LINE_EDITOR_H
#define QUERN_CLI_TERMINAL_LINE_EDITOR_H

#include <stdbool.h>
#include <stddef.h>

struct line_editor;

/* Open the editor.  history: the file of earlier lines, read now and written by line_editor_remember(); NULL:
 * none is kept.  If the file cannot be read or written, only the history is lost. */
struct line_editor *line_editor_open(const char *history);
void line_editor_close(struct line_editor *e); /* NULL is fine */

/* Return whether lines are typed at a terminal; prompts are shown only there. */
bool line_editor_is_terminal(const struct line_editor *e);

/* Read the next line, without its newline; it is valid until the next call.  A line from a terminal may
 * contain newlines, from pasted text or Alt-Enter.  0; -ENODATA: the input has ended (Ctrl-D on an empty
 * line); -EINTR: interrupted (term.h), and what was typed is dropped; other errors as from read(2). */
int line_editor_read(struct line_editor *e, const char *prompt, const char **line, size_t *n);

/* Add a line to the history. */
void line_editor_remember(struct line_editor *e, const char *line);

#endif
