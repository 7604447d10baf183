// NCCL's net calls, every historic signature once, and the tables v6 to v12 made from them. Translates and checks
// arguments; what the calls do is in host, dialer and net_comm.
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "plugin/boundary.h"
#include "plugin/host.h"
#include "plugin/net_api.h"
#include "plugin/net_comm.h"

namespace cgx::plugin::net {
namespace {

struct ListenComm {
  ListenComm(Host& host, std::unique_ptr<transport::Listener> owned) : live(host), listener(std::move(owned)) {}
  Live live;
  std::unique_ptr<transport::Listener> listener;
};

std::uint64_t contextOf(void* ctx) { return reinterpret_cast<std::uintptr_t>(ctx); }

Answer checkContext(Host& host, void* ctx) {
  if (ctx != nullptr && !host.hasContext(Half::Net, contextOf(ctx)))
    return Answer::badArgument("the context is not, or no longer, open");
  return {};
}

template <class Size>
bool validSize(Size size) {
  if constexpr (std::is_signed_v<Size>) return size >= 0;
  return static_cast<std::size_t>(size) <= NCCL_MAX_NET_SIZE_BYTES;
}

// ---- init, finalize

ncclResult_t init(ncclDebugLogger_t log) noexcept {
  return guard("init", [&]() -> Answer { return Host::attach(log, Caller::V6ToV9).status(); });
}

ncclResult_t init(ncclDebugLogger_t log, ncclProfilerCallback_t) noexcept {
  return guard("init", [&]() -> Answer { return Host::attach(log, Caller::V10).status(); });
}

ncclResult_t init(void** ctx, std::uint64_t commId, ncclNetCommConfig_t*, ncclDebugLogger_t log,
                  ncclProfilerCallback_t) noexcept {
  return guard("init", [&]() -> Answer {
    if (ctx == nullptr) return Answer::badArgument("no place for the context");
    auto host = Host::attach(log, Caller::FromV11);
    if (!host.ok()) return std::move(host).status();
    *ctx = reinterpret_cast<void*>(host.value()->openContext(Half::Net, commId));
    return {};
  });
}

ncclResult_t finalize(void* ctx) noexcept {
  return guard("finalize", [&]() -> Answer {
    auto host = Host::get();
    if (!host.ok()) return std::move(host).status();
    if (!host.value()->closeContext(Half::Net, contextOf(ctx)))
      return Answer::badArgument("the context is not, or no longer, open");
    return {};
  });
}

ncclResult_t setNetAttr(void*, ncclNetAttr_t*) noexcept { return ncclSuccess; }  // hints that we have no use for

// ---- devices

ncclResult_t devices(int* count) noexcept {
  return guard("devices", [&]() -> Answer {
    if (count == nullptr) return Answer::badArgument("no place for the count");
    auto host = Host::get();
    if (!host.ok()) return std::move(host).status();
    *count = static_cast<int>(host.value()->transport().devices().size());
    return {};
  });
}

template <class Props>
ncclResult_t getProperties(int dev, Props* props) noexcept {
  return guard("getProperties", [&]() -> Answer {
    if (props == nullptr) return Answer::badArgument("no place for the properties");
    auto host = Host::get();
    if (!host.ok()) return std::move(host).status();
    return host.value()->fillProperties(dev, props);
  });
}

// ---- connections

ncclResult_t listen(void* ctx, int dev, void* handle, void** listenComm) noexcept {
  return guard("listen", [&]() -> Answer {
    if (handle == nullptr || listenComm == nullptr)
      return Answer::badArgument("no place for the handle or the listener");
    *listenComm = nullptr;
    auto host = Host::get();
    if (!host.ok()) return std::move(host).status();
    if (Answer answer = checkContext(*host.value(), ctx); answer.result != ncclSuccess) return answer;
    auto listener = host.value()->transport().listen(dev, transport::Role::Net);
    if (!listener.ok()) return std::move(listener).status();
    auto comm = std::make_unique<ListenComm>(*host.value(), std::move(listener).value());
    std::memcpy(handle, comm->listener->handle().data(), transport::kHandleBytes);
    *listenComm = comm.release();
    return {};
  });
}

ncclResult_t listen(int dev, void* handle, void** listenComm) noexcept {
  return listen(nullptr, dev, handle, listenComm);
}

ncclResult_t connect(void* ctx, int dev, void* handle, void** sendComm, ncclNetDeviceHandle_t**) noexcept {
  return guard("connect", [&]() -> Answer {
    if (handle == nullptr || sendComm == nullptr)
      return Answer::badArgument("no handle or no place for the communicator");
    *sendComm = nullptr;
    auto host = Host::get();
    if (!host.ok()) return std::move(host).status();
    if (Answer answer = checkContext(*host.value(), ctx); answer.result != ncclSuccess) return answer;
    transport::Handle bytes;
    std::memcpy(bytes.data(), handle, bytes.size());
    auto link = host.value()->dialer().dial(contextOf(ctx), dev, bytes);
    if (!link.ok()) return std::move(link).status();
    *sendComm = new NetComm(*host.value(), NetComm::Side::Send, std::move(link).value());
    return {};
  });
}

ncclResult_t connect(int dev, void* handle, void** sendComm, ncclNetDeviceHandle_t** device) noexcept {
  return connect(nullptr, dev, handle, sendComm, device);
}
ncclResult_t connect(int dev, void* handle, void** sendComm) noexcept {
  return connect(nullptr, dev, handle, sendComm, nullptr);
}
ncclResult_t connect(int dev, ncclNetCommConfig_t*, void* handle, void** sendComm,
                     ncclNetDeviceHandle_t** device) noexcept {
  return connect(nullptr, dev, handle, sendComm, device);
}

ncclResult_t accept(void* listenComm, void** recvComm, ncclNetDeviceHandle_t**) noexcept {
  return guard("accept", [&]() -> Answer {
    if (listenComm == nullptr || recvComm == nullptr)
      return Answer::badArgument("no listener or no place for the communicator");
    *recvComm = nullptr;
    auto host = Host::get();
    if (!host.ok()) return std::move(host).status();
    auto link = static_cast<ListenComm*>(listenComm)->listener->accept();
    if (!link.ok()) return std::move(link).status();
    *recvComm = new NetComm(*host.value(), NetComm::Side::Recv, std::move(link).value());
    return {};
  });
}

ncclResult_t accept(void* listenComm, void** recvComm) noexcept { return accept(listenComm, recvComm, nullptr); }

ncclResult_t closeComm(const char* operation, void* comm, NetComm::Side side) noexcept {
  return guard(operation, [&]() -> Answer {
    if (comm == nullptr) return {};
    auto* net = static_cast<NetComm*>(comm);
    if (net->side() != side) return Answer::badArgument("the communicator is of the other kind");
    delete net;
    return {};
  });
}

ncclResult_t closeSend(void* sendComm) noexcept { return closeComm("closeSend", sendComm, NetComm::Side::Send); }
ncclResult_t closeRecv(void* recvComm) noexcept { return closeComm("closeRecv", recvComm, NetComm::Side::Recv); }

ncclResult_t closeListen(void* listenComm) noexcept {
  return guard("closeListen", [&]() -> Answer {
    std::unique_ptr<ListenComm> owned(static_cast<ListenComm*>(listenComm));
    if (owned == nullptr) return {};
    const transport::Handle handle = owned->listener->handle();
    owned.reset();
    auto host = Host::get();
    if (host.ok()) host.value()->dialer().listenerClosed(handle);
    return {};
  });
}

// ---- memory

template <class Size>
ncclResult_t regMr(void* comm, void* data, Size size, int type, void** mhandle) noexcept {
  return guard("regMr", [&]() -> Answer {
    if (comm == nullptr || mhandle == nullptr) return Answer::badArgument("no communicator or no place for the handle");
    *mhandle = nullptr;
    if (!validSize(size)) return Answer::badArgument("size " + std::to_string(size) + " is out of range");
    if (type != NCCL_PTR_HOST)
      return Answer::badArgument("memory of type " + std::to_string(type) + "; only host memory (1) is supported");
    *mhandle = static_cast<NetComm*>(comm)->registerMemory(
        {static_cast<const std::byte*>(data), static_cast<std::size_t>(size)});
    return {};
  });
}

ncclResult_t regMrDmaBuf(void*, void*, std::size_t, int, std::uint64_t, int, void** mhandle) noexcept {
  return guard("regMrDmaBuf", [&]() -> Answer {
    if (mhandle != nullptr) *mhandle = nullptr;
    return Status(Code::Unsupported, "DMA-BUF is not supported and not among the device's properties");
  });
}

ncclResult_t deregMr(void* comm, void* mhandle) noexcept {
  return guard("deregMr", [&]() -> Answer {
    if (mhandle == nullptr) return {};
    if (comm == nullptr || !static_cast<NetComm*>(comm)->deregisterMemory(mhandle))
      return Answer::badArgument("a memory handle that regMr of this communicator did not give");
    return {};
  });
}

// ---- messages

template <class Size>
ncclResult_t sendMessage(void* sendComm, void* data, Size size, int tag, void** request) noexcept {
  return guard("isend", [&]() -> Answer {
    if (request == nullptr) return Answer::badArgument("no place for the request");
    *request = nullptr;
    auto* comm = static_cast<NetComm*>(sendComm);
    if (comm == nullptr || comm->side() != NetComm::Side::Send) return Answer::badArgument("not a send communicator");
    if (!validSize(size) || (data == nullptr && size > 0))
      return Answer::badArgument("no data, or size " + std::to_string(size) + " is out of range");
    return comm->send({static_cast<const std::byte*>(data), static_cast<std::size_t>(size)}, tag, request);
  });
}

template <class Size>
ncclResult_t isend(void* sendComm, void* data, Size size, int tag, void*, void** request) noexcept {
  return sendMessage(sendComm, data, size, tag, request);
}
ncclResult_t isend(void* sendComm, void* data, std::size_t size, int tag, void*, void*, void** request) noexcept {
  return sendMessage(sendComm, data, size, tag, request);
}

template <class Size>
ncclResult_t receiveMessages(void* recvComm, int n, void** data, const Size* sizes, const int* tags,
                             void** request) noexcept {
  return guard("irecv", [&]() -> Answer {
    if (request == nullptr) return Answer::badArgument("no place for the request");
    *request = nullptr;  // it may hold a hint (v9-), that we do not need to wait for completion; we always do
    auto* comm = static_cast<NetComm*>(recvComm);
    if (comm == nullptr || comm->side() != NetComm::Side::Recv)
      return Answer::badArgument("not a receive communicator");
    if (n < 1 || n > transport::kMaxGroup || data == nullptr || sizes == nullptr || tags == nullptr)
      return Answer::badArgument("a group of " + std::to_string(n) + " receives, or one of its arrays is missing");
    std::array<transport::Slot, transport::kMaxGroup> slots;
    for (int i = 0; i < n; ++i) {
      if (!validSize(sizes[i]) || (data[i] == nullptr && sizes[i] > 0))
        return Answer::badArgument("no buffer, or size " + std::to_string(sizes[i]) + " is out of range");
      slots[static_cast<std::size_t>(i)] = {{static_cast<std::byte*>(data[i]), static_cast<std::size_t>(sizes[i])},
                                            tags[i]};
    }
    return comm->receive(std::span(slots.data(), static_cast<std::size_t>(n)), request);
  });
}

template <class Size>
ncclResult_t irecv(void* recvComm, int n, void** data, Size* sizes, int* tags, void**, void** request) noexcept {
  return receiveMessages(recvComm, n, data, sizes, tags, request);
}
ncclResult_t irecv(void* recvComm, int n, void** data, std::size_t* sizes, int* tags, void**, void**,
                   void** request) noexcept {
  return receiveMessages(recvComm, n, data, sizes, tags, request);
}

// Host memory is visible once a receive is done; NULL means that there is nothing to wait for.
ncclResult_t iflush(void*, int, void**, int*, void**, void** request) noexcept {
  if (request != nullptr) *request = nullptr;
  return ncclSuccess;
}

ncclResult_t test(void* request, int* done, int* sizes) noexcept {
  return guard("test", [&]() -> Answer {
    if (done == nullptr) return Answer::badArgument("no place for the answer");
    return NetComm::test(request, done, sizes);
  });
}

// Taking the address of an overloaded function picks by the slot's type: the same line is right for every version. What
// we do not offer (device offload, merged devices) stays NULL, as in NCCL's own socket net.
template <class Net>
constexpr Net makeNet() {
  Net net{};
  net.name = kPluginName;
  net.init = init;
  net.devices = devices;
  net.getProperties = getProperties;
  net.listen = listen;
  net.connect = connect;
  net.accept = accept;
  net.regMr = regMr;
  net.regMrDmaBuf = regMrDmaBuf;
  net.deregMr = deregMr;
  net.isend = isend;
  net.irecv = irecv;
  net.iflush = iflush;
  net.test = test;
  net.closeSend = closeSend;
  net.closeRecv = closeRecv;
  net.closeListen = closeListen;
  if constexpr (requires { net.finalize; }) net.finalize = finalize;
  if constexpr (requires { net.setNetAttr; }) net.setNetAttr = setNetAttr;
  return net;
}

}  // namespace
}  // namespace cgx::plugin::net

// One line a version. Without braces after extern "C": inside them const would mean internal linkage and the symbol
// would vanish.
#define CGX_EXPORT extern "C" [[gnu::visibility("default")]] constinit const
CGX_EXPORT ncclNet_v6_t ncclNetPlugin_v6 = cgx::plugin::net::makeNet<ncclNet_v6_t>();
CGX_EXPORT ncclNet_v7_t ncclNetPlugin_v7 = cgx::plugin::net::makeNet<ncclNet_v7_t>();
CGX_EXPORT ncclNet_v8_t ncclNetPlugin_v8 = cgx::plugin::net::makeNet<ncclNet_v8_t>();
CGX_EXPORT ncclNet_v9_t ncclNetPlugin_v9 = cgx::plugin::net::makeNet<ncclNet_v9_t>();
CGX_EXPORT ncclNet_v10_t ncclNetPlugin_v10 = cgx::plugin::net::makeNet<ncclNet_v10_t>();
CGX_EXPORT ncclNet_v11_t ncclNetPlugin_v11 = cgx::plugin::net::makeNet<ncclNet_v11_t>();
CGX_EXPORT ncclNet_v12_t ncclNetPlugin_v12 = cgx::plugin::net::makeNet<ncclNet_v12_t>();
