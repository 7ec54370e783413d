/* convert.h - `quern convert`: the same model in another format, value for value. */
#ifndef QUERN_QUANT_CONVERT_CONVERT_H
#define QUERN_QUANT_CONVERT_CONVERT_H

int cmd_convert(int argc, char **argv);

#endif
