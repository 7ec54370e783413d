#!/usr/bin/env python3
"""make_config_defaults.py OUT - transformers' default config.json of every family in quern's table.

Needs transformers (PyPI; 5.24 made the committed file).  test_family loads each: quern must know all of its keys.
"""
import json
import re
import sys
from pathlib import Path

from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

# Sizes that have no default.
SIZES = {"dots1": {"n_routed_experts": 8, "num_experts_per_tok": 2}, "glm4_moe": {"head_dim": 128}}
FORMATS = Path(__file__).resolve().parent.parent.parent / "formats"


def rows():
    """Return {architecture: model type} of the rows of the table."""
    found = {}
    for name in ("family_dense.c", "family_positions.c", "family_mixtures.c"):
        text = (FORMATS / name).read_text()
        found |= dict(re.findall(r'\.arch = "(\w+)",\s*\.type = "([\w-]+)"', text))
        found |= dict(re.findall(r'\.arch = "(\w+)", *\\\s*\.type = "([\w-]+)"', text))
    return found


def main():
    out = {}
    for arch, kind in sorted(rows().items()):
        if MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind) != arch:
            continue        # not in transformers, or its text part alone is not
        config = {k: v for k, v in CONFIG_MAPPING[kind]().to_dict().items() if v is not None} | SIZES.get(kind, {})
        for key in ("bos_token_id", "eos_token_id"):    # of another vocabulary than the default
            if isinstance(config.get(key), int) and config[key] >= config.get("vocab_size", 0):
                del config[key]
        out[kind] = config | {"architectures": [arch], "model_type": kind}
    Path(sys.argv[1]).write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in out.items()) + "\n}\n")
    print(f"{len(out)} families")


if __name__ == "__main__":
    main()
