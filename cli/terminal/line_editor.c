#include "cli/terminal/line_editor.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "cli/terminal/environment.h"
#include "cli/terminal/term.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HISTORY_LINES = 1000 };
/* Escape sequences that make a terminal mark pasted text, so that newlines in it do not end the line. */
#define PASTE_MARKS_ON  "\x1b[?2004h"
#define PASTE_MARKS_OFF "\x1b[?2004l"
static const wchar_t paste_end[] = L"\x1b[201~";

struct line_editor {
	bool terminal;
	EditLine *el;     /* NULL: lines are read without editing */
	History *history; /* history of el */
	char *history_path;
	const char *prompt;
	char shown[128]; /* the prompt with its style */
	struct buf line;
	struct buf input; /* without el: bytes read after the line */
	bool ended;       /* without el: the end of the input was reached */
	int failed;       /* -errno of the current read, or 0 */
};

static volatile sig_atomic_t resized, continued;

static void on_signal(int sig)
{
	if (sig == SIGWINCH)
		resized = 1;
	else
		continued = 1;
}

/* Wait until stdin is readable.  -EINTR: interrupted. */
static int wait_input(struct line_editor *e)
{
	sigset_t blocked, before;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGWINCH);
	sigaddset(&blocked, SIGCONT);
	sigprocmask(SIG_BLOCK, &blocked, &before);
	int rc = -EAGAIN;
	while (rc == -EAGAIN) {
		struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
				       {.fd = interrupt_fd(), .events = POLLIN}};
		int n = ppoll(fds, 2, NULL, &before), failed = errno;
		if (interrupt_pending())
			rc = -EINTR;
		else if (n < 0 && failed != EINTR)
			rc = -failed;
		else if (n > 0 && fds[0].revents)
			rc = 0;
		if (resized && e->el)
			el_resize(e->el);
		/* The shell has changed the terminal's modes meanwhile. */
		if (continued && e->el) {
			el_set(e->el, EL_PREP_TERM, 1);
			el_set(e->el, EL_REFRESH);
		}
		resized = continued = 0;
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	return rc;
}

/* ---- terminal ---- */

/* Read a character for libedit: 1, 0 at the end, -1 on an error. */
static int get_char(EditLine *el, wchar_t *c)
{
	struct line_editor *e;
	mbstate_t state = {0};
	el_get(el, EL_CLIENTDATA, &e);
	for (;;) {
		char byte;
		int rc = wait_input(e);
		ssize_t n = rc ? -1 : read(STDIN_FILENO, &byte, 1);
		if (rc || n < 0) {
			e->failed = rc ? rc : -errno;
			return -1;
		}
		if (n == 0)
			return 0;
		size_t k = mbrtowc(c, &byte, 1, &state);
		if (k == (size_t)-2)
			continue;
		if (k == (size_t)-1) /* not UTF-8 */
			*c = 0xfffd;
		return 1;
	}
}

static char *prompt_of(EditLine *el)
{
	struct line_editor *e;
	el_get(el, EL_CLIENTDATA, &e);
	return e->shown;
}

static unsigned char insert_newline(EditLine *el, int c)
{
	(void)c;
	return el_insertstr(el, "\n") ? CC_ERROR : CC_REFRESH;
}

/* Insert the following text, up to the mark that ends pasted text. */
static unsigned char insert_paste(EditLine *el, int c)
{
	const size_t n_end = sizeof paste_end / sizeof *paste_end - 1;
	struct buf text = {0};
	size_t matched = 0;
	wchar_t w;
	int rc = 1;
	(void)c;
	while (matched < n_end && (rc = el_wgetc(el, &w)) == 1) {
		char bytes[MB_LEN_MAX];
		/* The mark's first character occurs in it only once. */
		if (w != paste_end[matched])
			matched = 0;
		matched = w == paste_end[matched] ? matched + 1 : 0;
		int n = wctomb(bytes, w);
		if (w >= ' ' && w != 0x7f && !matched && n > 0)
			buf_put(&text, bytes, (size_t)n);
		else if (w == '\r' || w == '\n' || w == '\t')
			buf_putc(&text, w == '\t' ? '\t' : '\n');
	}
	int failed = text.len ? el_insertstr(el, text.p) : 0;
	buf_fini(&text);
	return rc != 1 || failed ? CC_ERROR : CC_REFRESH;
}

/* Use a UTF-8 locale, which decodes the characters, whatever the environment sets. */
static void use_utf8(void)
{
	setlocale(LC_CTYPE, "");
	if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
		setlocale(LC_CTYPE, "C.UTF-8");
}

