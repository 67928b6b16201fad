#!/usr/bin/env python3
"""Writes tests/data/op_cases.safetensors: what every op of model/ops.h gives by PyTorch.

Needs PyTorch, on the CPU. Seeded, so that it writes the same file again:

    python tests/reference/make_op_cases.py

A case is named op or op.variant. Its tensors: <case>/in/<operand>, <case>/in/<scalar> (one element),
<case>/before/<output> for an output that is accumulated into, <case>/out/<output> as expected. Operands are
drawn in f32; the expected outputs are computed in f64, gradients by autograd, and rounded once. The metadata
gives each case its reduction length, from which the tests derive their tolerance.
"""

import json
import math
import pathlib
import struct
import unittest.mock

import torch
import torch.nn.functional as F

DEST = pathlib.Path(__file__).parents[1] / "data" / "op_cases.safetensors"

generator = torch.Generator().manual_seed(1337)
tensors, reductions = {}, {}


def normal(*shape, scale=1.0):
    return (scale * torch.randn(shape, generator=generator)).to(torch.float32)


def integers(high, *shape):
    return torch.randint(high, shape, generator=generator).to(torch.int32)


def f64(x):
    return x.to(torch.float64) if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def case(name, compute, inputs, outputs, before=None, reduce=1, replaced=()):
    """Adds a case. `compute` maps the operands in f64 to the outputs named in `outputs`. `before` has the outputs'
    values before the op, which adds to them unless they are in `replaced`."""
    before = before or {}
    results = compute(**{k: f64(v) for k, v in inputs.items()})
    if isinstance(results, torch.Tensor):
        results = (results,)
    assert len(results) == len(outputs), name
    for key, value in inputs.items():
        if not isinstance(value, torch.Tensor):
            value = torch.tensor([value], dtype=torch.int32 if isinstance(value, int) else torch.float32)
        tensors[f"{name}/in/{key}"] = value.contiguous()
    for key, value in zip(outputs, results):
        if key in before:
            tensors[f"{name}/before/{key}"] = before[key]
            value = value if key in replaced else before[key].to(torch.float64) + value
        tensors[f"{name}/out/{key}"] = torch.atleast_1d(value.detach().to(torch.float32)).contiguous()
    assert name not in reductions, name
    reductions[name] = str(reduce)


def gradient(function, dout, *operands):
    """Gradients of sum(function(*operands) * dout)."""
    leaves = [x.detach().clone().requires_grad_() for x in operands]
    (function(*leaves) * dout).sum().backward()
    return tuple(x.grad for x in leaves)


def f32_exact(value):
    """The Python float that f32 stores for `value`, so that both sides scale by the same number."""
    return float(torch.tensor(value, dtype=torch.float32))


def elementwise():
    for suffix, shape in (("", (2, 3, 7)), (".vector", (1,)), (".wide", (5, 67))):
        a, b = normal(*shape), normal(*shape)
        case("add" + suffix, lambda a, b: a + b, {"a": a, "b": b}, ["out"])
        case("mul" + suffix, lambda a, b: a * b, {"a": a, "b": b}, ["out"])
    case("zero", lambda: torch.zeros(3, 5), {}, ["x"])
    x = normal(3, 11)
    scale, shift = f32_exact(0.7), f32_exact(-0.3)
    case("affine", lambda x, scale, shift: scale * x + shift, {"x": x, "scale": scale, "shift": shift}, ["out"])
    case("pow.2", lambda x, exponent: x**exponent, {"x": x, "exponent": 2}, ["out"])
    case("pow.3", lambda x, exponent: x**exponent, {"x": x, "exponent": 3}, ["out"])
    case("tanh", lambda x: torch.tanh(x), {"x": normal(3, 11, scale=2)}, ["out"])
    edges = torch.tensor([0.0, 1e-4, -1e-4, 0.01, 9.0, -9.0, 20.0, -100.0, math.inf, -math.inf])
    case("tanh.edges", lambda x: torch.tanh(x), {"x": edges}, ["out"])
    case("sqrt", lambda x: torch.sqrt(x), {"x": normal(3, 11).abs()}, ["out"])
    case("sqrt.edges", lambda x: torch.sqrt(x), {"x": torch.tensor([0.0, 1e-12, 1e12, math.inf])}, ["out"])

    x, a, b = normal(4, 9), normal(4, 9), normal(4, 9)
    value = f32_exact(-0.05)
    case("lerp", lambda y, weight: weight * (y - f64(x)), {"y": a, "weight": f32_exact(0.1)}, ["x"], {"x": x})
    case("addcmul", lambda a, b, value: value * a * b, {"a": a, "b": b, "value": value}, ["x"], {"x": x})
    d = b.abs() + 0.1
    case("addcdiv", lambda a, b, value: value * a / b, {"a": a, "b": d, "value": value}, ["x"], {"x": x})
    # x *= factor is written as a difference, since a case's outputs are added to `before`.
    case("scale_by", lambda factor: f64(x) * factor - f64(x), {"factor": f32_exact(0.37)}, ["x"], {"x": x})


