// Collectives without peers, for tests of the plugin's own logic: each "sum" is a copy, faults come on demand. Linked
// in place of src/collective; follows the same contract.
#include <cstring>
#include <mutex>
#include <vector>

#include "cgx/collective.h"
#include "test/plugin/memory_control.h"

extern "C" CgxMemoryControl* cgxMemoryControl();

namespace cgx::collective {

struct Request {
  std::size_t bytes = 0;
  bool used = false;
};

namespace {

class Fake final : public Communicator {
 public:
  Status registerMemory(void* data, std::size_t, void** handle) override {
    ++cgxMemoryControl()->registered;
    *handle = data;
    return {};
  }
  Status deregisterMemory(void*) override {
    --cgxMemoryControl()->registered;
    return {};
  }
  Status allReduce(const void* send, void* recv, std::size_t count, codec::DType dtype, Request** request) override {
    return start(send, recv, count * codec::bytesOf(dtype), request);
  }
  Status allGather(const void* send, std::span<const Part> recv, std::size_t bytesPerRank, std::size_t, std::size_t,
                   Request** request) override {
    return start(send, recv[0].data, std::min(bytesPerRank, recv[0].bytes), request);
  }
  Status reduceScatter(std::span<const Part> send, void* recv, std::size_t bytesPerRank, std::size_t, std::size_t,
                       codec::DType, Request** request) override {
    return start(send[0].data, recv, std::min(bytesPerRank, send[0].bytes), request);
  }
  Status test(Request* request, std::size_t* bytes) override {
    if (cgxMemoryControl()->cut) return Status::remote("connection to rank 1 reset");
    if (cgxMemoryControl()->stall) return Status::pending();
    *bytes = request->bytes;
    request->used = false;
    const std::lock_guard lock(mutex_);
    ++counters_.operations;
    counters_.inputBytes += request->bytes;
    counters_.wireBytes += request->bytes / 2;
    return {};
  }
  Counters counters() const override {
    const std::lock_guard lock(mutex_);
    return counters_;
  }
  void close() noexcept override {}

 private:
  Status start(const void* send, void* recv, std::size_t bytes, Request** request) {
    *request = nullptr;
    if (cgxMemoryControl()->cut) return Status::remote("connection to rank 1 reset");
    for (Request& candidate : requests_) {
      if (candidate.used) continue;
      if (bytes > 0) std::memmove(recv, send, bytes);
      candidate = {bytes, true};
      *request = &candidate;
      return {};
    }
    return {};
  }
  std::vector<Request> requests_{32};
  mutable std::mutex mutex_;
  Counters counters_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> connect(const ConnectSpec& spec) {
  if (spec.problem.failed()) return spec.problem;
  for (const transport::Handle& handle : spec.handles)
    if (handle == transport::Handle{}) return Status::invalid("rank 1 was given no handle");
  cgxMemoryControl()->ordinal = static_cast<int>(spec.ordinal);
  return std::unique_ptr<Communicator>(std::make_unique<Fake>());
}

}  // namespace cgx::collective
