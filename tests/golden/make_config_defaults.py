#!/usr/bin/env python3
"""make_config_defaults.py OUT - transformers' default config.json of every family in quern's table.

Needs transformers (PyPI; 5.24 made the committed file).  test_family loads each: quern must know all of its keys.
"""
import json
import re
import sys
from pathlib import Path

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

# Sizes that have no default.
SIZES = {"dots1": {"n_routed_experts": 8, "num_experts_per_tok": 2}, "glm4_moe": {"head_dim": 128}}
FORMATS = Path(__file__).resolve().parent.parent.parent / "formats"
ROWS = ("family_dense.c", "family_positions.c", "family_mixtures.c")


def rows():
    """Return {architecture: model type} of the rows of the table."""
    found = {}
    for name in ROWS:
        text = (FORMATS / name).read_text()
        found |= dict(re.findall(r'\.arch = "(\w+)",\s*\.type = "([\w-]+)"', text))
        found |= dict(re.findall(r'\.arch = "(\w+)", *\\\s*\.type = "([\w-]+)"', text))
    return found


def others():
    """Return the model types that rows name besides their own."""
    texts = [(FORMATS / name).read_text() for name in ROWS]
    lists = re.findall(r"\.also = \{([^}]*)\}", "".join(texts))
    return re.findall(r'"(\w+)"', " ".join(lists))


def default(kind, archs):
    config = CONFIG_MAPPING[kind]().to_dict() | SIZES.get(kind, {})
    for key in ("bos_token_id", "eos_token_id"):    # of another vocabulary than the default
        if isinstance(config.get(key), int) and config[key] >= config.get("vocab_size", 0):
            del config[key]
    return config | {"architectures": archs, "model_type": kind}


def main():
    out = {}
    for arch, kind in sorted(rows().items()):
        if kind in CONFIG_MAPPING and not hasattr(CONFIG_MAPPING[kind](), "text_config"):
            out[kind] = default(kind, [arch])
    for kind in others():
        if kind in CONFIG_MAPPING and kind not in out and not hasattr(CONFIG_MAPPING[kind](), "text_config"):
            out[kind] = default(kind, None)
    Path(sys.argv[1]).write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in out.items()) + "\n}\n")
    print(f"{len(out)} families")


if __name__ == "__main__":
    main()
