// Kernel times by CUPTI; the only file that includes CUPTI's headers. The library is loaded when a tracer is
// made, so that no run that is timed ever has it in its process.
#include "model/cuda/cupti_tracer.h"

#include <cuda_runtime_api.h>

#include "model/cuda/libraries.h"
#include "model/error.h"

#ifdef STEPLADDER_CUPTI
#include <cupti.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <utility>
#endif

namespace stepladder {

#ifdef STEPLADDER_CUPTI
namespace {

/// The functions of libcupti that are used here. Throws Error where it can't be loaded.
struct Cupti {
  DynamicLibrary library;
  decltype(&cuptiGetResultString) get_result_string = library.function("cuptiGetResultString");
  decltype(&cuptiGetVersion) get_version = library.function("cuptiGetVersion");
  decltype(&cuptiGetTimestamp) get_timestamp = library.function("cuptiGetTimestamp");
  decltype(&cuptiSubscribe) subscribe = library.function("cuptiSubscribe");
  decltype(&cuptiUnsubscribe) unsubscribe = library.function("cuptiUnsubscribe");
  decltype(&cuptiEnableCallback) enable_callback = library.function("cuptiEnableCallback");
  decltype(&cuptiGetGraphNodeId) get_graph_node_id = library.function("cuptiGetGraphNodeId");
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks =
      library.function("cuptiActivityRegisterCallbacks");
  decltype(&cuptiActivityEnable) enable = library.function("cuptiActivityEnable");
  decltype(&cuptiActivityDisable) disable = library.function("cuptiActivityDisable");
  decltype(&cuptiActivityFlushAll) flush_all = library.function("cuptiActivityFlushAll");
  decltype(&cuptiActivityGetNextRecord) next_record = library.function("cuptiActivityGetNextRecord");
  decltype(&cuptiActivityGetNumDroppedRecords) dropped_records =
      library.function("cuptiActivityGetNumDroppedRecords");
  decltype(&cuptiActivityPushExternalCorrelationId) push_id =
      library.function("cuptiActivityPushExternalCorrelationId");
  decltype(&cuptiActivityPopExternalCorrelationId) pop_id =
      library.function("cuptiActivityPopExternalCorrelationId");

  /// Throws Error with what `status` means.
  void check(CUptiResult status, const char* call) const {
    if (status == CUPTI_SUCCESS) return;
    const char* meaning = nullptr;
    get_result_string(status, &meaning);
    throw Error(cat("CUPTI: ", meaning ? meaning : "unknown error", " in ", call));
  }
};

constexpr CUpti_ActivityKind kKinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMSET,
    // The API calls that queue kernels, and the op of each such call: CUPTI records ops only if it records
    // the calls too.
    CUPTI_ACTIVITY_KIND_RUNTIME,
    CUPTI_ACTIVITY_KIND_DRIVER,
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
};
constexpr size_t kBuffer = 8 << 20;  // bytes

/// The op of a kernel is found in two ways. Work that is queued directly carries a correlation id, pushed by
/// enter(). Work that a graph runs carries its node's id: the op is the one in which the node was made, by
/// stream capture, and a node that is instantiated or cloned has the op of its original.
class CuptiTracer final : public Tracer {
 public:
  explicit CuptiTracer(const Cupti& cupti) : cupti_(cupti) {
    if (active) throw Error("CUPTI is in use by another tracer");
    cupti_.check(cupti_.register_callbacks(buffer_requested, buffer_completed),
                 "cuptiActivityRegisterCallbacks");
    cupti_.check(cupti_.subscribe(&subscriber_, on_graph, this), "cuptiSubscribe");
    try {
      for (const CUpti_CallbackId id :
           {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED})
        cupti_.check(cupti_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, id),
                     "cuptiEnableCallback");
    } catch (...) {
      cupti_.unsubscribe(subscriber_);  // no callback may see an object that was never constructed
      throw;
    }
    active = this;
  }
  ~CuptiTracer() override {
    for (const CUpti_ActivityKind kind : kKinds) cupti_.disable(kind);
    cupti_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    active = nullptr;
    cupti_.unsubscribe(subscriber_);
  }

  std::string source() const override {
    uint32_t version = 0;
    cupti_.get_version(&version);
    return cat("CUPTI activity records (API version ", version, ")");
  }

  void enter(int64_t call) override {
    call_ = call;
    if (tracing_)
      cupti_.check(cupti_.push_id(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, static_cast<uint64_t>(call)),
                   "cuptiActivityPushExternalCorrelationId");
  }
  void leave() override {
    call_ = -1;
    uint64_t last = 0;
    if (tracing_)
      cupti_.check(cupti_.pop_id(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last),
                   "cuptiActivityPopExternalCorrelationId");
  }
  void replay(int64_t, int64_t) override {}

  void begin() override {
    // Records are switched on at the first step, which makes that step slower.
    if (!enabled_)
      for (const CUpti_ActivityKind kind : kKinds) cupti_.check(cupti_.enable(kind), "cuptiActivityEnable");
    enabled_ = true;
    collect();  // drops work that ran between two steps
    tracing_ = true;
    begin_ = now();
  }

  Step end() override {
    const int64_t ns = now() - begin_;
    tracing_ = false;
    return {ns, collect()};
  }

