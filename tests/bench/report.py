"""Formats the result as tables."""

from collections.abc import Callable

Row = list[str]


def table(title: str, head: Row, rows: list[Row]) -> str:
    """A table with the first column left-aligned and the others right-aligned."""
    if not rows:
        return ""
    width = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    lines = ["  ".join([r[0].ljust(width[0]), *(c.rjust(w) for c, w in zip(r[1:], width[1:]))]).rstrip() for r in [head, *rows]]
    return "\n".join([f"\n{title}", *("  " + line for line in lines)])


def spread(s: dict | None, form: Callable[[float], str]) -> Row:
    return ["-", "-"] if s is None else [form(s["median"]), f"{form(s['min'])} to {form(s['max'])}"]


# Lower bounds of ratios, by the prefix of the benchmark's name.
WANTED = {"write_with_digests": 0.8, "load_with_digests": 0.8, "steps during a save": 0.98,
          "generate fp32": 0.7, "generate bf16": 0.7, "export bf16": 0.5, "cast_bytes": 0.6, "cast_bf16": 0.6, "adamw_block/f32_and_bf16_copy": 0.8}


def wanted(name: str) -> str:
    return next((f">= {_percent(share)}" for start, share in WANTED.items() if name.startswith(start)), "")


def _percent(x: float) -> str:
    return f"{100 * x:.0f} %"


def _tokens(x: float) -> str:
    return f"{x:.0f}" if x >= 100 else f"{x:.1f}"


def _giga(x: float) -> str:
    return f"{x * 1e-9:.0f}"


def _gib(x: float | None) -> str:
    return "-" if x is None else f"{x / 2**30:.2f}"


def _step_row(s: dict) -> Row:
    if "failed" in s:
        return [s["name"], "failed", "-", "-", "-", "-", "-", "-"]
    tflops = f"{s['model_tflops']:.3f}" if "model_tflops" in s else "-"
    return [s["name"], *spread(s["tokens_per_s"], _tokens), tflops, *spread(s["share_of_peak"], _percent), _gib(s["memory_peak_bytes"]),
            _gib(s.get("memory_plan_bytes"))]


def _token_row(k: dict) -> Row:
    if "of_one_core" in k:
        return [k["name"], *spread(k["of_one_core"], lambda x: f"{x:.2f}"), "", "", "", ""]
    peer = k["peer_bytes_per_s"]
    return [k["name"], *spread(k["of_peer"], lambda x: f"{x:.1f}"), ">= 3", *spread(k["bytes_per_s"], _mega), _mega(peer["median"]) if peer else "-"]


def _expert_row(k: dict) -> Row:
    if "failed" in k:
        return [k["name"], "failed", *[""] * 6]
    ratio = spread(k["of_dense"], lambda x: f"{x:.2f}") if "of_dense" in k else ["", ""]
    peer, load = k.get("of_peer"), k.get("expert_load_max")
    return [k["name"], _tokens(k["tokens_per_s"]["median"]), *ratio, f">= {k['wanted']:.2f}" if "wanted" in k else "", f"{peer['median']:.2f}" if peer else "", _gib(k["memory_peak_bytes"]),
            f"{load:.2f}" if load is not None else ""]


def _mega(x: float) -> str:
    return f"{x * 1e-6:.1f}"


def optimizer_tables(rows: list[dict]) -> list[str]:
    """AdamW's update beside a triad, and Muon's beside AdamW's."""
    return [
        table("Optimizer relative to a triad", ["", "of triad", "spread", "wanted", "GB/s", "triad GB/s"],
              [[k["name"], *spread(k["of_triad"], _percent), wanted(k["name"]), f"{k['GB/s']['median']:.1f}", f"{k['triad_GB/s']['median']:.1f}"]
               for k in rows if "of_triad" in k]),
        table("Muon's update of one matrix: its time relative to AdamW's, and the rate of its FLOPs relative to one GEMM (halves of symmetric "
              "products are not computed)", ["", "of AdamW", "spread", "of GEMM", "spread"],
              [[k["name"], *spread(k["of_adamw"], lambda x: f"{x:.0f} x"), *spread(k["of_gemm"], lambda x: f"{x:.2f}")]
               for k in rows if "of_adamw" in k])]


