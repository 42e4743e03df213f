"""Whole training steps of fp8-step and of the peer: the list of cases, and one run of a case."""

import dataclasses
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path

BATCH = 4
TOKENS = 1 << 18
ROOM = 6 << 30  # free bytes required to store the checkpoint of a run in memory
QUICK = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
         "vocab_size": 4096, "bos_token_id": 0, "eos_token_id": 0}


@dataclasses.dataclass(frozen=True)
class Case:
    """One program with one sequence length. A step has BATCH sequences, divided among the ranks, or shared by `tp` x `pp` of
    them."""

    what: str
    length: int
    flags: tuple[str, ...]
    ranks: int = 1
    threads: int = 1
    peer: bool = False
    tp: int = 1
    pp: int = 1

    @property
    def name(self) -> str:
        return f"{self.what} {BATCH}x{self.length} {self.ranks}x{self.threads}"


def cases(lengths: tuple[int, ...], threads: int, peer: bool, quick: bool, native: str) -> list[Case]:
    """The cases, with compared programs next to each other. 'RxT' is ranks x threads per rank. `native` is the fast type of PyTorch on this CPU,
    bf16 or f32: without bf16 instructions its bf16 GEMMs take a hundred times as long as those in f32."""
    typed = ("--dtype", native)
    stored = ("--master", "bf16", "--moments", "bf16")
    found = []
    for t in lengths:
        found.append(Case("bf16", t, ("--precision", "bf16"), 1, threads))
        if native == "f32":
            found.append(Case("fp32", t, ("--precision", "fp32"), 1, threads))
        if peer and not quick:
            found.append(Case(f"torch {native} compiled", t, (*typed, "--compile"), 1, threads, True))
        found.append(Case("fp8", t, ("--precision", "fp8"), 1, threads))
        if peer and not quick:
            found.append(Case("torch fp8 compiled", t, (*typed, "--fp8", "--compile"), 1, threads, True))
        if t >= 256:
            for recipe in ("rowwise", "delayed", "current", "blockwise", "mxfp8", "nvfp4"):
                found.append(Case(f"fp8 {recipe}", t, ("--precision", "fp8", "--recipe", recipe), 1, threads))
            found.append(Case("fp8 hopper", t, ("--precision", "fp8", "--accumulate", "hopper"), 1, threads))
        found.append(Case("bf16 stored bf16", t, ("--precision", "bf16", *stored), 1, threads))
        if peer:
            found.append(Case(f"torch {native} eager", t, typed, 1, threads, True))
        for precision in ("bf16", "fp8"):
            if threads != 2:
                found.append(Case(precision, t, ("--precision", precision), 1, 2))
            found.append(Case(precision, t, ("--precision", precision), 2, 1))
        packed = ("--precision", "bf16", "--data", f"packed-{t}.h5")
        for documents in ("separate", "joined"):
            found.append(Case(f"bf16 packed {documents}", t, (*packed, "--documents", documents), 1, threads))
    return found


