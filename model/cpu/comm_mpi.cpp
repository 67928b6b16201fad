#include "model/cpu/comm_mpi.h"

#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include "model/cpu/cpu.h"
#include "model/mpi/module.h"
#include "model/rendezvous.h"

namespace stepladder {
namespace {

const MpiCalls* load_mpi() {
  // Open with RTLD_GLOBAL, since Open MPI loads plug-ins that look for its symbols. Never close the library:
  // plug-ins may be in use until the end.
  void* library = dlopen("libstepladder_mpi.so", RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    throw Error(
        cat("several ranks on the CPU need MPI: install libopenmpi-dev and build again (", dlerror(), ")"));
  const auto calls = reinterpret_cast<decltype(&stepladder_mpi)>(dlsym(library, "stepladder_mpi"));
  if (!calls) throw Error("libstepladder_mpi.so is of another build: build again");
  return calls();
}

int mpi_count(int64_t n) {
  check(n <= INT_MAX, n, " at once are more than MPI counts");
  return static_cast<int>(n);
}

class MpiCollectives final : public Collectives {
 public:
  ~MpiCollectives() override {
    // finalize() waits for the other ranks, which may never come after an error.
    if (mpi_ && std::uncaught_exceptions() == 0) mpi_->finalize();
  }

  void join(Rendezvous& ranks) override {
    const MpiCalls* mpi = load_mpi();
    const World& launched = ranks.world();
    int rank = 0, world = 1;
    // Without these variables Open MPI ends the process under srun, and elsewhere makes a world of one.
    if (std::getenv("PMIX_RANK") || std::getenv("PMI_RANK")) mpi->init(&rank, &world);
    if (rank != launched.rank || world != launched.size)
      throw Error(cat("ranks on the CPU talk through MPI, for which this is rank ", rank, " of ", world,
                      " instead of ", launched.rank, " of ", launched.size,
                      ": start them with mpirun or srun --mpi=pmix"));
    mpi_ = mpi;
    ranks_ = &ranks;
  }
  int rank() const override { return ranks_ ? ranks_->world().rank : 0; }
  int world() const override { return ranks_ ? ranks_->world().size : 1; }

  void use_copy_engines(const Arena&, const Tensor& receive_buffer) override {
    receive_buffer_ = receive_buffer;
  }
  void queue(Collective what, std::span<const Tensor> bucket) override {
    const bool in_parts = what == Collective::reduce_scatter || what == Collective::all_gather;
    for (const Tensor& x : bucket)
      if (in_parts) part_of(x, rank(), world());  // throws now if x has no equal parts
    poison_receive_buffer(what);
    auto& queued = queued_.emplace_back(Queued{what, {}}).bucket;
    for (const Tensor& x : bucket) {
      const auto* const begin = static_cast<const std::byte*>(x.data);
      queued.push_back({x, {begin, begin + x.bytes()}});
    }
  }
  void wait(int64_t allow_pending) override {
    for (; std::ssize(queued_) > allow_pending; queued_.pop_front()) {
      poison_receive_buffer(queued_.front().what);
      for (const auto& [x, before] : queued_.front().bucket) {
        std::ranges::copy(before, static_cast<std::byte*>(x.data));
        run(queued_.front().what, x);
      }
    }
  }

 private:
  /// Fills the receive buffer with NaN, to expose a trainer that still reads it: on GPUs, the other ranks may
  /// write to the buffer until wait().
  void poison_receive_buffer(Collective what) const {
    if (what == Collective::reduce_scatter && receive_buffer_.data)
      std::memset(receive_buffer_.data, 0xFF, receive_buffer_.bytes());
  }
  void run(Collective what, const Tensor& x) {
    ranks_->progress();
    const auto bytes = static_cast<int64_t>(x.bytes());
    const int64_t n = x.numel();
    if (what == Collective::broadcast) return mpi_->broadcast(x.data, mpi_count(bytes));
    if (what == Collective::all_max) {
      // The bits of floats >= 0, as integers, are in the order of the floats, and those of NaN come last.
      return mpi_->all_max(static_cast<int32_t*>(x.data), mpi_count(n));
    }
    const bool whole = what == Collective::all_reduce;
    const Tensor part = whole ? x : part_of(x, rank(), world());
    if (what == Collective::all_gather) return mpi_->all_gather(x.data, mpi_count(bytes / world()));
    with_float_type(x.dtype, [&]<class T>(T) {
      const auto from = floats<T>(x);
      sums_.resize(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) sums_[static_cast<size_t>(i)] = from[i];
      part_.resize(whole ? 0 : static_cast<size_t>(part.numel()));
      if (whole) {
        mpi_->all_reduce(sums_.data(), mpi_count(n));
      } else {
        mpi_->reduce_scatter(part_.data(), sums_.data(), mpi_count(part.numel()));
      }
      const std::vector<float>& result = whole ? sums_ : part_;
      const auto to = floats<T>(part);
      for (int64_t i = 0; i < part.numel(); ++i) to.set(i, result[static_cast<size_t>(i)]);
    });
  }

  struct Queued {
    Collective what;
    std::vector<std::pair<Tensor, std::vector<std::byte>>> bucket;  // with their contents at queue()
  };
  const MpiCalls* mpi_ = nullptr;  // null in a world of 1
  Rendezvous* ranks_ = nullptr;
  Tensor receive_buffer_;  // empty before use_copy_engines()
  std::deque<Queued> queued_;
  std::vector<float> sums_, part_;
};

}  // namespace

std::unique_ptr<Collectives> make_mpi_collectives() {
  return std::make_unique<MpiCollectives>();
}

}  // namespace stepladder
