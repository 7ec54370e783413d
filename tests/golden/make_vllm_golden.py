"""make_vllm_golden.py SOURCE VERSION > vllm.json - the names of vLLM's offline API.

SOURCE is the source distribution of vLLM, unpacked (pip download --no-deps --no-binary vllm --no-clean vllm keeps it in
its temporary folder).  It is parsed, not run.  Of classes: fields; of methods: parameters; each with its default as
Python writes it, null where there is none."""

import ast
import json
import sys
from pathlib import Path

CLASSES = ["SamplingParams", "BeamSearchParams", "StructuredOutputsParams", "PoolingParams", "CompletionOutput",
           "EmbeddingOutput", "ScoringOutput", "BeamSearchSequence", "BeamSearchOutput", "Logprob", "EngineArgs"]
METHODS = ["__init__", "generate", "chat", "beam_search", "embed", "encode", "score", "classify", "reward"]
INITS = ["RequestOutput", "PoolingRequestOutput"]
LLM = ["LLM", "BeamSearchOfflineMixin", "PoolingOfflineMixin", "RLOfflineMixin", "OfflineInferenceMixin"]


def text(node):
    return None if node is None else ast.unparse(node)


def parameters(f):
    a = f.args
    plain = a.posonlyargs + a.args
    defaults = [None] * (len(plain) - len(a.defaults)) + a.defaults
    pairs = list(zip(plain, defaults)) + list(zip(a.kwonlyargs, a.kw_defaults))
    return {p.arg: text(d) for p, d in pairs if p.arg != "self"}


def main():
    source, version = Path(sys.argv[1]), sys.argv[2]
    classes = {}
    for path in sorted((source / "vllm").rglob("*.py")):
        if not {"v1", "model_executor", "distributed"} & set(path.relative_to(source).parts):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    classes.setdefault(node.name, node)
    names = {"version": version}
    for name in CLASSES:
        names[name] = {n.target.id: text(n.value) for n in classes[name].body
                       if isinstance(n, ast.AnnAssign) and not n.target.id.startswith("_")}
    methods = {}
    for f in (f for c in LLM if c in classes for f in classes[c].body if isinstance(f, ast.FunctionDef)):
        methods.setdefault(f.name, f)
    for name in METHODS:
        if name in methods:
            names["LLM." + name] = parameters(methods[name])
    names["LLM"] = sorted(n for n in methods if not n.startswith("_"))
    for name in INITS:
        init = next(f for f in classes[name].body if isinstance(f, ast.FunctionDef) and f.name == "__init__")
        names[name] = parameters(init)
    print("{" + ",\n ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in names.items()) + "}")


if __name__ == "__main__":
    main()