class Workspace:
    """A folder with a model of random weights and random tokens for fp8-step and the peer."""

    def __init__(self, folder: Path, programs: Path, peer_python: str, quick: bool, changes: dict | None = None) -> None:
        self.folder, self.programs, self.peer_python = folder, programs, peer_python
        folder.mkdir(parents=True, exist_ok=True)
        preset = json.loads((Path(os.environ["FP8_SHARE"]) / "presets" / "llama-124m.json").read_text())
        self.config = preset | (QUICK if quick else {}) | (changes or {})
        (folder / "config.json").write_text(json.dumps(self.config))
        draw = random.Random(1)
        ids = array("H", (draw.randrange(self.config["vocab_size"]) for _ in range(TOKENS)))
        if sys.byteorder == "big":
            ids.byteswap()
        (folder / "tokens.u16").write_bytes(ids.tobytes())
        self._tool("fp8-tokenize", "tokens.u16", "--from", "u16", "--vocab-size", str(self.config["vocab_size"]), "-o", "tokens.h5", "-f", "-q")
        self._tool("fp8-init", "config.json", "-o", "model.h5", "-f", "-q")

    def pack(self, length: int) -> None:
        """Makes packed-LENGTH.h5: conversations of random words, several in each sequence of this length."""
        draw, words = random.Random(2), "the cat saw a dog near an old house and ran away from it at once".split()

        def text() -> str:
            return " ".join(draw.choices(words, k=draw.randrange(2, max(3, length // 12))))

        lines = [json.dumps({"instruction": text(), "output": text()}) for _ in range(4096)]
        (self.folder / "chat.jsonl").write_text("\n".join(lines) + "\n")
        tokenizer = Path(__file__).resolve().parents[1] / "golden" / "chat" / "llama3"
        self._tool("fp8-tokenize", "chat.jsonl", "--tokenizer", str(tokenizer), "--template", "llama3", "--pack", str(length), "-o",
                   f"packed-{length}.h5", "-f", "-q")

    def _tool(self, name: str, *arguments: str) -> None:
        done = subprocess.run([self.programs / name, *arguments], cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"bench: {done.stderr.strip()}")

    def run(self, case: Case, timed: int, warm_up: int) -> dict:
        """Runs a case: tokens/s of the timed steps, peak bytes of the process (of the largest rank), the command."""
        return self._peer(case, timed, warm_up) if case.peer else self._ours(case, timed, warm_up)

    def _ours(self, case: Case, timed: int, warm_up: int) -> dict:
        memory = Path("/dev/shm")
        roomy = memory.is_dir() and shutil.disk_usage(memory).free > ROOM
        with tempfile.TemporaryDirectory(dir=memory if roomy else self.folder) as out:
            command = ["fp8-step", "model.h5", "--data", "tokens.h5", "--out", out + "/run", "--batch-size", str(BATCH * case.tp * case.pp // case.ranks),
                       "--seq-length", str(case.length), "--steps", str(warm_up + timed), "-q", *case.flags]
            for flag, ranks in (("--tp", case.tp), ("--pp", case.pp)):
                command += [flag, str(ranks)] if ranks > 1 else []
            if case.ranks > 1:
                command = ["mpirun", "-n", str(case.ranks), *command]
            done = self._execute(command, case.threads)
        if done.returncode != 0:
            raise SystemExit(f"bench: {case.name}: status {done.returncode}: {done.stderr.strip()[-500:]}")
        records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        run = next(r for r in records if r["type"] == "run")
        steps = [r for r in records if r["type"] == "step"][warm_up:]
        some = {key: steps[-1][key] for key in ("expert_load_max", "bubble_expected") if key in steps[-1]}
        some |= {"bubble": statistics.median(r["bubble"] for r in steps)} if "bubble" in steps[-1] else {}
        return some | {"tokens_per_s": [r["tokens_per_s"] for r in steps], "model_tflops": statistics.median(r["model_tflops"] for r in steps),
                       "memory_peak_bytes": max(r["memory_peak_bytes"] for r in steps), "memory_plan_bytes": run["memory_plan"]["total"],
                       "fp8_flop_share": steps[-1]["fp8_flop_share"], "parameters": run["parameters"], "loss": steps[-1]["loss"],
                       "command": self._shown(command, case.threads).replace(out + "/run", "run")}

    def _peer(self, case: Case, timed: int, warm_up: int) -> dict:
        script = Path(__file__).with_name("torch_step.py")
        command = [self.peer_python, "-W", "ignore", str(script), "config.json", "tokens.u16", "--batch-size", str(BATCH), "--seq-length",
                   str(case.length), "--steps", str(timed), "--warm-up", str(warm_up), "--threads", str(case.threads), *case.flags]
        done = self._execute(command, case.threads)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return {"failed": f"status {done.returncode}: {last[:300]}"}
        return json.loads(done.stdout.splitlines()[-1]) | {"command": self._shown(["python3", script.name, *command[4:]], case.threads)}

    def _execute(self, command: list[str], threads: int) -> subprocess.CompletedProcess:
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"),
                                    "PATH": f"{self.programs}:{os.environ['PATH']}"}
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)

    @staticmethod
    def _shown(command: list[str], threads: int) -> str:
        return " ".join([f"OMP_NUM_THREADS={threads}", *command])
