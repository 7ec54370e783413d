/* jobs.h - `quern jobs`, `attach`, `cancel`, `result`, `explain`: jobs of a running service. */
#ifndef QUERN_CLI_JOBS_H
#define QUERN_CLI_JOBS_H

int cmd_jobs(int argc, char **argv);
int cmd_attach(int argc, char **argv);
int cmd_cancel(int argc, char **argv);
int cmd_result(int argc, char **argv);
int cmd_explain(int argc, char **argv);

#endif
