// Runs the ops of any backend against PyTorch's results, which tests/reference/make_op_cases.py wrote to
// tests/data/op_cases.safetensors.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "model/arena.h"
#include "model/error.h"
#include "model/ops.h"
#include "model/safetensors.h"
#include "tests/packed.h"

namespace stepladder {

/// The case file in memory. Every element has 4 bytes: f32, or i32 in the same bits.
class OpCaseFile {
 public:
  struct Entry {
    DType dtype;
    Shape shape;
    std::vector<float> data;
  };

  explicit OpCaseFile(const std::string& path) {
    const Safetensors file(path);
    for (const auto& [op_case, reduce] : file.metadata()) reductions_[op_case] = std::stoi(reduce);
    for (const auto& [name, stored] : file.tensors()) {
      const std::vector<int64_t>& dims = stored.shape;
      check(dims.size() <= 4, name, " has rank ", dims.size());
      Shape shape;
      if (dims.size() == 1) shape = {dims[0]};
      if (dims.size() == 2) shape = {dims[0], dims[1]};
      if (dims.size() == 3) shape = {dims[0], dims[1], dims[2]};
      if (dims.size() == 4) shape = {dims[0], dims[1], dims[2], dims[3]};
      Entry e{stored.dtype == "I32" ? DType::i32 : DType::f32, shape, {}};
      e.data.resize(static_cast<size_t>(shape.numel()));
      check(stored.bytes.size() == 4 * e.data.size(), name, " is ", stored.dtype, ", wanted F32 or I32");
      std::memcpy(e.data.data(), stored.bytes.data(), stored.bytes.size());
      entries_.emplace(name, std::move(e));
    }
  }

  /// The length of the op's longest sum, by case name.
  const std::map<std::string, int>& reductions() const { return reductions_; }
  /// Tensors by "case/kind/name".
  const std::map<std::string, Entry>& entries() const { return entries_; }

 private:
  std::map<std::string, int> reductions_;
  std::map<std::string, Entry> entries_;
};

/// Whether an op's contract makes this operand or output f32, whatever type the others have.
inline bool always_f32(const std::string& op, const std::string& name) {
  static const std::set<std::string> names = {
      "mean", "rstd",   "mean_dxhat", "mean_dxhat_xhat", "factor",   "norm",        "parts", "lse",
      "clip", "losses", "logp",       "dlogp",           "schedule", "loss_scaler", "table", "lr"};
  if (op == "adamw" && !name.starts_with("g") && !name.starts_with("low")) return true;
  if (op.starts_with("muon_") && (name == "m" || name == "w")) return true;
  return names.contains(name) || op == "add_mean" || op == "write" || op + "/" + name == "sum_of_squares/out";
}

/// One run of a case: uploads its operands, then compares its outputs. `alias` = i > 0 puts each output into
/// the i-th operand that it may overwrite; 0 gives each a tensor of its own. Float operands and outputs have
/// type `type`; operands' values are rounded to `precision`.
class OpCase {
 public:
  /// The type and values of an output.
  struct Result {
    DType type;
    std::vector<float> values;
  };

  OpCase(Ops& ops, Arena& arena, const OpCaseFile& file, const std::string& name, int alias,
         DType type = DType::f32, DType precision = DType::f32)
      : ops_(ops),
        arena_(arena),
        file_(file),
        name_(name),
        op_(name.substr(0, name.find('.'))),
        alias_(alias),
        type_(type),
        precision_(precision) {}

  Tensor in(const std::string& operand) {
    const auto [at, is_new] = operands_.try_emplace(operand);
    if (is_new) at->second = upload(operand, entry("in/" + operand));
    return at->second.tensor;
  }
  float number(const std::string& operand) { return entry("in/" + operand).data.at(0); }
  float optional_number(const std::string& operand) { return has(operand) ? number(operand) : 0.0F; }
  int integer(const std::string& operand) { return std::bit_cast<int>(number(operand)); }
  bool has(const std::string& operand) const { return contains("in/" + operand); }
  bool has_out(const std::string& output) const { return contains("out/" + output); }
  /// An operand; empty in cases that leave it out.
  Tensor optional(const std::string& operand) { return has(operand) ? in(operand) : Tensor{}; }

