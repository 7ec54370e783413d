/* job_lines.h - serve requests for HTTP routes that arrive over the job socket (jobs/lines.h).
 * Owns: the requests being served.  Each is an exchange without a connection (line_exchange.h), prepared by
 * the pool in its client's turn. */
#ifndef QUERN_CONTROLLER_ENDPOINTS_JOB_LINES_H
#define QUERN_CONTROLLER_ENDPOINTS_JOB_LINES_H

struct exchange_host;
struct job_lines;
struct mailbox;

/* Serve the requests of host->svc->lines.  Replies go through the mailbox. */
struct job_lines *job_lines_start(struct exchange_host *host, struct mailbox *mailbox);
/* Accept no more requests; those being served end with all exchanges.  NULL is fine. */
void job_lines_quiesce(struct job_lines *l);
void job_lines_free(struct job_lines *l); /* when the last exchange has gone; NULL is fine */

#endif
