// ncclNet v6 .. v12 behind NetAbi: one template, differences under `if constexpr` on the version.
#include <dlfcn.h>

#include <array>
#include <mutex>
#include <type_traits>

#include "plugin/net_api.h"
#include "support/nccl_host/abi_shared.h"

namespace cgx::host {
namespace {

ncclResult_t ignoreProfile(void**, int, void*, std::int64_t, void*) { return ncclSuccess; }

template <class F>
struct PropsOf;
template <class P>
struct PropsOf<ncclResult_t (*)(int, P*)> {
  using Type = P;
};

template <class Table, int kVersion>
class Net final : public NetAbi {
 public:
  explicit Net(const Table* table) : t_(*table) {}

  int version() const override { return kVersion; }
  const char* name() const override { return t_.name; }
  int maxRequests() const override { return kVersion == 6 ? NCCL_NET_MAX_REQUESTS_V6 : NCCL_NET_MAX_REQUESTS; }

  std::string missing() const override {
    std::string out;
    noteIfNull(&out, "name", !t_.name);
    noteIfNull(&out, "init", !t_.init);
    noteIfNull(&out, "devices", !t_.devices);
    noteIfNull(&out, "getProperties", !t_.getProperties);
    noteIfNull(&out, "listen", !t_.listen);
    noteIfNull(&out, "connect", !t_.connect);
    noteIfNull(&out, "accept", !t_.accept);
    noteIfNull(&out, "regMr", !t_.regMr);
    noteIfNull(&out, "deregMr", !t_.deregMr);
    noteIfNull(&out, "isend", !t_.isend);
    noteIfNull(&out, "irecv", !t_.irecv);
    noteIfNull(&out, "iflush", !t_.iflush);
    noteIfNull(&out, "test", !t_.test);
    noteIfNull(&out, "closeSend", !t_.closeSend);
    noteIfNull(&out, "closeRecv", !t_.closeRecv);
    noteIfNull(&out, "closeListen", !t_.closeListen);
    if constexpr (kVersion >= 11) noteIfNull(&out, "finalize", !t_.finalize);
    return out;
  }

  ncclResult_t init(void** ctx, std::uint64_t commId, ncclDebugLogger_t log) override {
    if constexpr (kVersion >= 11) {
      ncclNetCommConfig_t config{NCCL_NET_TRAFFIC_CLASS_UNDEF};
      return t_.init(ctx, commId, &config, log, ignoreProfile);
    } else {
      *ctx = nullptr;
      const std::lock_guard lock(once_);
      if (initialised_) return ncclSuccess;
      ncclResult_t result;
      if constexpr (kVersion == 10) {
        result = t_.init(log, ignoreProfile);
      } else {
        result = t_.init(log);
      }
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

  ncclResult_t connect(void* ctx, int dev, void* handle, void** sendComm) override {
    [[maybe_unused]] ncclNetDeviceHandle_t* device = nullptr;
    if constexpr (kVersion >= 11) {
      return t_.connect(ctx, dev, handle, sendComm, &device);
    } else if constexpr (kVersion == 10) {
      ncclNetCommConfig_t config{NCCL_NET_TRAFFIC_CLASS_UNDEF};
      return t_.connect(dev, &config, handle, sendComm, &device);
    } else if constexpr (kVersion >= 7) {
      return t_.connect(dev, handle, sendComm, &device);
    } else {
      return t_.connect(dev, handle, sendComm);
    }
  }

  ncclResult_t accept(void* listenComm, void** recvComm) override {
    if constexpr (kVersion >= 7) {
      ncclNetDeviceHandle_t* device = nullptr;
      return t_.accept(listenComm, recvComm, &device);
    } else {
      return t_.accept(listenComm, recvComm);
    }
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

  ncclResult_t isend(void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) override {
    if constexpr (kVersion >= 10) {
      return t_.isend(comm, data, size, tag, mhandle, nullptr, request);
    } else if constexpr (kVersion == 9) {
      return t_.isend(comm, data, size, tag, mhandle, request);
    } else {
      return t_.isend(comm, data, static_cast<int>(size), tag, mhandle, request);
    }
  }

  ncclResult_t irecv(void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                     void** request) override {
    if constexpr (kVersion >= 9) {
      *request = reinterpret_cast<void*>(std::uintptr_t{NCCL_NET_OPTIONAL_RECV_COMPLETION});
      if constexpr (kVersion >= 10) {
        std::array<void*, 32> profiler{};
        return t_.irecv(comm, n, data, sizes, tags, mhandles, profiler.data(), request);
      } else {
        return t_.irecv(comm, n, data, sizes, tags, mhandles, request);
      }
    } else {
      std::array<int, 32> narrow{};
      for (int i = 0; i < n; ++i) narrow[static_cast<std::size_t>(i)] = static_cast<int>(sizes[i]);
      *request = nullptr;
      return t_.irecv(comm, n, data, narrow.data(), tags, mhandles, request);
    }
  }

  ncclResult_t iflush(void* comm, int n, void** data, int* sizes, void** mhandles, void** request) override {
    return t_.iflush(comm, n, data, sizes, mhandles, request);
  }
  ncclResult_t test(void* request, int* done, int* sizes) override { return t_.test(request, done, sizes); }
  ncclResult_t closeSend(void* comm) override { return t_.closeSend(comm); }
  ncclResult_t closeRecv(void* comm) override { return t_.closeRecv(comm); }
  ncclResult_t closeListen(void* listenComm) override { return t_.closeListen(listenComm); }

  ncclResult_t setAttributes(void* ctx) override {
    if constexpr (kVersion >= 11) {
      if (!t_.setNetAttr) return ncclSuccess;
      ncclNetAttr_t attributes{{1, 1, 1, 1}, {1, 1, 1, 1}, 4, 1, 2};
      return t_.setNetAttr(ctx, &attributes);
    }
    (void)ctx;
    return ncclSuccess;
  }

 private:
  Table t_;  // copied, as NCCL copies the pointers when it initialises
  std::mutex once_;
  bool initialised_ = false;
};

template <class Table, int kVersion>
std::unique_ptr<NetAbi> find(void* library) {
  const std::string symbol = "ncclNetPlugin_v" + std::to_string(kVersion);
  void* table = dlsym(library, symbol.c_str());
  if (!table) return nullptr;
  return std::make_unique<Net<Table, kVersion>>(static_cast<const Table*>(table));
}

}  // namespace

std::unique_ptr<NetAbi> findNet(void* library, int version) {
  switch (version) {
    case 6:
      return find<ncclNet_v6_t, 6>(library);
    case 7:
      return find<ncclNet_v7_t, 7>(library);
    case 8:
      return find<ncclNet_v8_t, 8>(library);
    case 9:
      return find<ncclNet_v9_t, 9>(library);
    case 10:
      return find<ncclNet_v10_t, 10>(library);
    case 11:
      return find<ncclNet_v11_t, 11>(library);
    case 12:
      return find<ncclNet_v12_t, 12>(library);
    default:
      return nullptr;
  }
}

}  // namespace cgx::host
