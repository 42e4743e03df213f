"""casts/: casts and scales of torchao, by calling torchao, and of Transformer Engine, by the rules in casts/README.md, in float32."""

import dataclasses
import itertools

import h5py
import numpy as np
import torch
from reference import GOLDEN, compare_datasets, finish, tensor
from torchao.float8.config import ScalingGranularity
from torchao.float8.float8_scaling_utils import hp_tensor_to_float8_dynamic
from torchao.float8.float8_training_tensor import LinearMMConfig
from torchao.float8.float8_utils import amax_to_scale, to_fp8_saturated
from torchao.prototype.blockwise_fp8_training import kernels as blockwise
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import to_mx

FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
Computed = dict[str, torch.Tensor]


def codes() -> None:
    with h5py.File(GOLDEN / "casts/codes.h5") as file:
        bits = torch.from_numpy(file["f32/bits"][()].view(np.float32))
    every = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
    computed: Computed = {}
    for name, dtype in FP8.items():
        computed[f"bf16/{name}_codes"] = to_fp8_saturated(every, dtype)
        computed[f"f32/{name}_codes"] = to_fp8_saturated(bits, dtype)
    for name, dtype in {**FP8, "e8m0": torch.float8_e8m0fnu}.items():
        computed[f"decode/{name}"] = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype).to(torch.float32)
    compare_datasets(GOLDEN / "casts/codes.h5", computed, lambda name: name == "f32/bits")


def masked(scale: torch.Tensor) -> torch.Tensor:
    """Rounds down to a power of two: keeps sign and exponent. NaN stays NaN."""
    bits = (scale.view(torch.int32) & -0x800000).view(torch.float32)
    return torch.where(scale.isnan(), scale, bits)


def te_scale(amax: torch.Tensor, largest: float, overflow: float, pow2: bool) -> torch.Tensor:
    """Transformer Engine's current and blockwise scaling."""
    scale = torch.tensor(largest, dtype=torch.float32) / amax
    scale = torch.where(scale.isinf(), torch.tensor(overflow, dtype=torch.float32), scale)
    scale = torch.where((amax == 0) | ~amax.isfinite(), torch.tensor(1.0), scale)
    return masked(scale) if pow2 else scale


def scales() -> None:
    path = GOLDEN / "casts/scales.h5"
    computed: Computed = {}
    with h5py.File(path) as file:
        amax = tensor(file["amax"])
        special = {name: tensor(file[f"known_differences/{name}_pow2/amax"]) for name in FP8}
    for name, dtype in FP8.items():
        largest = torch.finfo(dtype).max
        computed[f"{name}_scale"] = amax_to_scale(amax, dtype, False)
        computed[f"{name}_scale_pow2"] = amax_to_scale(amax, dtype, True)
        computed[f"te_current/{name}_scale"] = te_scale(amax, largest, torch.finfo(torch.float32).max, False)
        group = f"known_differences/{name}_pow2"
        computed[f"{group}/torchao_scale"] = amax_to_scale(special[name], dtype, True)
        computed[f"{group}/rule_scale"] = masked(torch.tensor(largest) / special[name])
    for short, dtype in {"bf16": torch.bfloat16, "f32": torch.float32}.items():
        for pow2 in (False, True):
            name = f"te_blockwise/e4m3_scale{'_pow2' if pow2 else ''}_{short}"
            computed[name] = te_scale(amax, 448.0, torch.finfo(dtype).max, pow2)
    compare_datasets(path, computed, lambda name: name.split("/")[-1] == "amax")


def tensors() -> None:
    path = GOLDEN / "casts/tensors.h5"
    row, whole = ScalingGranularity.AXISWISE, ScalingGranularity.TENSORWISE
    modes = {"tensorwise_e4m3": (FP8["e4m3"], whole, None), "tensorwise_e5m2": (FP8["e5m2"], whole, None),
             "per_row_e4m3": (FP8["e4m3"], row, -1), "per_column_e4m3": (FP8["e4m3"], row, 0)}
    computed: Computed = {}
    with h5py.File(path) as file:
        for case, group in file.items():
            x = tensor(group["x"])
            for (mode, (dtype, granularity, axis)), pow2 in itertools.product(modes.items(), (False, True)):
                name = f"{mode}{'_pow2' if pow2 else ''}"
                if f"{name}_codes" not in group:
                    continue
                cast = hp_tensor_to_float8_dynamic(x, dtype, LinearMMConfig(), scaling_granularity=granularity,
                                                   axiswise_dim=axis, round_scales_to_power_of_2=pow2)
                computed[f"{case}/{name}_codes"] = cast._data
                computed[f"{case}/{name}_scale"] = cast._scale
    compare_datasets(path, computed, lambda name: name.endswith("/x"))