def rows():
    for suffix, shape in (("", (2, 5, 12)), (".narrow", (3, 1)), (".wide", (2, 3, 131)), (".offset", (4, 33))):
        N, C = shape[:-1], shape[-1]
        x = normal(*shape) + (100.0 if suffix == ".offset" else 0.0)
        eps = f32_exact(1e-5)
        case("row_mean" + suffix, lambda x: x.mean(-1), {"x": x}, ["mean"], reduce=C)
        mean = x.to(torch.float64).mean(-1).to(torch.float32)
        case("row_rstd" + suffix,
             lambda x, mean, eps: torch.rsqrt(((x - mean[..., None]) ** 2).mean(-1) + eps),
             {"x": x, "mean": mean, "eps": eps}, ["rstd"], reduce=C)
        rstd = normal(*N).abs() + 0.5
        case("normalize" + suffix, lambda x, mean, rstd: (x - mean[..., None]) * rstd[..., None],
             {"x": x, "mean": mean, "rstd": rstd}, ["out"])

        w, b = normal(C), normal(C)
        case("mul_columns" + suffix, lambda x, w: x * w, {"x": x, "w": w}, ["out"])
        case("add_columns" + suffix, lambda x, b: x + b, {"x": x, "b": b}, ["out"])
        case("sum_rows" + suffix, lambda x: x.reshape(-1, C).sum(0), {"x": x}, ["out"], {"out": w},
             reduce=math.prod(N))

    # The gradient of LayerNorm's normalisation, by autograd, from the statistics that the op is given.
    for suffix, shape in (("", (2, 5, 12)), (".row", (1, 1, 67))):
        C = shape[-1]
        x, dxhat = normal(*shape), normal(*shape)
        (dx,) = gradient(lambda x: F.layer_norm(x, (C,), eps=1e-5), f64(dxhat), f64(x))
        wide = f64(x)
        rstd = torch.rsqrt(wide.var(-1, unbiased=False) + 1e-5)
        xhat = (wide - wide.mean(-1, keepdim=True)) * rstd[..., None]
        operands = {"dxhat": dxhat, "xhat": xhat.to(torch.float32),
                    "mean_dxhat": f64(dxhat).mean(-1).to(torch.float32),
                    "mean_dxhat_xhat": (f64(dxhat) * xhat).mean(-1).to(torch.float32),
                    "rstd": rstd.to(torch.float32)}
        case("normalize_backward" + suffix, lambda **_: dx, operands, ["dx"], {"dx": normal(*shape)}, reduce=C)


def embedding():
    for suffix, (B, T, C, V) in (("", (2, 5, 6, 11)), (".T1", (3, 1, 4, 5)), (".one_token", (2, 9, 70, 3))):
        tokens = integers(V, B, T)
        if suffix == ".one_token":
            tokens[:] = 1
        wte, wpe, dout = normal(V, C), normal(T + 2, C), normal(B, T, C)
        case("embedding_backward" + suffix,
             lambda tokens, dout: gradient(lambda w: F.embedding(tokens, w), dout, f64(wte)),
             {"tokens": tokens, "dout": dout}, ["dwte"], {"dwte": normal(V, C)}, reduce=B * T)
        normal(B, T, C)  # keeps later random draws as they were; part of no case
        case("position_backward" + suffix,
             lambda dout: gradient(lambda w: w[:T].expand(B, T, C), dout, f64(wpe)),
             {"dout": dout}, ["dwpe"], {"dwpe": normal(T + 2, C)}, reduce=B)


def encoder():
    for suffix, (B, T, C, V) in (("", (2, 5, 6, 11)), (".T1", (3, 1, 70, 4))):
        case("encoder_forward" + suffix, lambda tokens, wte, wpe: F.embedding(tokens, wte) + wpe[:T],
             {"tokens": integers(V, B, T), "wte": normal(V, C), "wpe": normal(T + 2, C)}, ["out"])


def copies():
    for suffix, shape in (("", (2, 3, 7)), (".one", (1,))):
        case("copy" + suffix, lambda src: src, {"src": normal(*shape)}, ["dst"])
        case("receive" + suffix, lambda src: (src, src), {"src": normal(*shape)}, ["staged", "dst"])
    values = {key: f32_exact(x) for key, x in (("a", 6e-4), ("b", 17.0), ("c", -math.inf))}
    case("write", lambda **v: torch.tensor(list(v.values()), dtype=torch.float64), values, ["dst"])


def gelu(x):
    return F.gelu(x, approximate="tanh")


def activation():
    edges = torch.tensor([0.0, 1e-4, -1e-4, 1.0, -1.0, 5.0, -5.0, 9.0, -9.0, 100.0, -100.0, 6e4, -6e4])
    for suffix, x in (("", normal(2, 5, 12, scale=2)), (".wide", normal(3, 131)), (".edges", edges[None])):
        bias = torch.zeros(x.shape[-1]) if suffix == ".edges" else normal(x.shape[-1])
        case("bias_gelu_forward" + suffix, lambda bias: (bias.expand(x.shape), gelu(f64(x) + bias)),
             {"bias": bias}, ["x", "out"], {"x": x})
        case("gelu_forward" + suffix, gelu, {"x": x}, ["out"])
        case("gelu_backward" + suffix, lambda dout, x: gradient(gelu, dout, x),
             {"dout": normal(*x.shape), "x": x}, ["dx"])


