// Calls a net table of any version through one set of functions: each call with that version's own signature and types.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include "test/plugin/library.h"

namespace cgx::test {

template <class Net>
class NetDriver {
 public:
  static constexpr int kVersion = Version<Net>::kNumber;
  using Props = typename Version<Net>::Props;
  using Handle = std::array<std::byte, NCCL_NET_HANDLE_MAXSIZE>;

  explicit NetDriver(const Library& library) : table(library.symbol<const Net>(Version<Net>::kSymbol)) {}

  ncclResult_t init(ncclDebugLogger_t log = &Captured::log, std::uint64_t commId = 1) {
    if constexpr (kVersion >= 11) {
      ncclNetCommConfig_t config{NCCL_NET_TRAFFIC_CLASS_UNDEF};
      return table->init(&ctx, commId, &config, log, nullptr);
    } else if constexpr (kVersion == 10) {
      return table->init(log, nullptr);
    } else {
      return table->init(log);
    }
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
  ncclResult_t connect(int dev, void* handle, void** comm) {
    if constexpr (kVersion >= 11) {
      return table->connect(ctx, dev, handle, comm, nullptr);
    } else if constexpr (kVersion == 10) {
      return table->connect(dev, nullptr, handle, comm, nullptr);
    } else if constexpr (kVersion >= 7) {
      return table->connect(dev, handle, comm, nullptr);
    } else {
      return table->connect(dev, handle, comm);
    }
  }
  ncclResult_t accept(void* listenComm, void** comm) {
    if constexpr (kVersion >= 7)
      return table->accept(listenComm, comm, nullptr);
    else
      return table->accept(listenComm, comm);
  }
  ncclResult_t regMr(void* comm, void* data, std::size_t size, int type, void** mhandle) {
    if constexpr (kVersion >= 8)
      return table->regMr(comm, data, size, type, mhandle);
    else
      return table->regMr(comm, data, static_cast<int>(size), type, mhandle);
  }
  ncclResult_t isend(void* comm, void* data, std::size_t size, int tag, void** request) {
    if constexpr (kVersion >= 10)
      return table->isend(comm, data, size, tag, nullptr, nullptr, request);
    else if constexpr (kVersion == 9)
      return table->isend(comm, data, size, tag, nullptr, request);
    else
      return table->isend(comm, data, static_cast<int>(size), tag, nullptr, request);
  }
  ncclResult_t irecv(void* comm, std::vector<std::pair<void*, std::size_t>> buffers, std::vector<int> tags,
                     void** request) {
    const int n = static_cast<int>(buffers.size());
    std::vector<void*> data;
    using Size = std::conditional_t<(kVersion >= 9), std::size_t, int>;
    std::vector<Size> sizes;
    for (auto& [pointer, size] : buffers) {
      data.push_back(pointer);
      sizes.push_back(static_cast<Size>(size));
    }
    // NCCL's hint for small protocols; must be overwritten.
    if constexpr (kVersion >= 9) *request = reinterpret_cast<void*>(NCCL_NET_OPTIONAL_RECV_COMPLETION);
    if constexpr (kVersion >= 10)
      return table->irecv(comm, n, data.data(), sizes.data(), tags.data(), nullptr, nullptr, request);
    else
      return table->irecv(comm, n, data.data(), sizes.data(), tags.data(), nullptr, request);
  }

  /// A connected pair, polled from this one thread as NCCL may do: accept first, then connect. False after 10 s.
  bool pair(void** sendComm, void** recvComm, int listenDev = 0, int connectDev = 0) {
    Handle handle{};
    void* listener = nullptr;
    if (listen(listenDev, handle.data(), &listener) != ncclSuccess) return false;
    const bool ok = join(handle, listener, sendComm, recvComm, connectDev);
    return table->closeListen(listener) == ncclSuccess && ok;
  }
  bool join(const Handle& handle, void* listener, void** sendComm, void** recvComm, int dev = 0) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    *sendComm = *recvComm = nullptr;
    while (*sendComm == nullptr || *recvComm == nullptr) {
      if (*recvComm == nullptr && accept(listener, recvComm) != ncclSuccess) return false;
      Handle copy = handle;  // a fresh copy each time: state must not depend on where the handle lies
      if (*sendComm == nullptr && connect(dev, copy.data(), sendComm) != ncclSuccess) return false;
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  }
  /// Polls until done; the sizes go to `sizes`. False on an error or after 10 s.
  bool wait(void* request, int* sizes = nullptr) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (int done = 0; done == 0;) {
      if (table->test(request, &done, sizes) != ncclSuccess) return false;
      if (std::chrono::steady_clock::now() > deadline) return false;
      if (done == 0) std::this_thread::yield();
    }
    return true;
  }

  const Net* table;
  void* ctx = nullptr;
};

}  // namespace cgx::test
