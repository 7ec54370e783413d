/* submit.h - `quern submit`: sends one job to a running service. */
#ifndef QUERN_CLI_SUBMIT_H
#define QUERN_CLI_SUBMIT_H

int cmd_submit(int argc, char **argv);

#endif