static void open_terminal(struct line_editor *e)
{
	HistEvent ev;
	use_utf8();
	e->el = el_init("quern", stdin, stdout, stderr);
	e->history = history_init();
	if (!e->el || !e->history)
		return;
	history(e->history, &ev, H_SETSIZE, HISTORY_LINES);
	history(e->history, &ev, H_SETUNIQUE, 1);
	if (e->history_path)
		history(e->history, &ev, H_LOAD, e->history_path);
	el_set(e->el, EL_CLIENTDATA, e);
	el_set(e->el, EL_GETCFN, get_char);
	el_set(e->el, EL_PROMPT_ESC, prompt_of, '\1');
	el_set(e->el, EL_HIST, history, e->history);
	el_set(e->el, EL_EDITOR, "emacs");
	/* el_set() would leak copies of these names. */
	el_wset(e->el, EL_ADDFN, L"quern-newline", L"insert a newline", insert_newline);
	el_wset(e->el, EL_ADDFN, L"quern-paste", L"insert pasted text", insert_paste);
	el_set(e->el, EL_BIND, "\\e\\r", "quern-newline", NULL);
	el_set(e->el, EL_BIND, "\\e\\n", "quern-newline", NULL);
	el_set(e->el, EL_BIND, "\\e[200~", "quern-paste", NULL);
	el_set(e->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
	el_source(e->el, NULL);
	struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	sigemptyset(&act.sa_mask);
	sigaction(SIGWINCH, &act, NULL);
	sigaction(SIGCONT, &act, NULL);
}

static int read_terminal(struct line_editor *e, const char *prompt)
{
	int n = 0;
	const char *style = term_style(stdout, TERM_GREEN);
	/* \1 brackets text that takes no column. */
	if (*style)
		snprintf(e->shown, sizeof e->shown, "\1%s\1%s\1%s\1 ", style, prompt,
			 term_style(stdout, TERM_PLAIN));
	else
		snprintf(e->shown, sizeof e->shown, "%s ", prompt);
	e->failed = 0;
	/* Prepare the terminal before printing the prompt: otherwise text typed at once would be echoed
	 * twice. */
	el_set(e->el, EL_PREP_TERM, 1);
	fputs(PASTE_MARKS_ON, stdout);
	fflush(stdout);
	const char *line = el_gets(e->el, &n);
	fputs(PASTE_MARKS_OFF, stdout);
	if (e->failed || !line || n <= 0)
		putchar('\n'); /* the cursor is after the prompt */
	fflush(stdout);
	if (e->failed)
		return e->failed;
	if (!line || n <= 0)
		return -ENODATA;
	buf_put(&e->line, line, (size_t)n);
	return 0;
}

/* ---- other input ---- */

static int read_plain(struct line_editor *e, const char *prompt)
{
	if (e->terminal) {
		printf("%s ", prompt);
		fflush(stdout);
	}
	for (;;) {
		char part[4096];
		char *end = e->input.len ? memchr(e->input.p, '\n', e->input.len) : NULL;
		size_t n = end ? (size_t)(end - e->input.p) + 1 : e->ended ? e->input.len : 0;
		if (n) {
			buf_put(&e->line, e->input.p, n);
			memmove(e->input.p, e->input.p + n, e->input.len - n);
			e->input.len -= n;
			e->input.p[e->input.len] = '\0';
			return 0;
		}
		if (e->ended) {
			e->ended = !e->terminal; /* a terminal continues after Ctrl-D, if the program does */
			return -ENODATA;
		}
		int rc = wait_input(e);
		ssize_t got = rc ? -1 : read(STDIN_FILENO, part, sizeof part);
		if (!rc && got < 0 && errno != EINTR)
			rc = -errno;
		if (rc) {
			buf_clear(&e->input);
			return rc;
		}
		if (got > 0)
			buf_put(&e->input, part, (size_t)got);
		e->ended = got == 0;
	}
}

/* ---- both ---- */

struct line_editor *line_editor_open(const char *history)
{
	struct line_editor *e = xcalloc(1, sizeof *e);
	e->terminal = term_is_tty(stdin) && term_is_tty(stdout);
	e->history_path = history ? xstrdup(history) : NULL;
	if (e->terminal && !environment_read().dumb_terminal)
		open_terminal(e);
	return e;
}

void line_editor_close(struct line_editor *e)
{
	if (!e)
		return;
	if (e->el)
		el_end(e->el);
	if (e->history)
		history_end(e->history);
	free(e->history_path);
	buf_fini(&e->line);
	buf_fini(&e->input);
	free(e);
}

bool line_editor_is_terminal(const struct line_editor *e)
{
	return e->terminal;
}

int line_editor_read(struct line_editor *e, const char *prompt, const char **line, size_t *n)
{
	buf_clear(&e->line);
	int rc = e->el ? read_terminal(e, prompt) : read_plain(e, prompt);
	if (rc)
		return rc;
	while (e->line.len && strchr("\r\n", e->line.p[e->line.len - 1]))
		e->line.p[--e->line.len] = '\0';
	*line = e->line.p;
	*n = e->line.len;
	return 0;
}

void line_editor_remember(struct line_editor *e, const char *line)
{
	HistEvent ev;
	if (!e->el || !*line)
		return;
	history(e->history, &ev, H_ENTER, line);
	if (e->history_path)
		history(e->history, &ev, H_SAVE, e->history_path);
}