  /// An output that is overwritten: full of NaN, or an operand if `alias` says so.
  Tensor set(const std::string& output, std::vector<std::string> may_be = {}) {
    std::erase_if(may_be, [&](const std::string& operand) { return type_of(operand) != type_of(output); });
    aliases_ = std::max(aliases_, static_cast<int>(may_be.size()));
    if (alias_ > 0 && static_cast<size_t>(alias_) <= may_be.size()) {
      const std::string& operand = may_be[static_cast<size_t>(alias_ - 1)];
      overwritten_.insert(operand);
      return outputs_[output] = in(operand);
    }
    OpCaseFile::Entry poison = entry("out/" + output);
    std::fill(poison.data.begin(), poison.data.end(), std::numeric_limits<float>::quiet_NaN());
    return outputs_[output] = upload(output, poison).tensor;
  }
  /// An output that is accumulated into.
  Tensor add(const std::string& output) {
    return outputs_[output] = upload(output, entry("before/" + output)).tensor;
  }
  /// An output that is accumulated into, or empty where the case leaves it out.
  Tensor optional_add(const std::string& output) {
    return contains("before/" + output) ? add(output) : Tensor{};
  }
  Tensor set_or_add(const std::string& output) {
    return contains("before/" + output) ? add(output) : set(output);
  }
  Write write(const std::string& output) const {
    return contains("before/" + output) ? Write::add : Write::set;
  }

  /// An operand whose large terms cancel in the outputs: tolerances are relative to its rows too.
  Tensor cancelling(const std::string& operand) {
    cancels_ = operand;
    return in(operand);
  }

  /// The largest number of operands that an output may overwrite.
  int aliases() const { return aliases_; }

  /// The outputs by name.
  std::map<std::string, Result> results() {
    std::map<std::string, Result> all;
    for (const auto& [output, tensor] : outputs_)
      all[output] = {tensor.dtype, unpacked(tensor.dtype, download(tensor))};
    return all;
  }
  void expect_operands_are_left_alone() {
    for (const auto& [operand, uploaded] : operands_)
      EXPECT_TRUE(overwritten_.contains(operand) || download(uploaded.tensor) == uploaded.bytes)
          << operand << " was written";
  }
  /// Compares the outputs with the file's, and expects every other operand unchanged and every tensor of the
  /// case used.
  void compare() {
    for (const auto& [output, result] : results()) {
      const auto& expected = entry("out/" + output);
      expect_close(output, result.values, expected.data, expected.shape[-1]);
    }
    expect_operands_are_left_alone();
    for (const auto& [key, unused] : file_.entries())
      EXPECT_TRUE(!key.starts_with(name_ + "/") || used_.contains(key)) << key << " was not used";
  }

 private:
  struct Uploaded {
    Tensor tensor;
    std::vector<std::byte> bytes;
  };

  bool contains(const std::string& key) const { return file_.entries().contains(name_ + "/" + key); }
  const OpCaseFile::Entry& entry(const std::string& key) {
    used_.insert(name_ + "/" + key);
    return file_.entries().at(name_ + "/" + key);
  }
  /// The type of an operand or output that isn't i32.
  DType type_of(const std::string& name) const { return always_f32(op_, name) ? DType::f32 : type_; }
  Uploaded upload(const std::string& name, const OpCaseFile::Entry& e) {
    const bool is_float = e.dtype != DType::i32;
    const Tensor t = arena_.alloc(name_ + "/" + name, is_float ? type_of(name) : e.dtype, e.shape);
    const bool rounds = is_float && !always_f32(op_, name);
    auto bytes = packed(t.dtype, rounds ? rounded_to(precision_, e.data) : e.data);
    ops_(Upload{t, bytes.data()});
    return {t, std::move(bytes)};
  }
  std::vector<std::byte> download(Tensor t) {
    std::vector<std::byte> bytes(t.bytes());
    ops_(Download{bytes.data(), t});
    return bytes;
  }

