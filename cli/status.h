/* status.h - `quern status`, `quern workers`, `quern health`: show the state of a running service. */
#ifndef QUERN_CLI_STATUS_H
#define QUERN_CLI_STATUS_H

int cmd_status(int argc, char **argv);
int cmd_workers(int argc, char **argv);
int cmd_health(int argc, char **argv);

#endif
