// ncclCollNet v6 .. v12 behind CollNetAbi: one template, differences under `if constexpr` on the version.
#include <dlfcn.h>

#include <array>
#include <mutex>
#include <type_traits>

#include "plugin/collnet_api.h"
#include "support/nccl_host/abi_shared.h"

namespace cgx::host {
namespace {

template <class F>
struct PropsOf;
template <class P>
struct PropsOf<ncclResult_t (*)(int, P*)> {
  using Type = P;
};

template <int kVersion>
using Sge = std::conditional_t<kVersion == 8, ncclNetSGE_v8_t, ncclNetSGE_v9_t>;

template <int kVersion>
std::array<Sge<kVersion>, 8> toSge(std::span<const Piece> pieces) {
  std::array<Sge<kVersion>, 8> out{};
  for (std::size_t i = 0; i < pieces.size(); ++i)
    out[i] = {pieces[i].mhandle, pieces[i].address, static_cast<decltype(out[i].size)>(pieces[i].size)};
  return out;
}

template <class Table, int kVersion>
class CollNet final : public CollNetAbi {
 public:
  explicit CollNet(const Table* table) : t_(*table) {}

  int version() const override { return kVersion; }
  const char* name() const override { return t_.name; }
  bool hasGatherScatter() const override { return kVersion >= 8; }

  std::string missing() const override {
    std::string out;
    noteIfNull(&out, "name", !t_.name);
    noteIfNull(&out, "init", !t_.init);
    noteIfNull(&out, "devices", !t_.devices);
    noteIfNull(&out, "getProperties", !t_.getProperties);
    noteIfNull(&out, "listen", !t_.listen);
    noteIfNull(&out, "connect", !t_.connect);
    noteIfNull(&out, "reduceSupport", !t_.reduceSupport);
    noteIfNull(&out, "regMr", !t_.regMr);
    noteIfNull(&out, "deregMr", !t_.deregMr);
    noteIfNull(&out, "iallreduce", !t_.iallreduce);
    noteIfNull(&out, "iflush", !t_.iflush);
    noteIfNull(&out, "test", !t_.test);
    noteIfNull(&out, "closeColl", !t_.closeColl);
    noteIfNull(&out, "closeListen", !t_.closeListen);
    if constexpr (kVersion >= 8) {  // NCCL's adapters for v8 .. v11 call them without looking
      noteIfNull(&out, "iallgather", !t_.iallgather);
      noteIfNull(&out, "ireducescatter", !t_.ireducescatter);
    }
    if constexpr (kVersion >= 11) noteIfNull(&out, "finalize", !t_.finalize);
    return out;
  }

  ncclResult_t init(void** ctx, std::uint64_t commId, ncclDebugLogger_t log) override {
    if constexpr (kVersion >= 11) {
      return t_.init(ctx, commId, log);
    } else {
      *ctx = nullptr;
      const std::lock_guard lock(once_);
      if (initialised_) return ncclSuccess;
      const ncclResult_t result = t_.init(log);
      initialised_ = result == ncclSuccess;
      return result;
    }
  }

  ncclResult_t finalize(void* ctx) override {
    if constexpr (kVersion >= 11) return t_.finalize(ctx);
    (void)ctx;
    return ncclSuccess;
  }

  ncclResult_t devices(int* count) override { return t_.devices(count); }

  ncclResult_t getProperties(int dev, DeviceProps* props) override {
    auto raw = garbage<typename PropsOf<decltype(Table::getProperties)>::Type>();
    const ncclResult_t result = t_.getProperties(dev, &raw);
    if (result == ncclSuccess) copyProps(raw, dev, props);
    return result;
  }

  ncclResult_t listen(void* ctx, int dev, void* handle, void** listenComm) override {
    if constexpr (kVersion >= 11) {
      return t_.listen(ctx, dev, handle, listenComm);
    } else {
      (void)ctx;
      return t_.listen(dev, handle, listenComm);
    }
  }

