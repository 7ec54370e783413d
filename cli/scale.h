/* scale.h - `quern scale N` and `quern drain WORKER`: add or remove replicas while the service runs. */
#ifndef QUERN_CLI_SCALE_H
#define QUERN_CLI_SCALE_H

int cmd_scale(int argc, char **argv);
int cmd_drain(int argc, char **argv);

#endif