 private:
  using Calls = std::unordered_map<uint64_t, int64_t>;  // calls by an id of CUPTI's
  struct Work {                                         // work of the device
    int64_t start, end;
    uint64_t correlation, node;
    std::string name;
  };

  /// The spans of all work that ran since the last collect().
  std::vector<Span> collect() {
    cupti_.check(cupti_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
    const std::lock_guard lock(mutex_);
    std::vector<Span> spans;
    if (dropped_ > 0) throw Error(cat("CUPTI dropped ", dropped_, " records"));
    for (Work& work : work_) {
      const int64_t call =
          work.node ? call_of(node_calls_, work.node) : call_of(api_calls_, work.correlation);
      spans.push_back({work.start - begin_, work.end - begin_, call, std::move(work.name)});
    }
    std::ranges::sort(spans, {}, &Span::start_ns);
    work_.clear();
    api_calls_.clear();
    return spans;
  }

  int64_t now() const {
    uint64_t ns = 0;
    cupti_.check(cupti_.get_timestamp(&ns), "cuptiGetTimestamp");
    return static_cast<int64_t>(ns);
  }
  static int64_t call_of(const Calls& calls, uint64_t id) {
    const auto found = calls.find(id);
    return found == calls.end() ? -1 : found->second;
  }

  static void CUPTIAPI on_graph(void* self, CUpti_CallbackDomain, CUpti_CallbackId id, const void* data) {
    auto& tracer = *static_cast<CuptiTracer*>(self);
    const auto& graph = *static_cast<const CUpti_GraphData*>(
        static_cast<const CUpti_ResourceData*>(data)->resourceDescriptor);
    const auto id_of = [&](CUgraphNode node) {
      uint64_t found = 0;
      return tracer.cupti_.get_graph_node_id(node, &found) == CUPTI_SUCCESS ? found : 0;
    };
    // Instantiating a graph makes nodes too, outside of any op: such a clone has its original's call.
    const int64_t call = id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED
                             ? call_of(tracer.node_calls_, id_of(graph.originalNode))
                             : tracer.call_;
    if (call >= 0) tracer.node_calls_[id_of(graph.node)] = call;
  }

  static void CUPTIAPI buffer_requested(uint8_t** buffer, size_t* size, size_t* max_records) {
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBuffer));
    *size = *buffer ? kBuffer : 0;
    *max_records = 0;
  }
  static void CUPTIAPI buffer_completed(CUcontext context, uint32_t stream, uint8_t* buffer, size_t,
                                        size_t valid) {
    if (CuptiTracer* tracer = active) tracer->take(context, stream, buffer, valid);
    std::free(buffer);
  }
  void take(CUcontext context, uint32_t stream, uint8_t* buffer, size_t valid) {
    const std::lock_guard lock(mutex_);
    CUpti_Activity* record = nullptr;
    while (cupti_.next_record(buffer, valid, &record) == CUPTI_SUCCESS) take(*record);
    size_t dropped = 0;
    if (cupti_.dropped_records(context, stream, &dropped) == CUPTI_SUCCESS) dropped_ += dropped;
  }
  /// Takes in one record. Later versions of these records only append fields.
  void take(const CUpti_Activity& record) {
    switch (record.kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      case CUPTI_ACTIVITY_KIND_KERNEL: {
        const auto& kernel = reinterpret_cast<const CUpti_ActivityKernel9&>(record);
        add(kernel, kernel.name);
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        add(reinterpret_cast<const CUpti_ActivityMemcpy5&>(record), "copy");
        break;
      case CUPTI_ACTIVITY_KIND_MEMSET:
        add(reinterpret_cast<const CUpti_ActivityMemset4&>(record), "memset");
        break;
      case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        const auto& id = reinterpret_cast<const CUpti_ActivityExternalCorrelation&>(record);
        api_calls_[id.correlationId] = static_cast<int64_t>(id.externalId);
        break;
      }
      default:
        break;
    }
  }
  template <class Record>
  void add(const Record& record, const char* name) {
    work_.push_back({static_cast<int64_t>(record.start), static_cast<int64_t>(record.end),
                     record.correlationId, record.graphNodeId, name ? name : "?"});
  }

  static inline std::atomic<CuptiTracer*> active =
      nullptr;  // CUPTI hands buffers over without saying to whom

  const Cupti& cupti_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  bool enabled_ = false, tracing_ = false;
  int64_t begin_ = 0;
  int64_t call_ = -1;  // the call that is being queued or recorded
  Calls node_calls_;

  std::mutex mutex_;  // buffers may come from a thread of CUPTI's
  std::vector<Work> work_;
  Calls api_calls_;
  size_t dropped_ = 0;
};

}  // namespace

std::unique_ptr<Tracer> make_cupti_tracer(std::string& why) try {
  static const Cupti cupti{open_library(CudaPart::cupti)};
  return std::make_unique<CuptiTracer>(cupti);
} catch (const Error& error) {
  why = error.what();
  return nullptr;
}
#else
std::unique_ptr<Tracer> make_cupti_tracer(std::string& why) {
  why = cat("this build has no CUPTI: install nvidia-cuda-cupti, or cuda-cupti-dev-", CUDART_VERSION / 1000,
            " of the toolkit, and configure again");
  return nullptr;
}
#endif

}  // namespace stepladder
