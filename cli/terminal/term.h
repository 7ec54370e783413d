/* term.h - terminal output and interrupts: one-line errors on stderr, colours and progress only on a
 * terminal, Ctrl-C as a descriptor to poll. */
#ifndef QUERN_CLI_TERMINAL_TERM_H
#define QUERN_CLI_TERMINAL_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { EXIT_USAGE = 2 };

/* Print "quern: ..." on stderr, in one line (control characters become blanks).  Returns 1, the exit
 * status. */
int term_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* term_error() for wrong usage of a command, with a hint at its --help.  Returns 2. */
int term_usage(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* From now on write notices as lines of the log, under this part of the program (a static string).  If the
 * log is JSON, errors become log lines too, so that they are machine-readable and have times. */
void term_to_log(const char *part);
/* Print a notice, or log it as a warning after term_to_log(). */
void term_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

enum term_style { TERM_PLAIN, TERM_BOLD, TERM_DIM, TERM_GREEN, TERM_YELLOW, TERM_RED };
bool term_is_tty(FILE *f);
/* Return the columns of a terminal; 0: f is not a terminal, or its width is unknown. */
unsigned term_width(FILE *f);
/* Return whether the process has a controlling terminal, which sends SIGHUP when it closes. */
bool term_controls(void);
/* Return the escape sequence that begins a style (TERM_PLAIN ends it), or "" if colours are unwanted. */
const char *term_style(FILE *f, enum term_style s);
/* Clear the screen of a terminal; no-op elsewhere. */
void term_clear(FILE *f);

/* On a terminal (stderr), redraw a line with a progress bar and the current activity.  done and total are
 * bytes; total 0: unknown.  No-op elsewhere. */
void term_progress(const char *doing, double done, double total, double seconds);
/* Erase the progress line, before anything else is printed. */
void term_progress_end(void);

/* Flush stdout at the end of a command and report write errors.  Returns the exit status. */
int term_finish(int status);

/* Format bytes as "1.2 GiB".  Returns buf. */
const char *term_bytes(double bytes, char *buf, size_t n);

/* Some programs signal both a process and its group: signals within this time count as one. */
enum { INTERRUPT_ECHO_US = 100 * 1000 };

/* Until interrupt_disarm(), the first SIGINT, SIGTERM or SIGHUP only makes interrupt_pending() true and
 * interrupt_fd() readable; the second kills as by default.  Both calls discard a signal received before. */
void interrupt_arm(void);
void interrupt_disarm(void);
bool interrupt_pending(void);
int interrupt_signal(void); /* the signal received since arming; 0: none */
int interrupt_fd(void);     /* -1 before the first interrupt_arm() */

#endif
