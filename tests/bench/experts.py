"""Whole steps, optimizer included, of mixtures of experts relative to dense models with the same FLOPs per token: the same attention, and a feed-forward
width of k times that of an expert, k the experts of a token. Both run in each round, and both in PyTorch, as transformers computes them with grouped
experts. A mixture has more weights, so its update and the casts of its weights take longer; the goal includes them."""

import os
import shutil
import statistics
from pathlib import Path

from machine import summary
from steps import BATCH, Case, Workspace

LENGTH, QUICK_LENGTH = 512, 64
COMMON = {"num_hidden_layers": 4, "vocab_size": 8192, "max_position_embeddings": 1024, "tie_word_embeddings": False, "head_dim": 64,
          "bos_token_id": None, "eos_token_id": None}
# Family of the mixture, that of the dense model; hidden size, width of an expert, experts, experts of a token.
SHAPES = [("mixtral", "mistral", 768, 768, 8, 2), ("qwen3_moe", "qwen3", 512, 384, 32, 4)]
QUICK_SHAPES = [("mixtral", "mistral", 64, 64, 4, 2), ("qwen3_moe", "qwen3", 64, 48, 8, 3)]
GOAL = 0.8  # of the tokens/s of the dense model


def configs(mixture: str, dense: str, hidden: int, width: int, experts: int, per_token: int) -> tuple[dict, dict]:
    """Configurations of the mixture and of the dense model, as changes of a preset of Llama."""
    common = COMMON | {"hidden_size": hidden, "num_attention_heads": hidden // 64, "num_key_value_heads": hidden // 64, "sliding_window": None}
    own = {"intermediate_size": width, "num_experts_per_tok": per_token, "output_router_logits": False}
    own |= {"num_local_experts": experts} if mixture == "mixtral" else {
        "num_experts": experts, "moe_intermediate_size": width, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
    architectures = {"mixtral": "Mixtral", "mistral": "Mistral", "qwen3_moe": "Qwen3Moe", "qwen3": "Qwen3"}

    def of_family(name: str) -> dict:
        return common | {"model_type": name, "architectures": [architectures[name] + "ForCausalLM"]}

    return of_family(mixture) | own, of_family(dense) | {"intermediate_size": per_token * width}


def cases(length: int, threads: int, peer: bool, native: str) -> dict[str, tuple[str, Case]]:
    """By name: the model, `mixture` or `dense`, and the case. Compared programs are next to each other."""
    flags = {"bf16": ("--precision", "bf16"), "fp8": ("--precision", "fp8")}
    flags |= {f"torch {native}": ("--dtype", native, "--transformers")} if peer else {}
    return {f"{what} {model}": (model, Case(f"{what} {model}", length, of, 1, threads, what.startswith("torch")))
            for what, of in flags.items() for model in ("dense", "mixture")}


def entries(shape: tuple, length: int, runs: dict[str, list[dict]]) -> list[dict]:
    """One entry a case: its tokens/s, relative to those of the same model in PyTorch and, for a mixture, to those of the dense model in the same program
    and precision, by round."""
    _, _, hidden, width, experts, per_token = shape
    good = {name: [statistics.median(r["tokens_per_s"]) for r in of if "failed" not in r] for name, of in runs.items()}
    found = []
    for name, of in runs.items():
        entry = {"name": f"{name}, {hidden}, {per_token} of {experts} x {width}, {BATCH}x{length}"}
        if "failed" in of[-1]:
            found.append(entry | {"failed": of[-1]["failed"]})
            continue
        entry |= {"tokens_per_s": summary(good[name]), "tokens_per_s_by_round": good[name], "command": of[-1]["command"],
                  "memory_peak_bytes": max(r["memory_peak_bytes"] for r in of)}
        entry |= {key: of[-1][key] for key in ("fp8_flop_share", "parameters", "expert_load_max") if key in of[-1]}
        what, model = name.rsplit(" ", 1)
        others = {"of_dense": f"{what} dense"} if model == "mixture" else {}
        others |= {"of_peer": peer for peer in good if peer.startswith("torch") and peer.endswith(model) and peer != name}
        for key, other in others.items():
            if by_round := [x / y for x, y in zip(good[name], good[other])]:
                entry |= {key: summary(by_round), f"{key}_by_round": by_round}
        if "of_dense" in entry and not name.startswith("torch"):
            entry["wanted"] = GOAL
        found.append(entry)
    return found


def measure(folder: Path, programs: Path, peer_python: str, threads: int, native: str, quick: bool, rounds: int) -> list[dict]:
    """Runs every case of every shape in each round. `peer_python` may be empty."""
    length, timed, warm_up = (QUICK_LENGTH, 3, 1) if quick else (LENGTH, int(os.environ.get("BENCH_STEPS", 5)), 2)
    found = []
    for shape in QUICK_SHAPES if quick else SHAPES:
        place = folder / "experts"
        spaces = {model: Workspace(place / model, programs, peer_python, False, config)
                  for model, config in zip(("mixture", "dense"), configs(*shape))}
        chosen = cases(length, threads, bool(peer_python), native)
        runs: dict[str, list[dict]] = {name: [] for name in chosen}
        for _ in range(rounds):
            for name, (model, case) in chosen.items():
                if not any("failed" in r for r in runs[name]):
                    runs[name].append(spaces[model].run(case, timed, warm_up))
        shutil.rmtree(place)
        found += entries(shape, length, runs)
    return found