def layernorm():
    def statistics(x):
        return x.mean(-1), torch.rsqrt(x.var(-1, unbiased=False) + 1e-5)

    for suffix, shape in (("", (2, 5, 12)), (".row", (1, 1, 67)), (".wide", (2, 3, 131)), (".offset", (4, 33))):
        C, N = shape[-1], math.prod(shape[:-1])
        x = normal(*shape) + (10.0 if suffix == ".offset" else 0.0)
        y, w, b, bias = normal(*shape), normal(C), normal(C), normal(C)
        norm = lambda x, w, b: F.layer_norm(x, (C,), w, b, eps=1e-5)
        case("layernorm_forward" + suffix, lambda x, w, b: (norm(x, w, b), *statistics(x)),
             {"x": x, "w": w, "b": b}, ["out", "mean", "rstd"], reduce=C)

        case("add_bias_residual" + suffix, lambda x, y, bias: x + y + bias, {"x": x, "y": y, "bias": bias}, ["out"])

        dout, before = normal(*shape), {"dx": normal(*shape), "dw": normal(C), "db": normal(C)}
        mean, rstd = (s.to(torch.float32) for s in statistics(f64(x)))
        operands = {"dout": dout, "x": x, "mean": mean, "rstd": rstd, "w": w}

        def backward(dout, x, w, **_):
            dx, dw, db = gradient(norm, dout, x, w, f64(b))
            return dx, dw, db, (f64(before["dx"]) + dx).reshape(-1, C).sum(0)

        case("layernorm_backward" + suffix, backward, operands, ["dx", "dw", "db", "dbias"],
             {**before, "dbias": normal(C)}, reduce=C + N)
        case("layernorm_backward.unbiased" + suffix, lambda **x: backward(**x)[:3], operands, ["dx", "dw", "db"],
             before, reduce=C + N)


def linear():
    for suffix, rows, Cin, Cout in (("", (2, 5), 6, 7), (".row", (1,), 1, 9), (".wide", (3, 3), 34, 65)):
        N = math.prod(rows)
        x, w, b, dout = normal(*rows, Cin), normal(Cout, Cin), normal(Cout), normal(*rows, Cout)
        operands = {"x": x, "w": w, "b": b}
        case("linear_forward" + suffix, lambda x, w, b: F.linear(x, w, b), operands, ["out"], reduce=Cin)
        case("linear_gelu_forward" + suffix, lambda x, w, b: (F.linear(x, w, b), gelu(F.linear(x, w, b))),
             operands, ["pre", "out"], reduce=Cin)

        def through_gelu(dout, w, pre):
            (dpre,) = gradient(lambda pre: F.linear(gelu(pre), w), dout, pre)
            return dpre, dpre.reshape(-1, Cin).sum(0)

        operands = {"dout": dout, "w": w, "pre": normal(*rows, Cin)}
        case("linear_gelu_backward" + suffix, through_gelu, operands, ["dpre", "db"], reduce=Cout + N)
        case("linear_gelu_backward.add" + suffix, through_gelu, operands, ["dpre", "db"], {"db": normal(Cin)},
             reduce=Cout + N)

        def weights(dout, x):
            return gradient(lambda w, b: F.linear(x, w, b), dout, f64(w), f64(b))

        operands = {"dout": dout, "x": x}
        case("linear_weight_backward" + suffix, weights, operands, ["dw", "db"], reduce=N)
        case("linear_weight_backward.add" + suffix, weights, operands, ["dw", "db"],
             {"dw": normal(Cout, Cin), "db": normal(Cout)}, reduce=N)


def residual_linear():
    for suffix, rows, Cin, Cout in (("", (2, 5), 6, 7), (".row", (1,), 1, 9), (".wide", (3, 3), 34, 65)):
        operands = {"x": normal(*rows, Cin), "w": normal(Cout, Cin), "b": normal(Cout),
                    "residual": normal(*rows, Cout)}
        case("linear_forward.residual" + suffix, lambda x, w, b, residual: residual + F.linear(x, w, b), operands,
             ["out"], reduce=Cin)


def matmul():
    """`op` is the index in MatOp: NN, NT, TN; `accumulate` is Write::add."""
    products = (lambda a, b: a @ b, lambda a, b: a @ b.mT, lambda a, b: a.mT @ b)

    def one(name, op, accumulate, a, b, flat):
        def product(a, b, **_):
            if flat and op == 2:
                a, b = a.flatten(0, -2), b.flatten(0, -2)
            return products[op](a, b)

        inputs = {"a": a, "b": b, "op": op}
        out = product(a, b)
        before = {"out": normal(*out.shape)} if accumulate else {}
        case(f"matmul.{name}", product, inputs, ["out"], before, reduce=a.shape[-2 if op == 2 else -1])

    for accumulate in (False, True):
        suffix = "_add" if accumulate else ""
        # Linear layers: x (B,T,C) W^T, its gradients dout W and dout^T x.
        one("linear" + suffix, 1, accumulate, normal(2, 5, 6), normal(7, 6), True)
        one("linear_dgrad" + suffix, 0, accumulate, normal(2, 5, 7), normal(7, 6), True)
        one("linear_wgrad" + suffix, 2, accumulate, normal(2, 5, 7), normal(2, 5, 6), True)
        # Attention: q k^T, att v, att^T dy in a batch of (B,NH).
        one("att_qk" + suffix, 1, accumulate, normal(3, 2, 5, 4), normal(3, 2, 5, 4), False)
        one("att_v" + suffix, 0, accumulate, normal(3, 2, 5, 5), normal(3, 2, 5, 4), False)
        one("att_dv" + suffix, 2, accumulate, normal(3, 2, 5, 5), normal(3, 2, 5, 4), False)
    one("T1", 1, False, normal(3, 2, 1, 4), normal(3, 2, 1, 4), False)
    one("long_sum", 0, False, normal(3, 301), normal(301, 5), True)
    one("vectors", 1, False, normal(1, 1), normal(9, 1), True)