  /// Expects each element within a rounding for each term of the op's longest sum and a few for its
  /// arithmetic, relative to the largest element of the row; infinities exactly.
  void expect_close(const std::string& output, const std::vector<float>& got,
                    const std::vector<float>& expected, int64_t cols) {
    constexpr float kEpsilon = std::numeric_limits<float>::epsilon();
    const auto roundings = static_cast<float>(8 + file_.reductions().at(name_));
    const auto* terms = cancels_.empty() ? nullptr : &entry("in/" + cancels_).data;
    const auto row_size = static_cast<size_t>(cols);
    for (size_t i = 0; i < got.size(); ++i) {
      float largest = 0.0F;
      for (size_t j = i / row_size * row_size; j < (i / row_size + 1) * row_size; ++j)
        for (const float x : {expected[j], terms ? (*terms)[j] : 0.0F})
          if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
      const float tolerance = roundings * kEpsilon * largest + std::numeric_limits<float>::min();
      if (got[i] == expected[i] || std::fabs(got[i] - expected[i]) <= tolerance) continue;
      ADD_FAILURE() << output << "[" << i << "] is " << got[i] << ", expected " << expected[i] << " +- "
                    << tolerance;
      return;
    }
  }

  Ops& ops_;
  Arena& arena_;
  const OpCaseFile& file_;
  const std::string name_, op_;
  const int alias_;
  std::string cancels_;
  const DType type_, precision_;
  int aliases_ = 0;
  std::map<std::string, Uploaded> operands_;
  std::map<std::string, Tensor> outputs_;
  std::set<std::string> used_, overwritten_;
};

/// How each op is called on a case, by the operands' and outputs' names in model/ops.h.
inline const std::map<std::string, void (*)(Ops&, OpCase&)>& op_calls() {
  using C = OpCase;
#define CASE(...) [](Ops& o, C& c) { o(__VA_ARGS__); }
  static const std::map<std::string, void (*)(Ops&, OpCase&)> calls = {
      {"zero", CASE(Zero{c.set("x")})},
      {"copy", CASE(Copy{c.set("dst"), c.in("src")})},
      {"write", CASE(WriteValues{c.set("dst"), {c.number("a"), c.number("b"), c.number("c")}})},
      {"receive",
       [](Ops& o, C& c) {
         const Tensor src = c.in("src"), staged = c.set("staged");
         const auto pinned = o.device().allocate_host(src.bytes());
         o(Download{pinned.get(), src});
         o(Stage{staged, pinned.get()});
         o(Receive{c.set("dst"), staged});
         o.synchronize();
       }},
      {"add", CASE(Add{c.set("out", {"a", "b"}), c.in("a"), c.in("b")})},
      {"mul", CASE(Mul{c.set("out", {"a", "b"}), c.in("a"), c.in("b")})},
      {"affine", CASE(Affine{c.set("out", {"x"}), c.in("x"), c.number("scale"), c.number("shift")})},
      {"pow", CASE(Pow{c.set("out", {"x"}), c.in("x"), c.integer("exponent")})},
      {"tanh", CASE(Tanh{c.set("out", {"x"}), c.in("x")})},
      {"sqrt", CASE(Sqrt{c.set("out", {"x"}), c.in("x")})},
      {"lerp", CASE(Lerp{c.add("x"), c.in("y"), c.number("weight")})},
      {"addcmul", CASE(AddCMul{c.add("x"), c.in("a"), c.in("b"), c.number("value")})},
      {"addcdiv", CASE(AddCDiv{c.add("x"), c.in("a"), c.in("b"), c.number("value")})},
      {"scale_by", CASE(ScaleBy{c.add("x"), c.in("factor")})},

      {"row_mean", CASE(RowMean{c.set("mean"), c.in("x")})},
      {"row_rstd", CASE(RowRstd{c.set("rstd"), c.in("x"), c.in("mean"), c.number("eps")})},
      {"normalize", CASE(Normalize{c.set("out"), c.in("x"), c.in("mean"), c.in("rstd")})},
      {"normalize_backward",
       CASE(NormalizeBackward{c.add("dx"), c.in("dxhat"), c.in("xhat"), c.in("mean_dxhat"),
                              c.in("mean_dxhat_xhat"), c.in("rstd")})},
      {"mul_columns", CASE(MulColumns{c.set("out", {"x"}), c.in("x"), c.in("w")})},
      {"add_columns", CASE(AddColumns{c.set("out", {"x"}), c.in("x"), c.in("b")})},
      {"sum_rows", CASE(SumRows{c.add("out"), c.in("x")})},

      {"embedding_backward", CASE(EmbeddingBackward{c.add("dwte"), c.in("tokens"), c.in("dout")})},
      {"position_backward", CASE(PositionBackward{c.add("dwpe"), c.in("dout")})},

      {"matmul",
       CASE(Matmul{c.set_or_add("out"), c.in("a"), c.in("b"), static_cast<MatOp>(c.integer("op")),
                   c.write("out")})},

      {"sgemm",
       CASE(Sgemm{c.set_or_add("out"), c.in("a"), c.in("b"), static_cast<MatOp>(c.integer("op")),
                  c.write("out")})},

      {"matmul_add",
       CASE(MatmulAdd{c.set("out"), c.in("a"), c.in("b"), static_cast<MatOp>(c.integer("op")), c.in("addend"),
                      c.number("alpha"), c.number("beta")})},
      {"symmetric_matmul",
       CASE(SymmetricMatmul{c.set("out"), c.in("a"), static_cast<MatOp>(c.integer("op")), c.optional("addend"),
                            c.number("alpha"), c.number("beta")})},

      {"linear_forward",
       [](Ops& o, C& c) {
         const Tensor residual = c.optional("residual");
         const Tensor out = residual.data ? c.set("out", {"residual"}) : c.set("out");
         o(LinearForward{out, c.in("x"), c.in("w"), c.in("b"), residual});
       }},
      {"linear_gelu_forward",
       CASE(LinearGeluForward{c.set("out"), c.set("pre"), c.in("x"), c.in("w"), c.in("b")})},
      {"linear_gelu_backward",
       CASE(LinearGeluBackward{c.set("dpre"), c.set_or_add("db"), c.in("dout"), c.in("w"), c.in("pre"),
                               c.write("db")})},
      {"linear_weight_backward",
       CASE(LinearWeightBackward{c.set_or_add("dw"), c.set_or_add("db"), c.in("dout"), c.in("x"),
                                 c.write("dw")})},

      {"encoder_forward", CASE(EncoderForward{c.set("out"), c.in("tokens"), c.in("wte"), c.optional("wpe")})},
      {"layernorm_forward",
       CASE(LayerNormForward{c.set("out"), c.set("mean"), c.set("rstd"), c.in("x"), c.in("w"), c.in("b")})},
      {"add_bias_residual",
       CASE(AddBiasResidual{c.set("out", {"x", "y"}), c.in("x"), c.in("y"), c.in("bias")})},
      {"layernorm_backward",
       CASE(LayerNormBackward{c.add("dx"), NormParams{c.add("dw"), c.add("db")}, c.optional_add("dbias"),
                              c.in("dout"), NormInput{c.in("x"), c.in("mean"), c.in("rstd")}, c.in("w")})},
      {"bias_gelu_forward", CASE(BiasGeluForward{c.set("out"), c.add("x"), c.in("bias")})},
      {"gelu_forward", CASE(GeluForward{c.set("out"), c.in("x")})},
      {"gelu_backward", CASE(GeluBackward{c.set("dx", {"dout"}), c.in("dout"), c.in("x")})},

      {"relu_squared_forward", CASE(ReluSquaredForward{c.set("out"), c.in("x")})},
      {"relu_squared_backward", CASE(ReluSquaredBackward{c.set("dx", {"dout"}), c.in("dout"), c.in("x")})},

      {"rotary_table", CASE(RotaryTable{c.set("table"), c.number("base")})},
      {"qk_norm_rotary_forward",
       CASE(QkNormRotaryForward{c.add("qkv"), c.has_out("rstd") ? c.set("rstd") : Tensor{},
                                c.optional("table")})},
      {"qk_norm_rotary_backward",
       CASE(QkNormRotaryBackward{c.add("dqkv"), c.optional("qkv"), c.optional("rstd"), c.optional("table")})},

      {"split_qkv", CASE(SplitQkv{c.set("q"), c.set("k"), c.set("v"), c.in("qkv")})},
      {"merge_qkv", CASE(MergeQkv{c.set("qkv"), c.in("q"), c.in("k"), c.in("v")})},
      {"split_heads", CASE(SplitHeads{c.set("out"), c.in("x")})},
      {"merge_heads", CASE(MergeHeads{c.set("out"), c.in("x")})},
      {"causal_mask", CASE(CausalMask{c.set("mask")})},
      {"add_mask", CASE(AddMask{c.add("att"), c.in("mask")})},
      {"softmax_forward", CASE(SoftmaxForward{c.set("p", {"x"}), c.in("x")})},
      {"softmax_backward", CASE(SoftmaxBackward{c.set("dx", {"dp"}), c.cancelling("dp"), c.in("p")})},
      {"causal_softmax_forward", CASE(CausalSoftmaxForward{c.set("p", {"x"}), c.in("x")})},
      {"causal_softmax_backward",
       CASE(CausalSoftmaxBackward{c.set("dx", {"dp"}), c.cancelling("dp"), c.in("p")})},
      {"scaled_causal_softmax_forward",
       CASE(ScaledCausalSoftmaxForward{c.set("p", {"x"}), c.in("x"), c.number("scale")})},
      {"scaled_causal_softmax_backward",
       CASE(ScaledCausalSoftmaxBackward{c.set("dx", {"dp"}), c.cancelling("dp"), c.in("p"),
                                        c.number("scale")})},
      {"attention_forward", CASE(AttentionForward{c.set("out"), c.set("lse"), c.in("qkv")})},
      {"attention_backward",
       CASE(AttentionBackward{c.set("dqkv"), c.in("dout"), c.in("out"), c.in("lse"), c.in("qkv")})},
      {"cached_attention",
       CASE(CachedAttention{c.set("out"), c.add("cache"), c.in("qkv"), c.integer("first"), c.integer("NH")})},

      {"log_softmax_forward", CASE(LogSoftmaxForward{c.set("logp"), c.in("logits")})},
      {"log_softmax_backward",
       CASE(LogSoftmaxBackward{c.set("dlogits", {"dlogp"}), c.in("dlogp"), c.in("logp")})},
      {"nll_loss_forward", CASE(NllLossForward{c.set("losses"), c.in("logp"), c.in("targets")})},
      {"nll_loss_backward",
       CASE(NllLossBackward{c.set("dlogp"), c.in("targets"), c.number("scale"), c.optional("loss_scaler")})},
      {"cross_entropy_forward",
       CASE(CrossEntropyForward{c.set("losses"), c.in("logits"), c.in("targets"), c.integer("V"),
                                c.optional_number("soft_cap")})},
      {"cross_entropy_forward_backward",
       CASE(CrossEntropyForwardBackward{c.set("losses"), c.add("logits"), c.in("targets"), c.integer("V"),
                                        LossScale{c.number("scale"), c.optional("loss_scaler")},
                                        c.optional_number("soft_cap")})},
      {"add_mean", CASE(AddMean{c.add("out"), c.in("x")})},

      {"sum_of_squares", CASE(SumOfSquares{c.set("out"), c.in("x")})},
      {"clip_factor", CASE(ClipFactor{c.set("factor"), c.set("norm"), c.in("parts"), c.number("max_norm")})},
      {"clip_grad_norm",
       [](Ops& o, C& c) {
         std::vector<Tensor> grads;
         for (int i = 0; c.has(cat("g", i)); ++i) grads.push_back(c.in(cat("g", i)));
         o(ClipGradNorm{c.set("factor"), c.set("norm"), grads, c.number("max_norm"),
                          c.optional_add("loss_scaler")});
       }},
      {"adamw",
       [](Ops& o, C& c) {
         std::vector<AdamWTensor> tensors;
         for (int i = 0; c.has(cat("g", i)); ++i)
           tensors.push_back({c.add(cat("w", i)), c.in(cat("g", i)), c.add(cat("m", i)), c.add(cat("v", i)),
                              c.has_out(cat("low", i)) ? c.set(cat("low", i)) : Tensor{},
                              c.integer(cat("decay", i)) != 0});
         o(AdamWStep{tensors, c.in("schedule"), c.in("clip"),
                 {c.number("beta1"), c.number("beta2"), c.number("eps"), c.number("weight_decay")},
                 c.optional("loss_scaler")});
       }},
      {"muon_momentum",
       CASE(MuonMomentum{c.set("x"), c.add("m"), c.in("g"), c.in("clip"), c.number("beta"),
                         c.optional("loss_scaler")})},
      {"muon_update",
       CASE(MuonUpdate{c.add("w"), c.set("param_copy"), c.in("x"), c.in("lr"), c.number("weight_decay"),
                       c.optional("loss_scaler")})},
  };
#undef CASE
  return calls;
}

/// Calls run(file, arena, case, op) for every case in the file; `arena` holds the workspace and has room for
/// the operands. Expects a case for every op.
template <class Run>
void for_each_op_case(Ops& ops, const Run& run) {
  const OpCaseFile file(STEPLADDER_TEST_DATA "/op_cases.safetensors");
  Config largest;  // at least as large as every case
  largest.B = 4, largest.T = 64, largest.max_T = 64, largest.V = 600, largest.L = 1, largest.NH = 4,
  largest.C = 144;
  Arena plan;
  ops.device().bind_workspace(plan, largest);
  Arena arena(ops, plan.bytes() + (int64_t{64} << 20));
  ops.device().bind_workspace(arena, largest);

  std::set<std::string> seen;
  for (const auto& [name, unused] : file.reductions()) {
    const std::string op = name.substr(0, name.find('.'));
    ASSERT_TRUE(op_calls().contains(op)) << "case " << name << " is of no op known here";
    seen.insert(op);
    SCOPED_TRACE(name);
    run(file, arena, name, op);
  }
  for (const auto& [op, unused] : op_calls()) EXPECT_TRUE(seen.contains(op)) << op << " has no case";
}

/// Runs every case on `ops` in f32, also in place where the op permits it.
inline void expect_ops_match_pytorch(Ops& ops) {
  const bool cuda = ops.device().info().backend == "cuda";
  for_each_op_case(ops,
                   [&](const OpCaseFile& file, Arena& arena, const std::string& name, const std::string& op) {
                     for (int alias = 0, aliases = 0; alias <= aliases; ++alias) {
                       OpCase run(ops, arena, file, name, alias);
                       if (cuda && op.starts_with("attention_")) {
                         EXPECT_THROW(op_calls().at(op)(ops, run), UnsupportedError) << "f32";
                         continue;
                       }
                       SCOPED_TRACE(alias > 0 ? "in place" : "");
                       op_calls().at(op)(ops, run);
                       run.compare();
                       aliases = run.aliases();
                     }
                   });
}

}  // namespace stepladder