def text(result: dict) -> str:
    """All tables."""
    v, m = result["versions"], result["machine"]
    peer = "".join(f", {name} {v[name]}" for name in ("torch", "torchao", "transformers") if name in v)
    out = [f"{result['date']}  {v['commit']}, oneDNN {v['onednn']}{peer}; {m['cpu']}, {m['threads']} threads; {result['rounds']} rounds"]
    out.append(table("Steps (tokens in a batch; ranks x threads; memory of one process)",
                     ["", "tokens/s", "spread", "TFLOP/s", "of peak", "spread", "GiB", "planned"], [_step_row(s) for s in result["steps"]]))
    out.append(table("Ratios of tokens/s, each within a round",
                     ["", "ratio", "spread", "wanted"],
                     [[r["name"], *spread(r["ratio"], lambda x: f"{x:.2f}"), f">= {r['wanted']:.2f}" if r["wanted"] else ""] for r in result["ratios"]]))
    out.append(table("oneDNN bf16 matmul at the step's shapes, GFLOP/s", ["", "fastest", "rounds", "tokens/s at this rate"],
                     [[f"{p['rows']} rows", _giga(p["flop_per_s"]), f"{_giga(min(p['by_round']))} to {_giga(max(p['by_round']))}",
                       _tokens(p["tokens_per_s"])] for p in result["peak"]]))
    out.append(table("Casts relative to a memcpy of the same bytes", ["", "of memcpy", "spread", "wanted", "GB/s", "spread"],
                     [[k["name"], *spread(k["of_memcpy"], _percent), wanted(k["name"]), *spread(k["GB/s"], lambda x: f"{x:.1f}")]
                      for k in result["casts"]]))
    out += optimizer_tables(result["optimizer"])
    out.append(table("Checkpoint files relative to plain writes with one fsync and plain uncached reads",
                     ["", "of plain", "spread", "wanted", "GB/s", "plain GB/s", "CPU s/GB", "plain CPU s/GB"],
                     [[k["name"], *spread(k["of_plain"], _percent), wanted(k["name"]),
                       *(f"{k[c]['median']:.2f}" for c in ("GB/s", "plain_GB/s", "processor_s_per_GB", "plain_processor_s_per_GB"))]
                      for k in result["disk"]]))
    out.append(table("Steps during an asynchronous save, and the time for which a save blocks steps",
                     ["", "of usual rate", "spread", "wanted", "steps", "blocked s", "synchronous s"],
                     [[k["name"], *spread(k["of_usual_rate"], _percent), wanted(k["name"]), str(k["steps_beside"]), f"{k['wait_s']['median']:.2f}",
                       f"{k['wait_s_sync']['median']:.2f}"] for k in result["saves"]]))
    out.append(table("fp8-generate, 124M parameters, one text, relative to reading as many bytes as its weights have",
                     ["", "of memory", "spread", "wanted", "tokens/s", "spread", "memory GB/s"],
                     [[k["name"], *spread(k["of_memory"], _percent), wanted(k["name"]), *spread(k["tokens_per_s"], _tokens),
                       _giga(k["memory_bytes_per_s"]["median"])] for k in result["generate"]]))
    out.append(table("Steps of mixtures of experts (hidden size, experts, tokens in a batch), relative to a dense model of the same FLOPs per token",
                     ["", "tokens/s", "of dense", "spread", "wanted", "of torch", "GiB", "load"], [_expert_row(k) for k in result["experts"]]))
    for key, what in (("tensor_parallel", "that divide linears (--tp 2)"), ("pipeline", "that are stages of layers (--pp 2), with 8 micro-batches")):
        out.append(table(f"Steps of two ranks {what}, a thread each, relative to one rank with two threads",
                         ["", "of one rank", "spread", "wanted", "tokens/s", "one rank", "GiB", "one rank", "bubble", "expected"],
                         [[k["name"], *spread(k["of_one_rank"], lambda x: f"{x:.2f}"), f">= {k['wanted']:.2f}", _tokens(k["tokens_per_s"]["median"]),
                           _tokens(k["one_rank_tokens_per_s"]["median"]), _gib(k["memory_peak_bytes"]), _gib(k["one_rank_memory_peak_bytes"]),
                           *(f"{k[name]:.2f}" if name in k else "" for name in ("bubble", "bubble_expected"))] for k in result[key]]))
    exported = f"{result['exports'][0]['bytes'] * 1e-9:.1f} GB" if result["exports"] else ""
    out.append(table(f"fp8-export of a model of {exported} in bf16, relative to cp and fsync of these bytes",
                     ["", "of cp", "spread", "wanted", "GB/s", "spread", "cp GB/s"],
                     [[k["name"], *spread(k["of_cp"], _percent), wanted(k["name"]), *spread(k["bytes_per_s"], lambda x: f"{x * 1e-9:.2f}"),
                       f"{k['cp_bytes_per_s']['median'] * 1e-9:.2f}"] for k in result["exports"]]))
    out.append(table("Encoding with tokenizer.json on one core, relative to encode_batch_fast of Hugging Face tokenizers",
                     ["", "of the peer", "spread", "wanted", "MB/s", "spread", "peer MB/s"], [_token_row(k) for k in result["tokens"]]))
    out.append(table("FP8 GEMMs with the summation of an H100, 256 x 768 x 768, GFLOP/s per core, and speed relative to mmaemu",
                     ["", "GFLOP/s", "spread", "wanted", "of mmaemu", "spread"],
                     [[k["name"], *spread(k["flop_per_s"], lambda x: f"{x * 1e-9:.1f}"), ">= 8" if "baseline" in k["name"] else ">= 45",
                       *spread(k["of_mmaemu"], lambda x: f"{x:.0f}")] for k in result["tensor_core"]]))
    rates = {"FLOP/s": "GFLOP/s", "bytes/s": "GB/s", "logits/s": "G logits/s"}
    rows = [[k["name"], *spread(k[c], lambda x: f"{x * 1e-9:.2f}"), unit] for k in result["ops"] for c, unit in rates.items() if c in k]
    out.append(table("Attention and element-wise operations, 4 x 512", ["", "speed", "spread", ""], rows))
    out.append(table("fp8-log on a log of " + (f"{result['logs'][0]['bytes'] * 1e-6:.0f} MB" if result["logs"] else ""),
                     ["", "MB/s", "spread", "of wc -l", "CPU s/GB", "peak MB"],
                     [[k["name"], *spread(k["bytes_per_s"], lambda x: f"{x * 1e-6:.0f}"), _percent(k["of_wc"]["median"]),
                       f"{k['processor_s_per_gb']['median']:.1f}", f"{k['memory_peak_bytes'] * 1e-6:.0f}"] for k in result["logs"]]))
    return "\n".join(part for part in out if part)