  ncclResult_t connect(void* handles[], int ranks, int rank, void* listenComm, void** comm) override {
    return t_.connect(handles, ranks, rank, listenComm, comm);
  }
  ncclResult_t reduceSupport(int dtype, int op, int* supported) override {
    return t_.reduceSupport(static_cast<ncclDataType_t>(dtype), static_cast<ncclRedOp_t>(op), supported);
  }

  ncclResult_t regMr(void* comm, void* data, std::size_t size, void** mhandle) override {
    if constexpr (kVersion <= 7) {
      if (size >= std::size_t{1} << 31) return ncclInternalError;  // NCCL refuses before it calls
      return t_.regMr(comm, data, static_cast<int>(size), NCCL_PTR_HOST, mhandle);
    } else {
      return t_.regMr(comm, data, size, NCCL_PTR_HOST, mhandle);
    }
  }
  ncclResult_t deregMr(void* comm, void* mhandle) override { return t_.deregMr(comm, mhandle); }

  ncclResult_t iallreduce(void* comm, void* send, void* recv, std::size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                          void* sendHandle, void* recvHandle, void** request) override {
    if constexpr (kVersion <= 8) {
      return t_.iallreduce(comm, send, recv, static_cast<int>(count), dtype, op, sendHandle, recvHandle, request);
    } else {
      return t_.iallreduce(comm, send, recv, count, dtype, op, sendHandle, recvHandle, request);
    }
  }

  ncclResult_t iallgather(void* comm, void* send, std::span<const Piece> recv, std::size_t bytesPerRank,
                          std::size_t windowOffset, std::size_t windowBytes, void* sendHandle,
                          void** request) override {
    if constexpr (kVersion >= 8) {
      auto sge = toSge<kVersion>(recv);
      return t_.iallgather(comm, send, static_cast<int>(recv.size()), sge.data(), bytesPerRank, windowOffset,
                           windowBytes, sendHandle, request);
    }
    return ncclInternalError;
  }

  ncclResult_t ireducescatter(void* comm, std::span<const Piece> send, void* recv, std::size_t bytesPerRank,
                              std::size_t windowOffset, std::size_t windowBytes, ncclDataType_t dtype, ncclRedOp_t op,
                              void* recvHandle, void** request) override {
    if constexpr (kVersion >= 8) {
      auto sge = toSge<kVersion>(send);
      return t_.ireducescatter(comm, static_cast<int>(send.size()), sge.data(), recv, bytesPerRank, windowOffset,
                               windowBytes, dtype, op, recvHandle, request);
    }
    return ncclInternalError;
  }

  ncclResult_t iflush(void* comm, void* data, int size, void* mhandle, void** request) override {
    return t_.iflush(comm, data, size, mhandle, request);
  }
  ncclResult_t test(void* request, int* done, int* size) override { return t_.test(request, done, size); }
  ncclResult_t closeColl(void* comm) override { return t_.closeColl(comm); }
  ncclResult_t closeListen(void* listenComm) override { return t_.closeListen(listenComm); }

 private:
  Table t_;
  std::mutex once_;
  bool initialised_ = false;
};

template <class Table, int kVersion>
std::unique_ptr<CollNetAbi> find(void* library) {
  const std::string symbol = "ncclCollNetPlugin_v" + std::to_string(kVersion);
  void* table = dlsym(library, symbol.c_str());
  if (!table) return nullptr;
  return std::make_unique<CollNet<Table, kVersion>>(static_cast<const Table*>(table));
}

}  // namespace

std::unique_ptr<CollNetAbi> findCollNet(void* library, int version) {
  switch (version) {
    case 6:
      return find<ncclCollNet_v6_t, 6>(library);
    case 7:
      return find<ncclCollNet_v7_t, 7>(library);
    case 8:
      return find<ncclCollNet_v8_t, 8>(library);
    case 9:
      return find<ncclCollNet_v9_t, 9>(library);
    case 10:
      return find<ncclCollNet_v10_t, 10>(library);
    case 11:
      return find<ncclCollNet_v11_t, 11>(library);
    case 12:
      return find<ncclCollNet_v12_t, 12>(library);
    default:
      return nullptr;
  }
}

}  // namespace cgx::host
