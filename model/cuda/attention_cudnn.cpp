// Attention through cuDNN's graph API; the only file that includes cudnn_frontend.
//
// libcudnn is opened at run time, so that a machine without it runs everything else. The frontend would open
// a CUDA runtime of either major by its name, and the driver as libcuda.so, which only a toolkit has; this
// file therefore replaces the frontend's dlopen().
#include <algorithm>
#include <stdexcept>
#include <string>

#include "model/cuda/cuda_check.h"
#include "model/cuda/fused_attention.h"
#include "model/cuda/libraries.h"
#include "model/error.h"

#ifdef STEPLADDER_CUDNN
#include <dlfcn.h>

namespace stepladder {
namespace {
void* open_for_frontend(const std::string& name, int flags);
}
}  // namespace stepladder
#define dlopen ::stepladder::open_for_frontend
#include <cudnn_frontend.h>
#undef dlopen

#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the library in which the frontend looks up cuDNN's functions
}
#endif

namespace stepladder {

int64_t CudnnAttention::workspace_bytes(int64_t B, int64_t T, int64_t NH, int64_t HS, bool deterministic) {
  // The backward pass accumulates dQ (B,NH,T,HS) in f32 and keeps two statistics per row; in a fixed order it
  // also stores dP (B,NH,T,T) in 16 bits. cuDNN pads T to its tiles; the last 4 MiB are for small buffers of
  // cuDNN's.
  const int64_t rows = B * NH * ((T + 127) / 128 * 128);
  const int64_t dp = deterministic ? rows * ((T + 127) / 128 * 128) * 2 : 0;
  return rows * (HS + 2) * int64_t{sizeof(float)} + dp + (int64_t{4} << 20);
}

#ifdef STEPLADDER_CUDNN
namespace {

namespace fe = cudnn_frontend;

// Tensors of the graphs, as the frontend numbers them.
enum Uid : int64_t { kQ = 1, kK, kV, kO, kStats, kDO, kDQ, kDK, kDV };

/// Replaces the frontend's dlopen(). For a CUDA runtime it opens the one of the major in use, and no other;
/// for libcuda.so the driver; otherwise `name`.
void* open_for_frontend(const std::string& name, int flags) {
  if (name == "libcuda.so") return dlopen("libcuda.so.1", flags);
  if (!name.starts_with("libcudart.so.")) return dlopen(name.c_str(), flags);
  const CudaLibraries& all = cuda_libraries();
  const auto runtime = all.paths.find(CudaPart::cudart);
  if (runtime == all.paths.end() || name != soname_of(CudaPart::cudart, all.major)) return nullptr;
  return dlopen(runtime->second.c_str(), flags);
}

void* open_cudnn() {
  const CudaLibraries& all = cuda_libraries();
  for (const CudaPart part : {CudaPart::cudnn, CudaPart::cudart})
    if (!all.paths.contains(part)) throw UnsupportedError("cuDNN can't be used: " + all.missing(part));
  open_for_others({CudaPart::cudart, CudaPart::nvrtc, CudaPart::cublas_lt, CudaPart::cublas});
  void* handle = dlopen(all.paths.at(CudaPart::cudnn).c_str(), RTLD_NOW);
  if (!handle) throw UnsupportedError(cat("cuDNN could not be loaded: ", dlerror()));
  return handle;
}

void check_status(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw Error(cat("cuDNN: ", fe::detail::get_error_string(status), " in ", call, ": ",
                    fe::detail::get_last_error_string_()));
}

/// The message of `error` in one line.
std::string message_of(const fe::error_t& error) {
  std::string message = error.err_msg;
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message;
}

/// Lets the calling thread load code and allocate while a stream is captured into a graph: cuDNN may load a
/// kernel when it is first used. Loading queues nothing on the stream.
class RelaxedCapture {
 public:
  RelaxedCapture() { CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~RelaxedCapture() { CUDA_CHECK_NOEXCEPT(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

struct Plan {
  fe::graph::Graph graph;
  std::string refusal;
};

class Cudnn final : public CudnnAttention {
 public:
  Cudnn(cudaStream_t stream, bool deterministic)
      : stream_(stream),
        deterministic_(deterministic),
        name_(cat("cuDNN ", fe::detail::convert_version_to_str(fe::detail::get_backend_version()))) {}
  ~Cudnn() override {
    plans_.clear();
    if (handle_) (void)fe::detail::destroy_handle(handle_);
  }

  const std::string& name() const override { return name_; }

  const std::string& refusal(const AttentionShape& shape, AttentionPass pass, int64_t workspace) override {
    const auto [at, is_new] = plans_.try_emplace({shape, pass});
    if (is_new) at->second.refusal = build(at->second.graph, shape, pass, workspace);
    return at->second.refusal;
  }

  void forward(const AttentionShape& shape, Tensor out, Tensor lse, Tensor qkv, Tensor workspace) override {
    const auto part = [&](int64_t p) { return static_cast<char*>(qkv.data) + p * shape.NH * shape.HS * 2; };
    execute(shape, AttentionPass::forward,
            {{kQ, part(0)}, {kK, part(1)}, {kV, part(2)}, {kO, out.data}, {kStats, lse.data}}, workspace);
  }

  void backward(const AttentionShape& shape, Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                Tensor workspace) override {
    const auto part = [&](const Tensor& x, int64_t p) {
      return static_cast<char*>(x.data) + p * shape.NH * shape.HS * 2;
    };
    execute(shape, AttentionPass::backward,
            {{kQ, part(qkv, 0)},
             {kK, part(qkv, 1)},
             {kV, part(qkv, 2)},
             {kO, out.data},
             {kStats, lse.data},
             {kDO, dout.data},
             {kDQ, part(dqkv, 0)},
             {kDK, part(dqkv, 1)},
             {kDV, part(dqkv, 2)}},
            workspace);
  }

 private:
  /// A handle costs time and memory: it is made for the first plan, not for trainers without attention.
  void make_handle() {
    if (!handle_) check_status(fe::detail::create_handle(&handle_), "cudnnCreate");
    check_status(fe::detail::set_stream(handle_, stream_), "cudnnSetStream");
  }

  /// Describes the pass to the frontend: (B,NH,T,HS) tensors in the strides of (B,T,C) and (B,T,3C).
  void describe(fe::graph::Graph& graph, const AttentionShape& shape, AttentionPass pass) const {
    const int64_t B = shape.B, T = shape.T, NH = shape.NH, HS = shape.HS, C = NH * HS;
    const auto tensor = [&](const char* label, int64_t uid, int64_t row) {
      return graph.tensor(fe::graph::Tensor_attributes()
                              .set_name(label)
                              .set_uid(uid)
                              .set_dim({B, NH, T, HS})
                              .set_stride({T * row, HS, row, 1}));
    };
    const auto output = [&](auto& result, const char* label, int64_t uid, int64_t row) {
      result->set_output(true)
          .set_name(label)
          .set_uid(uid)
          .set_dim({B, NH, T, HS})
          .set_stride({T * row, HS, row, 1});
    };
    const std::vector<int64_t> stats_dim{B, NH, T, 1}, stats_stride{NH * T, T, 1, 1};
    const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(HS)));

    graph.set_io_data_type(shape.dtype == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    const auto q = tensor("Q", kQ, 3 * C), k = tensor("K", kK, 3 * C), v = tensor("V", kV, 3 * C);
    if (pass == AttentionPass::forward) {
      auto [o, stats] = graph.sdpa(q, k, v,
                                   fe::graph::SDPA_attributes()
                                       .set_name("attention_forward")
                                       .set_generate_stats(true)
                                       .set_causal_mask(true)
                                       .set_attn_scale(scale));
      output(o, "O", kO, C);
      stats->set_output(true).set_name("lse").set_uid(kStats).set_data_type(fe::DataType_t::FLOAT);
      stats->set_dim(stats_dim).set_stride(stats_stride);
    } else {
      const auto o = tensor("O", kO, C), d_o = tensor("dO", kDO, C);
      const auto stats = graph.tensor(fe::graph::Tensor_attributes()
                                          .set_name("lse")
                                          .set_uid(kStats)
                                          .set_data_type(fe::DataType_t::FLOAT)
                                          .set_dim(stats_dim)
                                          .set_stride(stats_stride));
      auto [dq, dk, dv] = graph.sdpa_backward(q, k, v, o, d_o, stats,
                                              fe::graph::SDPA_backward_attributes()
                                                  .set_name("attention_backward")
                                                  .set_causal_mask(true)
                                                  .set_attn_scale(scale)
                                                  .set_deterministic_algorithm(deterministic_));
      output(dq, "dQ", kDQ, 3 * C);
      output(dk, "dK", kDK, 3 * C);
      output(dv, "dV", kDV, 3 * C);
    }
  }

  /// Why a plan that cuDNN can build must not be run, or "". Before 9.15.1 the backward pass of a length that
  /// its tiles of 128 don't divide reads past K and V when a CUDA graph is replayed (release notes of
  /// cudnn-frontend 1.16.0).
  std::string fault_of(const AttentionShape& shape) const {
    constexpr int64_t kTile = 128;
    constexpr size_t kMended = 91501;
    if (shape.T % kTile == 0 || fe::detail::get_backend_version() >= kMended) return "";
    return cat(name_, ": sequences of ", shape.T, " tokens, which ", kTile,
               " doesn't divide, need 9.15.1: before, CUDA graphs of their backward pass read wrong memory");
  }

  /// Builds the plan that cuDNN's heuristic ranks first; returns "", or why there is no plan.
  std::string build(fe::graph::Graph& graph, const AttentionShape& shape, AttentionPass pass,
                    int64_t workspace) try {
    if (std::string why = fault_of(shape); !why.empty()) return why;
    const RelaxedCapture relaxed;
    make_handle();
    describe(graph, shape, pass);
    const auto refused = [&](const char* step, const fe::error_t& error) {
      return error.is_good() ? std::string() : cat(name_, ": ", step, ": ", message_of(error));
    };
    std::string why = refused("validate", graph.validate());
    if (why.empty()) why = refused("build_operation_graph", graph.build_operation_graph(handle_));
    if (why.empty())
      why = refused("create_execution_plans", graph.create_execution_plans({fe::HeurMode_t::A}));
    if (why.empty()) why = refused("check_support", graph.check_support(handle_));
    if (why.empty()) why = refused("build_plans", graph.build_plans(handle_));
    if (!why.empty()) return why;
    const int64_t wanted = graph.get_workspace_size();
    if (wanted > workspace)
      return cat(name_, ": ", wanted, " bytes of scratch wanted, ", workspace, " were reserved");
    return "";
  } catch (const std::runtime_error& error) {  // including the frontend's, where the library lacks a function
    return error.what();
  }

  void execute(const AttentionShape& shape, AttentionPass pass, std::unordered_map<int64_t, void*> pointers,
               const Tensor& workspace) {
    const RelaxedCapture relaxed;
    const fe::error_t error = plans_.at({shape, pass}).graph.execute(handle_, pointers, workspace.data);
    if (error.is_bad())
      throw Error(cat(name_, ": attention ", pass == AttentionPass::forward ? "forward" : "backward", ": ",
                      message_of(error)));
  }

  const cudaStream_t stream_;
  const bool deterministic_;
  const std::string name_;
  cudnnHandle_t handle_ = nullptr;
  std::map<std::tuple<AttentionShape, AttentionPass>, Plan> plans_;
};

}  // namespace

std::unique_ptr<CudnnAttention> make_cudnn_attention(cudaStream_t stream, bool deterministic) {
  if (!fe::cudnn_dlhandle) fe::cudnn_dlhandle = open_cudnn();
  try {
    int device = 0;  // the frontend's first call of the CUDA runtime opens a runtime of its own
    CUDA_CHECK(fe::detail::cuda_get_device(&device));
    return std::make_unique<Cudnn>(stream, deterministic);
  } catch (const std::runtime_error& error) {
    throw UnsupportedError(cat("cuDNN can't be used: ", error.what()));
  }
}

#else  // no cuDNN in this build

std::unique_ptr<CudnnAttention> make_cudnn_attention(cudaStream_t, bool) {
  throw UnsupportedError(
      "this build has no cuDNN attention: install cuDNN 9 and nvidia-cudnn-frontend, and configure again");
}

#endif

}  // namespace stepladder
