/* serve.h - `quern serve`: runs the controller and workers until Ctrl-C. */
#ifndef QUERN_CLI_SERVE_H
#define QUERN_CLI_SERVE_H

int cmd_serve(int argc, char **argv);

#endif