def attention():
    for suffix, (B, NH, T, HS) in (("", (2, 3, 5, 4)), (".T1", (3, 1, 1, 3))):
        C = NH * HS
        heads = lambda x: x.reshape(B, T, NH, HS).transpose(1, 2)
        merge = lambda x: x.transpose(1, 2).reshape(B, T, C)
        qkv, x = normal(B, T, 3 * C), normal(B, T, C)
        q, k, v = (normal(B, NH, T, HS) for _ in range(3))
        case("split_qkv" + suffix, lambda qkv: tuple(heads(part) for part in qkv.split(C, -1)), {"qkv": qkv},
             ["q", "k", "v"])
        case("merge_qkv" + suffix, lambda q, k, v: torch.cat([merge(q), merge(k), merge(v)], -1),
             {"q": q, "k": k, "v": v}, ["qkv"])
        normal(3 * C)  # keeps later random draws as they were
        case("split_heads" + suffix, lambda x: heads(x), {"x": x}, ["out"])
        case("merge_heads" + suffix, lambda x: merge(x), {"x": q}, ["out"])

        mask = torch.zeros(T, T, dtype=torch.float64).masked_fill(
            torch.ones(T, T).tril() == 0, -math.inf)
        case("causal_mask" + suffix, lambda: mask, {}, ["mask"])
        att = normal(B, NH, T, T)
        case("add_mask" + suffix, lambda mask: mask.expand(B, NH, T, T), {"mask": mask.to(torch.float32)},
             ["att"], {"att": att})

        # NaN above the diagonal, where no op may read.
        above = torch.ones(T, T).triu(1) == 1
        hidden = lambda x: x.masked_fill(above, math.nan)
        causal = lambda x: torch.softmax(x.masked_fill(above, -math.inf), -1)
        case("causal_softmax_forward" + suffix, lambda x: causal(x), {"x": hidden(att)}, ["p"], reduce=T)
        dp = normal(B, NH, T, T)
        p = causal(f64(att)).to(torch.float32)
        case("causal_softmax_backward" + suffix, lambda dp, p: gradient(causal, f64(dp).nan_to_num(), f64(att)),
             {"dp": hidden(dp), "p": hidden(p)}, ["dx"], reduce=T)

        scale = f32_exact(0.3)
        scaled = lambda x: causal(scale * x)
        case("scaled_causal_softmax_forward" + suffix, lambda x, scale: scaled(x),
             {"x": hidden(att), "scale": scale}, ["p"], reduce=T)
        p = scaled(f64(att)).to(torch.float32)
        case("scaled_causal_softmax_backward" + suffix,
             lambda dp, p, scale: gradient(scaled, f64(dp).nan_to_num(), f64(att)),
             {"dp": hidden(dp), "p": hidden(p), "scale": scale}, ["dx"], reduce=T)

    softmax = lambda x: torch.softmax(x, -1)
    ties = torch.tensor([[2.0, 2.0, -1.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    masked = torch.tensor([[0.3, -math.inf, -math.inf, -math.inf], [1.0, -2.0, -math.inf, -math.inf]])
    large = torch.tensor([[1e4, 1e4 - 1, -1e4, 0.0], [-1e38, -1e38, -2e38, 1e38], [-200.0, -100.0, -95.0, 0.0]])
    for suffix, x in (("", normal(2, 3, 7, 7)), (".wide", normal(3, 67, scale=5)), (".ties", ties),
                      (".masked", masked), (".large", large), (".one", normal(4, 1))):
        S = x.shape[-1]
        dp = normal(*x.shape)
        case("softmax_forward" + suffix, lambda x: softmax(x), {"x": x}, ["p"], reduce=S)
        p = softmax(f64(x)).to(torch.float32)
        case("softmax_backward" + suffix, lambda dp, p: gradient(softmax, dp, f64(x)), {"dp": dp, "p": p},
             ["dx"], reduce=S)


def flash_attention():
    for suffix, (B, NH, T, HS), scale in (("", (2, 3, 5, 4), 1), (".T1", (3, 1, 1, 3), 1),
                                          (".long", (1, 2, 37, 8), 1), (".wide", (1, 1, 9, 72), 1),
                                          (".sharp", (1, 2, 17, 8), 12)):
        C = NH * HS

        def attention(qkv):
            q, k, v = (part.reshape(B, T, NH, HS).transpose(1, 2) for part in qkv.split(C, -1))
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            scores = (q @ k.mT / math.sqrt(HS)).masked_fill(torch.ones(T, T).triu(1) == 1, -math.inf)
            return out.transpose(1, 2).reshape(B, T, C), torch.logsumexp(scores, -1)

        qkv, dout = normal(B, T, 3 * C, scale=scale), normal(B, T, C)
        case("attention_forward" + suffix, attention, {"qkv": qkv}, ["out", "lse"], reduce=T + HS * scale**2)
        if scale > 1:
            continue  # the softmax is saturated: the gradient is mostly rounding
        out, lse = (x.to(torch.float32) for x in attention(f64(qkv)))
        case("attention_backward" + suffix, lambda dout, qkv, **_: gradient(lambda x: attention(x)[0], dout, qkv),
             {"dout": dout, "out": out, "lse": lse, "qkv": qkv}, ["dqkv"], reduce=T + 4 * HS)


def classifier():
    log_softmax = lambda x: torch.log_softmax(x, -1)
    large = torch.tensor([[1e4, 9e3, -1e4, 0.0, 5.0], [-1e38, 0.0, 2e38, 1.0, 2.0]]).reshape(2, 1, 5)
    ties = torch.full((3, 1, 6), -7.25)
    for suffix, x in (("", normal(2, 5, 11, scale=3)), (".wide", normal(1, 2, 517)), (".large", large),
                      (".ties", ties), (".V1", normal(2, 2, 1))):
        B, T, V = x.shape
        dlogp, targets = normal(B, T, V), integers(V, B, T)
        targets[0, 0] = V - 1
        case("log_softmax_forward" + suffix, lambda logits: log_softmax(logits), {"logits": x}, ["logp"],
             reduce=V)
        logp = log_softmax(f64(x)).to(torch.float32)
        case("log_softmax_backward" + suffix,
             lambda dlogp, logp: gradient(log_softmax, dlogp, f64(x)),
             {"dlogp": dlogp, "logp": logp}, ["dlogits"], reduce=V)
        case("nll_loss_forward" + suffix,
             lambda logp, targets: F.nll_loss(logp.reshape(-1, V), targets.reshape(-1).long(),
                                              reduction="none").reshape(B, T),
             {"logp": logp, "targets": targets}, ["losses"])
        scale = f32_exact(1 / (B * T))
        case("nll_loss_backward" + suffix,
             lambda targets, scale: gradient(
                 lambda lp: F.nll_loss(lp.reshape(-1, V), targets.reshape(-1).long(), reduction="sum"), scale,
                 f64(logp)),
             {"targets": targets, "scale": scale}, ["dlogp"])

    # The whole classifier: the gradient of the mean cross-entropy through both ops.
    logits, targets = normal(2, 3, 13, scale=2), integers(13, 2, 3)
    dlogp = torch.zeros(2, 3, 13).scatter_(2, targets.long()[..., None], -1 / 6)
    case("log_softmax_backward.cross_entropy",
         lambda **_: gradient(lambda x: F.cross_entropy(x.reshape(-1, 13), targets.reshape(-1).long()), 1.0,
                              f64(logits)),
         {"dlogp": dlogp, "logp": log_softmax(f64(logits)).to(torch.float32)}, ["dlogits"], reduce=13)
    # Columns from V on hold NaN, since they may hold anything.
    for suffix, (B, T, V, padded) in (("", (2, 5, 11, 16)), (".wide", (1, 2, 517, 517)), (".V1", (2, 2, 1, 3))):
        logits, targets = normal(B, T, padded, scale=3), integers(V, B, T)
        logits[..., V:], targets[0, 0] = math.nan, V - 1
        scale, scaler = f32_exact(1 / (B * T)), torch.tensor([512.0, 3.0, 1.0, 0.0])

        def loss(x):
            return F.cross_entropy(x[..., :V].reshape(-1, V), targets.reshape(-1).long(),
                                   reduction="none").reshape(B, T)

        operands = {"targets": targets, "V": V}
        case("cross_entropy_forward" + suffix, lambda logits, **_: loss(logits), {"logits": logits, **operands},
             ["losses"], reduce=V)

        def backward(scale, loss_scaler=torch.ones(1), **_):
            return loss(f64(logits)), *gradient(loss, scale * loss_scaler[0], f64(logits))

        for kind, optional in (("", {}), (".scaled", {"loss_scaler": scaler})):
            case("cross_entropy_forward_backward" + kind + suffix, backward,
                 {**operands, "scale": scale, **optional}, ["losses", "logits"], {"logits": logits}, reduce=V,
                 replaced=["logits"])
        case("nll_loss_backward.scaled" + suffix,
             lambda scale, loss_scaler, **_: gradient(
                 lambda lp: F.nll_loss(lp.reshape(-1, V), targets.reshape(-1).long(), reduction="sum"),
                 scale * loss_scaler[0], torch.zeros(B, T, V, dtype=torch.float64)),
             {"targets": targets, "scale": scale, "loss_scaler": scaler}, ["dlogp"])

    case("add_mean", lambda x: x.mean(), {"x": normal(3, 7)}, ["out"], {"out": normal(1)}, reduce=21)
    case("add_mean.one", lambda x: x.mean(), {"x": normal(1, 1)}, ["out"], {"out": torch.zeros(1)})


def clipping():
    for suffix, x in (("", normal(5, 13)), (".one", normal(1)), (".large", normal(40, scale=1e15))):
        case("sum_of_squares" + suffix, lambda x: (x * x).sum(), {"x": x}, ["out"], reduce=x.numel())
    for suffix, parts, max_norm in (("", normal(7).abs() * 9, 1.0), (".within", normal(3).abs() * 1e-3, 1.0),
                                    (".zero", torch.zeros(4), 1.0), (".large", normal(28).abs() * 1e20, 0.5)):
        def clip(parts, max_norm):
            # torch's clip_grad_norm_ on gradients with these sums of squares.
            grads = [torch.nn.Parameter(s.sqrt().reshape(1)) for s in parts]
            for g in grads:
                g.grad = g.detach().clone()
            norm = torch.nn.utils.clip_grad_norm_(grads, max_norm)
            return norm, (max_norm / (norm + 1e-6)).clamp(max=1.0)

        case("clip_factor" + suffix, clip, {"parts": parts, "max_norm": max_norm}, ["norm", "factor"],
             reduce=parts.numel())


    # Cases of several tensors; loss_scaler is {scale, good steps, skipped steps, overflow}.
    for suffix, size, max_norm, before, after in (
            ("", 3.0, 1.0, None, None), (".within", 1e-3, 1.0, None, None),
            (".scaled", 2e3, 1.0, [1024.0, 7.0, 2.0, 1.0], [1024.0, 8.0, 2.0, 0.0]),
            (".scaled_within", 1.0, 1.0, [1024.0, 0.0, 0.0, 0.0], [1024.0, 1.0, 0.0, 0.0]),
            (".grows", 2e3, 1.0, [1024.0, 1999.0, 2.0, 0.0], [2048.0, 0.0, 2.0, 0.0]),
            (".grown", 2e3, 1.0, [2.0**24, 1999.0, 2.0, 0.0], [2.0**24, 0.0, 2.0, 0.0])):
        grads = {f"g{i}": normal(*shape, scale=size) for i, shape in enumerate(((5, 13), (1,), (2, 3, 4)))}

        def clip_all(max_norm, **gs):
            scale = before[0] if before else 1.0
            parameters = [torch.nn.Parameter(g) for g in gs.values()]
            for p in parameters:
                p.grad = p.detach() / scale
            norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
            factor = (max_norm / (norm + 1e-6)).clamp(max=1.0) / scale
            scaler = (torch.tensor(after, dtype=torch.float64),) if after else ()
            return norm, factor, *scaler

        outputs = ["norm", "factor"] + (["loss_scaler"] if before else [])
        case("clip_grad_norm" + suffix, clip_all, {**grads, "max_norm": max_norm}, outputs,
             {"loss_scaler": torch.tensor(before)} if before else {}, reduce=90, replaced=["loss_scaler"])


def adamw():
    """Step t of torch.optim.AdamW on clip * g, from moments that earlier steps left."""
    for suffix, t, lr, clip, scaler in (("", 3.0, 1e-2, 0.25, None), (".first", 1.0, 6e-4, 1.0, None),
                                        (".late", 20000.0, 1e-3, 1.0, None),
                                        (".skipped", 7.0, 1e-2, 0.5, [1024.0, 9.0, 3.0, 0.0])):
        hyper = {"beta1": f32_exact(0.9), "beta2": f32_exact(0.95), "eps": f32_exact(1e-8),
                 "weight_decay": f32_exact(0.1)}
        inputs = {**hyper, "schedule": torch.tensor([lr, t]), "clip": f32_exact(clip)}
        before, outputs = {}, []
        for i, shape in enumerate(((5, 13), (67,), (2, 3, 4))):
            inputs |= {f"g{i}": normal(*shape), f"decay{i}": i != 1}
            before |= {f"w{i}": normal(*shape), f"m{i}": normal(*shape, scale=0.1),
                       f"v{i}": normal(*shape, scale=0.1).square()}
            if t == 1.0:
                before[f"m{i}"].zero_(), before[f"v{i}"].zero_()
            outputs += [f"w{i}", f"m{i}", f"v{i}"] + ([f"low{i}"] if i != 2 else [])
        if scaler:
            inputs["loss_scaler"] = torch.tensor(scaler)

        def step(schedule, clip, **x):
            results = []
            for i in range(3):
                w = torch.nn.Parameter(f64(before[f"w{i}"]))
                optimizer = torch.optim.AdamW([w], lr=schedule[0].item(), betas=(x["beta1"], x["beta2"]),
                                              eps=x["eps"],
                                              weight_decay=x["weight_decay"] if x[f"decay{i}"] else 0.0)
                optimizer.state[w] = {"step": schedule[1] - 1 - (scaler[2] if scaler else 0),
                                      "exp_avg": f64(before[f"m{i}"]), "exp_avg_sq": f64(before[f"v{i}"])}
                w.grad = clip * x[f"g{i}"]
                optimizer.step()
                state = optimizer.state[w]
                results += [w.detach(), state["exp_avg"], state["exp_avg_sq"]]
                results += [w.detach()] if i != 2 else []
            return results

        case("adamw" + suffix, step, inputs, outputs, before, replaced=outputs)


def relu_squared(x):
    return F.relu(x).square()


def squared_activation():
    edges = torch.tensor([0.0, -0.0, 1e-4, -1e-4, 1.0, -1.0, 15.5, -100.0, 200.0])
    for suffix, x in (("", normal(2, 5, 12, scale=2)), (".wide", normal(3, 131)), (".edges", edges[None])):
        if suffix != ".edges":
            normal(x.shape[-1])  # unused: keeps what is drawn after it
        case("relu_squared_forward" + suffix, relu_squared, {"x": x}, ["out"])
        case("relu_squared_backward" + suffix, lambda dout, x: gradient(relu_squared, dout, x),
             {"dout": normal(*x.shape), "x": x}, ["dx"])


def queries_and_keys():
    def table(T, HS, base):
        angle = torch.arange(T, dtype=torch.float64)[:, None] * base ** (-torch.arange(0, HS, 2).to(torch.float64) / HS)
        return torch.stack([angle.cos(), angle.sin()], -1)

    for suffix, (B, T, NH, HS) in (("", (2, 5, 3, 4)), (".T1", (3, 1, 1, 2)), (".wide", (1, 9, 2, 48)),
                                   (".uneven", (2, 3, 5, 10))):
        C, eps = NH * HS, 2.0**-23
        case("rotary_table" + suffix, lambda base: table(T + 2, HS, base), {"base": 1e4}, ["table"], reduce=T)
        angles = table(T + 2, HS, 1e4).to(torch.float32)
        qkv, dout = normal(B, T, 3 * C), normal(B, T, 3 * C)
        for kind, normed, rotated in (("", True, True), (".norm", True, False), (".rotary", False, True)):
            def prepared(qkv):
                x = qkv[..., :2 * C].reshape(B, T, 2 * NH, HS)
                if normed:
                    x = F.rms_norm(x, (HS,), eps=eps)
                if rotated:
                    cos, sin = f64(angles)[:T, None].unbind(-1)
                    x1, x2 = x.chunk(2, -1)
                    x = torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1)
                return torch.cat([x.reshape(B, T, 2 * C), qkv[..., 2 * C:]], -1)

            squares = f64(qkv)[..., :2 * C].reshape(B, T, 2 * NH, HS).square().mean(-1)
            rstd = ([torch.rsqrt(squares + eps)] if normed else [])
            operands = {"table": angles} if rotated else {}
            names = ["qkv"] + ["rstd"] * normed
            case("qk_norm_rotary_forward" + kind + suffix, lambda **_: (prepared(f64(qkv)), *rstd), operands, names,
                 {"qkv": qkv}, reduce=HS, replaced=["qkv"])
            if normed:
                operands |= {"qkv": prepared(f64(qkv)).to(torch.float32), "rstd": rstd[0].to(torch.float32)}
            case("qk_norm_rotary_backward" + kind + suffix,
                 lambda **_: gradient(prepared, f64(dout), f64(qkv)), operands, ["dqkv"], {"dqkv": dout},
                 reduce=HS, replaced=["dqkv"])


def products_added():
    products = (lambda a, b: a @ b, lambda a, b: a @ b.mT, lambda a, b: a.mT @ b)
    alpha, beta = f32_exact(2.0315), f32_exact(-4.775)
    for suffix, n, (M, N, K) in (("", (3,), (5, 7, 6)), (".one", (), (4, 9, 131)), (".square", (2, 2), (8, 8, 8))):
        for op, name in enumerate(("NN", "NT", "TN")):
            a = normal(*n, *((K, M) if op == 2 else (M, K)))
            b = normal(*n, *((N, K) if op == 1 else (K, N)))
            case(f"matmul_add.{name}{suffix}",
                 lambda a, b, addend, alpha, beta, **_: alpha * products[op](a, b) + beta * addend,
                 {"a": a, "b": b, "op": op, "addend": normal(*n, M, N), "alpha": alpha, "beta": beta}, ["out"],
                 reduce=K)


def muon():
    """Muon's two ops; and steps of torch.optim.Muon, patched to compute in f64, whose tensors, named muon/<operand>,
    belong to no op's case."""
    clip, beta, decay, rate = (f32_exact(x) for x in (0.25, 0.95, 0.1, 0.02))
    for suffix, shape in (("", (3, 5, 7)), (".one", (1, 67)), (".tall", (2, 2, 9, 4))):
        for kind, optional in (("", {}), (".scaled", {"loss_scaler": torch.tensor([1024.0, 9.0, 3.0, 0.0])})):
            m = normal(*shape)

            def momentum(g, clip, beta, **_):
                moved = f64(m).lerp(clip * g, 1 - beta)
                u = (clip * g).lerp(moved, beta)
                return u / (u.norm(dim=(-2, -1), keepdim=True) + 1e-7), moved

            case("muon_momentum" + kind + suffix, momentum,
                 {"g": normal(*shape), "clip": clip, "beta": beta, **optional}, ["x", "m"], {"m": m}, reduce=8,
                 replaced=["m"])
            w, scale = normal(*shape), max(1.0, shape[-2] / shape[-1]) ** 0.5

            def update(x, lr, weight_decay, **_):
                moved = f64(w) * (1 - lr * weight_decay) - lr * scale * x
                return moved, moved

            case("muon_update" + kind + suffix, update,
                 {"x": normal(*shape), "lr": rate, "weight_decay": decay, **optional}, ["w", "param_copy"], {"w": w},
                 replaced=["w"])

    for name, shape in (("wide", (2, 6, 10)), ("tall", (2, 12, 5)), ("square", (3, 8, 8))):
        w, grads = normal(*shape), [normal(*shape) for _ in range(3)]
        parameters = [torch.nn.Parameter(f64(x)) for x in w]
        optimizer = torch.optim.Muon(parameters, lr=rate, weight_decay=decay, momentum=beta)
        tensors[f"muon/{name}/before"] = w
        for step, g in enumerate(grads):
            for parameter, of_matrix in zip(parameters, g):
                parameter.grad = f64(of_matrix)
            with unittest.mock.patch.object(torch, "bfloat16", torch.float64):
                optimizer.step()
            tensors[f"muon/{name}/g{step}"] = g
        tensors[f"muon/{name}/after"] = torch.stack([p.detach() for p in parameters]).to(torch.float32)


def soft_cap():
    for suffix, (B, T, V, padded) in (("", (2, 5, 11, 16)), (".wide", (1, 2, 517, 517))):
        logits, targets, cap = normal(B, T, padded, scale=12), integers(V, B, T), 15.0
        logits[..., V:], targets[0, 0] = math.nan, V - 1

        def loss(x):
            z = cap * torch.tanh(x[..., :V] / cap)
            return F.cross_entropy(z.reshape(-1, V), targets.reshape(-1).long(), reduction="none").reshape(B, T)

        operands = {"targets": targets, "V": V, "soft_cap": cap}
        case("cross_entropy_forward.capped" + suffix, lambda logits, **_: loss(logits),
             {"logits": logits, **operands}, ["losses"], reduce=V)
        case("cross_entropy_forward_backward.capped" + suffix,
             lambda scale, **_: (loss(f64(logits)), *gradient(loss, scale, f64(logits))),
             {**operands, "scale": 0.125}, ["losses", "logits"], {"logits": logits}, reduce=V, replaced=["logits"])


def tokens_alone():
    for suffix, (B, T, C, V) in (("", (2, 5, 6, 11)), (".T1", (3, 1, 70, 4))):
        case("encoder_forward.tokens" + suffix, lambda tokens, wte: F.embedding(tokens, wte),
             {"tokens": integers(V, B, T), "wte": normal(V, C)}, ["out"])


def sgemm():
    """Sgemm's contract is Matmul's, and so are its cases."""
    for table in (tensors, reductions):
        table |= {name.replace("matmul.", "sgemm.", 1): x for name, x in table.items() if name.startswith("matmul.")}


def growing_text():
    for suffix, (before, T, S, NH, HS), scale in (("", (4, 3, 9, 2, 6), 1), (".first", (0, 5, 5, 3, 4), 1),
                                                  (".one", (6, 1, 8, 1, 64), 1), (".long", (150, 2, 160, 2, 10), 1),
                                                  (".wide", (3, 2, 5, 1, 72), 1), (".sharp", (9, 2, 16, 2, 8), 12)):
        C = NH * HS
        cache, qkv = normal(2, S, C, scale=scale), normal(T, 3 * C, scale=scale)

        def attention(qkv, **_):
            q, *new = qkv.split(C, -1)
            filled = f64(cache)
            for old, rows in zip(filled, new):
                old[before:before + T] = rows
            q, k, v = (x.reshape(-1, NH, HS).transpose(0, 1) for x in (q, *filled[:, :before + T]))
            mask = torch.ones(T, before + T, dtype=torch.bool).tril(before)
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            return out.transpose(0, 1).reshape(T, C), filled

        case("cached_attention" + suffix, attention, {"qkv": qkv, "first": before, "NH": NH}, ["out", "cache"],
             {"cache": cache}, reduce=before + T + HS * scale**2, replaced=["cache"])


def symmetric_products():
    alpha, beta = f32_exact(2.0315), f32_exact(-4.775)
    for suffix, n, (S, K) in (("", (3,), (5, 7)), (".one", (), (9, 131)), (".even", (2, 2), (8, 16))):
        for op, name in ((1, "NT"), (2, "TN")):
            a, half = normal(*n, *((K, S) if op == 2 else (S, K))), normal(*n, S, S)

            def product(a, alpha, beta, addend=0.0, **_):
                return alpha * (a.mT @ a if op == 2 else a @ a.mT) + beta * addend

            for kind, others in (("", {"alpha": 1.0, "beta": 0.0}),
                                 (".added", {"addend": half + half.mT, "alpha": alpha, "beta": beta})):
                case(f"symmetric_matmul.{name}{kind}{suffix}", product, {"a": a, "op": op, **others}, ["out"], reduce=K)


def save():
    """Writes the safetensors container: length of the header, header in JSON, data."""
    header, data = {"__metadata__": dict(sorted(reductions.items()))}, b""
    for name, x in sorted(tensors.items()):
        raw = x.numpy().tobytes()
        header[name] = {"dtype": "I32" if x.dtype == torch.int32 else "F32", "shape": list(x.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    DEST.write_bytes(struct.pack("<Q", len(text)) + text + data)


copies()
elementwise()
rows()
embedding()
encoder()
activation()
layernorm()
matmul()
linear()
attention()
flash_attention()
classifier()
clipping()
adamw()
residual_linear()
squared_activation()
queries_and_keys()
products_added()
muon()
soft_cap()
tokens_alone()
growing_text()
symmetric_products()
sgemm()
save()
print(f"{DEST.name}: {len(reductions)} cases, {len(tensors)} tensors, {DEST.stat().st_size} bytes")
