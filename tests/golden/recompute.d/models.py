"""models/: logits, losses and gradients of the tiny models with transformers in float64; the distances of transformers in float32 and
bf16; rope frequencies."""

import json
import re
import shutil
import tempfile
from pathlib import Path

import h5py
import torch
from reference import GOLDEN, File, Rule, compare_datasets, finish, largest, relative, tensor, within
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.utils.logging import disable_progress_bar

FOLDER = GOLDEN / "models"
EXPERTS = re.compile(r"(.*)\.mlp\.experts\.(gate_up_proj|down_proj)$")
Values = dict[str, torch.Tensor]

disable_progress_bar()


class Float64(TorchFunctionMode):
    """Makes the float32 parts of transformers (norms, softmax, rope, router) compute in float64."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        def wider(value):
            return torch.float64 if value is torch.float32 else value

        if function is torch.Tensor.float:
            function = torch.Tensor.double
        return function(*map(wider, args), **{name: wider(value) for name, value in (kwargs or {}).items()})


def load(folder: Path, dtype: torch.dtype) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager")


def on_disk(parameters: Values) -> Values:
    """The parameters by their names in the file: transformers stores the experts of a layer in one tensor for gate and up and one for down."""
    found: Values = {}
    for name, value in parameters.items():
        match = EXPERTS.match(name)
        if not match:
            found[name.replace(".mlp.gate.", ".block_sparse_moe.gate.")] = value
            continue
        for e, expert in enumerate(value):
            prefix = f"{match.group(1)}.block_sparse_moe.experts.{e}"
            if match.group(2) == "down_proj":
                found[f"{prefix}.w2.weight"] = expert
            else:
                found[f"{prefix}.w1.weight"], found[f"{prefix}.w3.weight"] = expert.chunk(2)
    return found


def compute(model: torch.nn.Module, tokens: torch.Tensor) -> Values:
    """All values of expected.h5, in the type of the model."""
    moe = "num_local_experts" in model.config.to_dict()
    out = model(input_ids=tokens, use_cache=False, **({"output_router_logits": True} if moe else {}))
    logits = out.logits if out.logits.dtype == torch.float64 else out.logits.float()
    flat = logits[:, :-1].reshape(-1, logits.shape[-1])
    losses = torch.nn.functional.cross_entropy(flat, tokens[:, 1:].reshape(-1), reduction="none").view(tokens.shape[0], -1)
    losses.mean().backward()
    gradients = on_disk({name: p.grad for name, p in model.named_parameters()})
    found = {f"grad/{name}": gradient.detach() for name, gradient in gradients.items()}
    found |= {"logits": logits.detach(), "token_loss": losses.detach(), "loss": losses.mean().detach()}
    found["grad_norm"] = torch.stack([gradient.double().square().sum() for gradient in gradients.values()]).sum().sqrt()
    found["inv_freq"] = model.model.rotary_emb.inv_freq
    if moe:
        routed = torch.stack([layer.view(*tokens.shape, -1) for layer in out.router_logits])
        found["router/logits"] = routed.detach()
        found["router/experts"] = routed.topk(model.config.num_experts_per_tok, dim=-1).indices
        found["router/aux_loss"] = out.aux_loss.detach()
    return found


def double(folder: Path, tokens: torch.Tensor) -> Values:
    model = load(folder, torch.float64)
    with Float64():
        return compute(model, tokens)


def errors(exact: Values, rough: Values) -> dict[str, float]:
    """The distances of `rough` from `exact`, named as the attributes of the file."""
    grads = [name for name in exact if name.startswith("grad/")]
    found = {"logits_max_abs": largest(exact["logits"], rough["logits"]), "loss_abs": largest(exact["loss"], rough["loss"]),
             "token_loss_max_abs": largest(exact["token_loss"], rough["token_loss"]),
             "grad_norm_rel": relative(exact["grad_norm"], rough["grad_norm"]),
             "grad_max_abs": max(largest(exact[name], rough[name]) for name in grads),
             "grad_max_rel_l2": max(relative(exact[name], rough[name]) for name in grads)}
    if "router/experts" in exact:
        found["rerouted"] = float((exact["router/experts"].sort(-1)[0] != rough["router/experts"].sort(-1)[0]).any(-1).double().mean())
    return found


def rule(name: str) -> Rule:
    """Bound for float64 sums in another order: the rounding to the stored type."""
    return within(1e-12 if name in ("loss", "grad_norm", "router/aux_loss") else 1e-7, relative)


def attributes(file: h5py.File, folder: Path, tokens: torch.Tensor, exact: Values) -> None:
    """Compares the attributes of the file. On another processor, float32 distances may double and bf16 distances change by a quarter."""
    report = File(Path(file.filename))
    report.name += ", attributes"
    for kind, dtype, slack in (("float32", torch.float32, 1.0), ("bfloat16", torch.bfloat16, 0.25)):
        rough = compute(load(folder, dtype), tokens)
        found = errors(exact, rough)
        report.missing(sorted({name.removeprefix(f"{kind}_") for name in file.attrs if name.startswith(kind)} ^ set(found)))
        for name, value in found.items():
            stored = float(file.attrs[f"{kind}_{name}"])
            report.number(f"{kind}_{name}", stored, value, slack * stored)
        for name in (name for name in exact if name.startswith("grad/")):
            stored = float(file[name].attrs[f"{kind}_rel_l2"])
            report.number(f"{name} {kind}_rel_l2", stored, relative(exact[name], rough[name]), slack * stored)
    report.done()


def expected(name: str) -> None:
    """Compares expected.h5 of one model."""
    folder, path = FOLDER / name / "hf", FOLDER / name / "expected.h5"
    with h5py.File(path) as file:
        tokens = tensor(file["tokens"]).long()
        exact = double(folder, tokens)
        types = {key: tensor(file[key]).dtype for key in exact if key in file}
    computed = {key: value.to(types.get(key, value.dtype)) for key, value in exact.items()}
    compare_datasets(path, computed, lambda key: key == "tokens", rule)
    with h5py.File(path) as file:
        attributes(file, folder, tokens, exact)
    older(name, tokens, exact["logits"])


def older(name: str, tokens: torch.Tensor, logits: torch.Tensor) -> None:
    """Checks that config.v4.json, if it exists, is the same model."""
    path = FOLDER / name / "hf/config.v4.json"
    if not path.exists():
        return
    report = File(path)
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(path, Path(scratch) / "config.json")
        (Path(scratch) / "model.safetensors").symlink_to(path.parent / "model.safetensors")
        report.compare("logits", logits, double(Path(scratch), tokens)["logits"])
    report.done()


def rope() -> None:
    path = FOLDER / "rope.json"
    report = File(path)
    for case in json.loads(path.read_text(encoding="utf-8")):
        config = LlamaConfig(head_dim=case["head_dim"], rope_parameters=case["rope_parameters"], max_position_embeddings=131072)
        computed = LlamaRotaryEmbedding(config).inv_freq.double()
        report.compare(case["name"], torch.tensor(case["inv_freq"], dtype=torch.float64), computed)
    report.done()


def main() -> None:
    for name in ("llama3", "llama-tied", "qwen2", "qwen3", "mixtral"):
        expected(name)
    rope()
    finish()


main()
