/* run.h - `quern run`: starts a service for one prompt, or for a chat on the terminal. */
#ifndef QUERN_CLI_RUN_H
#define QUERN_CLI_RUN_H

int cmd_run(int argc, char **argv);

#endif
