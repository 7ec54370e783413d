/* convert.h - `quern convert`: write a model in another format, value for value. */
#ifndef QUERN_QUANT_CONVERT_CONVERT_H
#define QUERN_QUANT_CONVERT_CONVERT_H

int cmd_convert(int argc, char **argv);

#endif
