/* term.h - terminal output and interrupts: errors in one line on stderr, colours and progress only on a
 * terminal, Ctrl-C as a descriptor to poll. */
#ifndef QUERN_CLI_TERMINAL_TERM_H
#define QUERN_CLI_TERMINAL_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { EXIT_USAGE = 2 };

/* "quern: ..." on stderr, in one line (control characters become blanks); returns 1, the exit status. */
int term_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same for wrong usage of a command, with a hint at its --help; returns 2. */
int term_usage(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* From here on notices are lines of the log, as of this part of the program (a static string), and in a log
 * of JSON errors are, too: what another program reads has times. */
void term_to_log(const char *part);
/* The same for a notice. */
void term_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

enum term_style { TERM_PLAIN, TERM_BOLD, TERM_DIM, TERM_GREEN, TERM_YELLOW, TERM_RED };
bool term_is_tty(FILE *f);
/* Whether the process has a controlling terminal: its end sends SIGHUP. */
bool term_controls(void);
/* The escape sequence that begins a style (TERM_PLAIN ends it), or "" where colours are unwanted. */
const char *term_style(FILE *f, enum term_style s);
/* Clears the screen of a terminal; nothing elsewhere. */
void term_clear(FILE *f);

/* On a terminal (stderr), a line that is drawn again and again: a bar, and what is being done.  done and
 * total are bytes; total 0: not known.  Nothing elsewhere. */
void term_progress(const char *doing, double done, double total, double seconds);
/* Removes it, before anything else is printed. */
void term_progress_end(void);

/* Flushes stdout at the end of a command, and reports an error of writing it; returns the exit status. */
int term_finish(int status);

/* "1.2 GiB"; returns buf. */
const char *term_bytes(double bytes, char *buf, size_t n);

/* Some programs signal both a process and its group: signals within this time count as one. */
enum { INTERRUPT_ECHO_US = 100 * 1000 };

/* From here until interrupt_disarm(), the first SIGINT, SIGTERM or SIGHUP only makes
 * interrupt_pending() true and interrupt_fd() readable; the second kills as by default.
 * Both calls forget a signal that came before. */
void interrupt_arm(void);
void interrupt_disarm(void);
bool interrupt_pending(void);
int interrupt_signal(void); /* the signal that came since; 0: none */
int interrupt_fd(void);     /* -1 while never armed */

#endif
