/* inspect.h - `quern inspect`: what a model holds and needs; what this machine offers and which
 * kernels will be used.  Works without a service. */
#ifndef QUERN_CLI_INSPECT_H
#define QUERN_CLI_INSPECT_H

int cmd_inspect(int argc, char **argv);

#endif
