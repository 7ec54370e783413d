#!/usr/bin/env python3
"""make_gguf_grids.py - the codebooks of GGUF's IQ types as the C arrays of formats/gguf_grid_data.h.

    make_gguf_grids.py > formats/gguf_grid_data.h

The codebooks are constants of the file format, found by a search over the weights of models, so no rule gives them. The
package gguf has them; here an entry becomes one number with the index of each of its values, the first in the lowest bits:
8 values of 2 bits, or 4 of 3. Needs the package gguf.
"""
import gguf.quants as quants

GRIDS = (("iq2_xxs", quants.IQ2_XXS, "8, 25, 43"), ("iq2_xs", quants.IQ2_XS, "8, 25, 43"), ("iq2_s", quants.IQ2_S, "8, 25, 43"),
         ("iq3_xxs", quants.IQ3_XXS, "4, 12, 20, 28, 36, 44, 52, 62"), ("iq3_s", quants.IQ3_S, "1, 3, 5, 7, 9, 11, 13, 15"),
         ("iq1", quants.IQ1_S, "-1, 0, 1"))


def main():
    print("/* gguf_grid_data.h - codebooks of GGUF's IQ types, made by tests/tools/make_gguf_grids.py.  An entry has the\n"
          " * indexes of its values in the list above it, the first in the lowest bits: 8 of 2 bits, or 4 of 3 bits. */\n"
          "#ifndef QUERN_FORMATS_GGUF_GRID_DATA_H\n#define QUERN_FORMATS_GGUF_GRID_DATA_H\n\n#include <stdint.h>\n\n/* clang-format off */")
    for name, kind, values in GRIDS:
        kind.init_grid()
        n, width = kind.grid_shape
        bits = 2 if width == 8 else 3
        index = {float(v): i for i, v in enumerate(kind.grid_map)}
        assert ", ".join(str(v) for v in kind.grid_map) == values
        entries = [sum(index[float(v)] << bits * i for i, v in enumerate(row)) for row in kind.grid.reshape(n, width)]
        print(f"\n/* {values} */\nstatic const uint16_t grid_{name}[{n}] = {{")
        for at in range(0, n, 16):
            print("\t" + ",".join(f"{e:#x}" for e in entries[at:at + 16]) + ",")
        print("};")
    print("/* clang-format on */\n\n#endif")


if __name__ == "__main__":
    main()
