/* keygen.h - `quern keygen`: a key pair for a service, a client or a worker. */
#ifndef QUERN_CLI_KEYGEN_H
#define QUERN_CLI_KEYGEN_H

int cmd_keygen(int argc, char **argv);

#endif