def te_blocks(x: torch.Tensor, block: str, pow2: bool, nan_propagates: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of x in blocks of rows x columns; the last blocks may be smaller."""
    high, wide = (int(part) for part in block.split("x"))
    rows, cols = x.shape
    values = x.to(torch.float32)
    magnitude = values.abs() if nan_propagates else values.abs().nan_to_num(0.0, posinf=torch.inf)
    padded = torch.nn.functional.pad(magnitude, (0, -cols % wide, 0, -rows % high))
    amax = padded.view(padded.shape[0] // high, high, padded.shape[1] // wide, wide).amax(dim=(1, 3))
    scale = te_scale(amax, 448.0, torch.finfo(x.dtype).max, pow2)
    spread = scale.repeat_interleave(high, 0)[:rows].repeat_interleave(wide, 1)[:, :cols]
    return to_fp8_saturated(values * spread, FP8["e4m3"]), scale


def blocks() -> None:
    path = GOLDEN / "casts/blockwise.h5"
    from_torchao = {"1x128": blockwise.torch_blockwise_scale_act_quant_lhs, "128x1": blockwise.torch_blockwise_scale_act_quant_rhs,
                    "128x128": blockwise.torch_blockwise_scale_weight_quant}
    computed: Computed = {}
    with h5py.File(path) as file:
        for case, group in file.items():
            x = tensor(group["x"])
            for block, function in from_torchao.items():
                for name, pow2 in ((f"te_pow2_{block}", True), (f"te_{block}", False)):
                    if f"{name}_codes" in group:
                        computed[f"{case}/{name}_codes"], computed[f"{case}/{name}_scale"] = te_blocks(x, block, pow2)
                if f"torchao_{block}_codes" in group:
                    found = function(x)
                    computed[f"{case}/torchao_{block}_codes"], computed[f"{case}/torchao_{block}_scale_inv"] = found
                for name, propagates in (("nan_ignored", False), ("nan_propagates", True)):
                    if f"{block}_{name}_codes" in group:
                        found = te_blocks(x, block, True, propagates)
                        computed[f"{case}/{block}_{name}_codes"], computed[f"{case}/{block}_{name}_scale"] = found
    compare_datasets(path, computed, lambda name: name.endswith("/x"))


def rceil_rule(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The exponent of amax / MAX rounded up on its bits, 2^127 at exponent 0."""
    values = x.to(torch.float32).view(*x.shape[:-1], -1, 32)
    amax = values.abs().amax(-1)
    bits = (amax * (torch.tensor(1.0) / torch.finfo(dtype).max)).view(torch.int32)
    exponent, fraction = bits >> 23, bits & 0x7FFFFF
    up = (fraction > 0) & (exponent != 254) & ~((exponent == 0) & (fraction <= 0x400000))
    exponent = exponent + up
    factor = torch.exp2(127.0 - exponent.to(torch.float64)).to(torch.float32)
    scaled = values * factor.unsqueeze(-1)
    return to_fp8_saturated(scaled, dtype).view(x.shape), exponent.to(torch.uint8).view(torch.float8_e8m0fnu)


def mx() -> None:
    path = GOLDEN / "casts/mx.h5"
    modes = {"floor": ScaleCalculationMode.FLOOR, "rceil": ScaleCalculationMode.RCEIL}
    computed: Computed = {}
    with h5py.File(path) as file:
        for case, (name, dtype) in itertools.product(file, FP8.items()):
            if case == "known_differences":
                where = f"{case}/rceil_{name}"
                x = tensor(file[f"{where}/x"])
                scale, data = to_mx(x, dtype, 32, modes["rceil"])
                computed[f"{where}/torchao_codes"], computed[f"{where}/torchao_scale"] = data, scale
                computed[f"{where}/rule_codes"], computed[f"{where}/rule_scale"] = rceil_rule(x, dtype)
                continue
            x = tensor(file[f"{case}/x"])
            for mode, value in modes.items():
                scale, data = to_mx(x, dtype, 32, value)
                computed[f"{case}/{mode}_{name}_codes"], computed[f"{case}/{mode}_{name}_scale"] = data, scale
    compare_datasets(path, computed, lambda name: name.endswith("/x"))


@dataclasses.dataclass
class Delayed:
    """The amax history of a tensor and its scales for every algorithm, format and margin, also with NaN propagated."""

    history: np.ndarray
    scale: np.ndarray  # [algorithm, format, margin]
    scale_if_nan_propagates: np.ndarray

    def update(self, amax: np.float32, margins: np.ndarray) -> None:
        self.history[0] = amax
        if amax == 0:
            return
        with np.errstate(all="ignore"):
            skipping = np.fmax.reduce(self.history, initial=np.float32(0))
            passing = np.max(self.history)
            for scales, most in ((self.scale, skipping), (self.scale_if_nan_propagates, passing)):
                for a, f, m in np.ndindex(scales.shape):
                    chosen = most if a == 0 else amax
                    largest = np.float32((448.0, 57344.0)[f] * 2.0 ** -int(margins[m]))
                    if chosen > 0 and np.isfinite(chosen):
                        scales[a, f, m] = np.minimum(largest / chosen, np.finfo(np.float32).max)
        self.history = np.roll(self.history, -1)
        self.history[0] = 0


def delayed() -> None:
    path = GOLDEN / "casts/delayed.h5"
    computed: Computed = {}
    inputs = ("amax", "initial_history", "initial_scale")
    with h5py.File(path) as file:
        margins = file.attrs["margins"]
        for where in (f"{length}/{name}" for length, group in file.items() for name in group):
            group = file[where]
            initial = np.full((2, 2, len(margins)), group["initial_scale"][0], np.float32)
            state = Delayed(group["initial_history"][()].copy(), initial, initial.copy())
            tail, scale, passing = [], [], []
            for amax in group["amax"][()]:
                state.update(amax, margins)
                tail.append(state.history[group["history_tail"].attrs["first_slot"]:].copy())
                scale.append(state.scale.copy())
                passing.append(state.scale_if_nan_propagates.copy())
            found = {"history_tail": np.stack(tail), "final_history": state.history, "scale": np.stack(scale, -1),
                     "scale_if_nan_propagates": np.stack(passing, -1)}
            computed |= {f"{where}/{name}": torch.from_numpy(value) for name, value in found.items() if name in group}
    compare_datasets(path, computed, lambda name: name.split("/")[-1] in inputs)


def main() -> None:
    for part in (codes, scales, tensors, blocks, mx, delayed):
        part()
    finish()


main()
