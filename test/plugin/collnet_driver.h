// Calls a collnet table of any version through one set of functions: each call with that version's own signature and
// types.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "test/plugin/library.h"

namespace cgx::test {

template <class Coll>
class CollDriver {
 public:
  static constexpr int kVersion = Version<Coll>::kNumber;
  using Handle = std::array<std::byte, NCCL_NET_HANDLE_MAXSIZE>;

  explicit CollDriver(const Library& library) : table(library.symbol<const Coll>(Version<Coll>::kSymbol)) {}

  ncclResult_t init(ncclDebugLogger_t log = &Captured::log, std::uint64_t commId = 1) {
    if constexpr (kVersion >= 11)
      return table->init(&ctx, commId, log);
    else
      return table->init(log);
  }
  ncclResult_t finalize() {
    if constexpr (kVersion >= 11)
      return table->finalize(ctx);
    else
      return ncclSuccess;
  }
  ncclResult_t listen(int dev, void* handle, void** comm) {
    if constexpr (kVersion >= 11)
      return table->listen(ctx, dev, handle, comm);
    else
      return table->listen(dev, handle, comm);
  }
  ncclResult_t connect(std::vector<Handle>& handles, int rank, void* listener, void** comm) {
    std::vector<void*> pointers;
    for (Handle& handle : handles) pointers.push_back(handle.data());
    return table->connect(pointers.data(), static_cast<int>(handles.size()), rank, listener, comm);
  }
  ncclResult_t regMr(void* comm, void* data, std::size_t size, int type, void** mhandle) {
    if constexpr (kVersion >= 8)
      return table->regMr(comm, data, size, type, mhandle);
    else
      return table->regMr(comm, data, static_cast<int>(size), type, mhandle);
  }
  ncclResult_t iallreduce(void* comm, void* send, void* recv, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                          void** request) {
    if constexpr (kVersion >= 9)
      return table->iallreduce(comm, send, recv, count, type, op, nullptr, nullptr, request);
    else
      return table->iallreduce(comm, send, recv, static_cast<int>(count), type, op, nullptr, nullptr, request);
  }
  ncclResult_t iallgather(void* comm, void* send, void* recv, std::size_t perRank, std::size_t offset,
                          std::size_t bytes, void** request) requires(kVersion >= 8) {
    Sge part{};
    part.address = recv;
    part.size = static_cast<decltype(part.size)>(bytes);
    return table->iallgather(comm, send, 1, &part, perRank, offset, bytes, nullptr, request);
  }
  ncclResult_t ireducescatter(void* comm, void* send, void* recv, std::size_t perRank, std::size_t offset,
                              std::size_t bytes, ncclDataType_t type, void** request) requires(kVersion >= 8) {
    Sge part{};
    part.address = send;
    part.size = static_cast<decltype(part.size)>(bytes);
    return table->ireducescatter(comm, 1, &part, recv, perRank, offset, bytes, type, ncclSum, nullptr, request);
  }
  /// Polls until done. False on an error or after 10 s.
  bool wait(void* request, int* bytes = nullptr) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (int done = 0; done == 0;) {
      if (table->test(request, &done, bytes) != ncclSuccess) return false;
      if (std::chrono::steady_clock::now() > deadline) return false;
      if (done == 0) std::this_thread::yield();
    }
    return true;
  }

  const Coll* table;
  void* ctx = nullptr;

 private:
  using Sge = std::conditional_t<kVersion == 8, ncclNetSGE_v8_t, ncclNetSGE_v9_t>;
};

}  // namespace cgx::test
