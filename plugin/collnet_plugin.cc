// NCCL's collnet calls, every historic signature once, and the tables v6 to v12 made from them. Translates and checks
// arguments; what the calls do is in src/collective.
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cgx/collective.h"
#include "plugin/boundary.h"
#include "plugin/coll_comm.h"
#include "plugin/collnet_api.h"
#include "plugin/host.h"

namespace cgx::plugin::coll {
namespace {

constexpr int kMaxParts = 64;  // of an all-gather's output; NCCL uses 1 today, one a local rank before

/// After a failed connect NCCL 2.30 forgets its listener without closing it; other versions close it. So the object
/// stays with the Host as an Orphan until closeListen, finalize or the end of the library; its descriptor does not.
struct ListenComm : Host::Orphan {
  ListenComm(Host& owner, std::uint64_t ctx, int dev, std::unique_ptr<transport::Listener> owned)
      : host(owner),
        live(std::in_place, owner),
        context(ctx),
        device(dev),
        ordinal(owner.nextOrdinal()),
        listener(std::move(owned)) {}
  Host& host;
  std::optional<Live> live;
  const std::uint64_t context;
  const int device;
  const std::uint64_t ordinal;
  std::unique_ptr<transport::Listener> listener;
  bool orphan = false;
};

// What regMr gives out for nothing at all; NCCL deregisters only handles that are not NULL.
int registered;

std::uint64_t contextOf(void* ctx) { return reinterpret_cast<std::uintptr_t>(ctx); }

std::optional<codec::DType> dtypeOf(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return codec::DType::F32;
    case ncclFloat16:
      return codec::DType::F16;
    case ncclBfloat16:
      return codec::DType::BF16;
    case ncclInt8:
    case ncclUint8:
    case ncclInt32:
    case ncclUint32:
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
    case ncclNumTypes:
      break;
  }
  return std::nullopt;
}

Answer unsupported(ncclDataType_t type, ncclRedOp_t op) {
  return Status::invalid("data type " + std::to_string(type) + " with operation " + std::to_string(op) +
                         " is none that reduceSupport offers");
}

// ---- init, finalize

// Loaded without being asked for (as libnccl-net.so) we carry net traffic only: no collnet, and no noise about it.
Answer attach(ncclDebugLogger_t log, Caller caller, Host** out) {
  auto host = Host::attach(log, caller);
  if (!host.ok()) return std::move(host).status();
  if (!host.value()->named()) {
    CGX_LOG(Info, Init, "collnet stays off: NCCL_NET_PLUGIN does not name this library");
    return Answer(Status(Code::Unsupported, "not named")).repeated();
  }
  *out = host.value();
  return {};
}

ncclResult_t init(ncclDebugLogger_t log) noexcept {
  return guard("collnet init", [&]() -> Answer {
    Host* host = nullptr;
    return attach(log, Caller::Unclear, &host);
  });
}

ncclResult_t init(void** ctx, std::uint64_t commId, ncclDebugLogger_t log) noexcept {
  return guard("collnet init", [&]() -> Answer {
    if (ctx == nullptr) return Answer::badArgument("no place for the context");
    Host* host = nullptr;
    if (Answer answer = attach(log, Caller::FromV11, &host); host == nullptr) return answer;
    *ctx = reinterpret_cast<void*>(host->openContext(Half::Collnet, commId));
    return {};
  });
}

ncclResult_t finalize(void* ctx) noexcept {
  return guard("collnet finalize", [&]() -> Answer {
    auto host = Host::get();
    if (!host.ok()) return std::move(host).status();
    if (!host.value()->closeContext(Half::Collnet, contextOf(ctx)))
      return Answer::badArgument("the context is not, or no longer, open");
    return {};
  });
}

// ---- devices

ncclResult_t devices(int* count) noexcept {
  return guard("collnet devices", [&]() -> Answer {
    if (count == nullptr) return Answer::badArgument("no place for the count");
    auto host = Host::get();
    if (!host.ok()) return std::move(host).status();
    *count = static_cast<int>(host.value()->transport().devices().size());
    return {};
  });
}

template <class Props>
ncclResult_t getProperties(int dev, Props* props) noexcept {
  return guard("collnet getProperties", [&]() -> Answer {
    if (props == nullptr) return Answer::badArgument("no place for the properties");
    auto host = Host::get();
    if (!host.ok()) return std::move(host).status();
    return host.value()->fillProperties(dev, props);
  });
}

// A pure table: NCCL asks some ranks only and the answers must agree.
ncclResult_t reduceSupport(ncclDataType_t type, ncclRedOp_t op, int* supported) noexcept {
  return guard("reduceSupport", [&]() -> Answer {
    if (supported == nullptr) return Answer::badArgument("no place for the answer");
    *supported = dtypeOf(type).has_value() && op == ncclSum ? 1 : 0;
    return {};
  });
}

// ---- connections

ncclResult_t listen(void* ctx, int dev, void* handle, void** listenComm) noexcept {
  return guard("collnet listen", [&]() -> Answer {
    if (handle == nullptr || listenComm == nullptr)
      return Answer::badArgument("no place for the handle or the listener");
    *listenComm = nullptr;
    auto host = Host::get();
    if (!host.ok()) return std::move(host).status();
    if (ctx != nullptr && !host.value()->hasContext(Half::Collnet, contextOf(ctx)))
      return Answer::badArgument("the context is not, or no longer, open");
    auto listener = host.value()->transport().listen(dev, transport::Role::Collective);
    if (!listener.ok()) return std::move(listener).status();
    auto comm = std::make_unique<ListenComm>(*host.value(), contextOf(ctx), dev, std::move(listener).value());
    std::memcpy(handle, comm->listener->handle().data(), transport::kHandleBytes);
    *listenComm = comm.release();
    return {};
  });
}

ncclResult_t listen(int dev, void* handle, void** listenComm) noexcept {
  return listen(nullptr, dev, handle, listenComm);
}

ncclResult_t connect(void* handles[], int nranks, int rank, void* listenComm, void** collComm) noexcept {
  return guard("collnet connect", [&]() -> Answer {
    auto* comm = static_cast<ListenComm*>(listenComm);
    if (comm == nullptr || comm->orphan || collComm == nullptr || handles == nullptr)
      return Answer::badArgument("no listener, no handles or no place for the communicator");
    *collComm = nullptr;
    if (nranks < 1 || rank < 0 || rank >= nranks)
      return Answer::badArgument("rank " + std::to_string(rank) + " of " + std::to_string(nranks));
    Host& host = comm->host;
    std::vector<transport::Handle> copies(static_cast<std::size_t>(nranks));
    for (std::size_t i = 0; i < copies.size(); ++i)
      if (handles[i] != nullptr) std::memcpy(copies[i].data(), handles[i], copies[i].size());
    collective::ConnectSpec spec = connectSpec(host, rank, copies);
    spec.listener = comm->listener.get();
    spec.device = comm->device;
    spec.ordinal = comm->ordinal;
    auto made = collective::connect(spec);
    if (made.ok()) {
      *collComm = new CollComm(host, std::move(made).value(), rank, nranks,
                               spec.exact ? codec::kExactBits : spec.settings.bits);
      return {};
    }
    comm->listener.reset();
    comm->live.reset();
    comm->orphan = true;
    host.adopt(comm->context, std::unique_ptr<Host::Orphan>(comm));
    Answer answer(std::move(made).status());
    if (host.settings().mode != Mode::Off) return answer;
    CGX_LOG(Info, Init, "collnet stays off: CGX_MODE=off");
    return std::move(answer).repeated();
  });
}

ncclResult_t closeListen(void* listenComm) noexcept {
  return guard("collnet closeListen", [&]() -> Answer {
    auto* comm = static_cast<ListenComm*>(listenComm);
    if (comm == nullptr) return {};
    if (comm->orphan)
      comm->host.release(comm);
    else
      delete comm;
    return {};
  });
}

ncclResult_t closeColl(void* collComm) noexcept {
  return guard("closeColl", [&]() -> Answer {
    delete static_cast<CollComm*>(collComm);
    return {};
  });
}

// ---- memory

template <class Size>
ncclResult_t regMr(void* collComm, void* data, Size size, int type, void** mhandle) noexcept {
  return guard("collnet regMr", [&]() -> Answer {
    if (collComm == nullptr || mhandle == nullptr)
      return Answer::badArgument("no communicator or no place for the handle");
    *mhandle = nullptr;
    if constexpr (std::is_signed_v<Size>)
      if (size < 0) return Answer::badArgument("size " + std::to_string(size) + " is negative");
    if (type != NCCL_PTR_HOST)
      return Answer::badArgument("memory of type " + std::to_string(type) + "; only host memory (1) is supported");
    if (data == nullptr || size == 0) {
      *mhandle = &registered;
      return {};
    }
    return static_cast<CollComm*>(collComm)->communicator().registerMemory(data, static_cast<std::size_t>(size),
                                                                           mhandle);
  });
}

ncclResult_t regMrDmaBuf(void*, void*, std::size_t, int, std::uint64_t, int, void** mhandle) noexcept {
  return guard("collnet regMrDmaBuf", [&]() -> Answer {
    if (mhandle != nullptr) *mhandle = nullptr;
    return Status(Code::Unsupported, "DMA-BUF is not supported and not among the device's properties");
  });
}

ncclResult_t deregMr(void* collComm, void* mhandle) noexcept {
  return guard("collnet deregMr", [&]() -> Answer {
    if (mhandle == nullptr || mhandle == &registered) return {};
    if (collComm == nullptr) return Answer::badArgument("no communicator");
    return static_cast<CollComm*>(collComm)->communicator().deregisterMemory(mhandle);
  });
}

// ---- operations

template <class Count>
ncclResult_t iallreduce(void* collComm, void* sendData, void* recvData, Count count, ncclDataType_t type,
                        ncclRedOp_t op, void*, void*, void** request) noexcept {
  return guard("iallreduce", [&]() -> Answer {
    if (collComm == nullptr || request == nullptr)
      return Answer::badArgument("no communicator or no place for the request");
    *request = nullptr;
    const auto dtype = dtypeOf(type);
    if (!dtype || op != ncclSum) return unsupported(type, op);
    const std::size_t elements = static_cast<std::size_t>(count);  // a negative count becomes one that is too large
    if (elements > collective::kMaxOperationBytes / codec::bytesOf(*dtype) ||
        (elements > 0 && (sendData == nullptr || recvData == nullptr)))
      return Answer::badArgument("no buffer, or count " + std::to_string(count) + " is out of range");
    auto& comm = *static_cast<CollComm*>(collComm);
    return comm.post(
        [&](collective::Request** inner) {
          return comm.communicator().allReduce(sendData, recvData, elements, *dtype, inner);
        },
        request);
  });
}

struct Parts {
  std::array<collective::Part, kMaxParts> all;
  std::size_t count = 0;
  std::span<const collective::Part> span() const { return {all.data(), count}; }
};

/// False: too many, or a part without memory.
template <class Sge>
bool copyParts(int n, const Sge* from, Parts& to) {
  if (n < 0 || n > kMaxParts || (n > 0 && from == nullptr)) return false;
  to.count = static_cast<std::size_t>(n);
  for (std::size_t i = 0; i < to.count; ++i) {
    if (from[i].address == nullptr && from[i].size > 0) return false;
    to.all[i] = {static_cast<std::byte*>(from[i].address), from[i].size};
  }
  return true;
}

template <class Sge>
ncclResult_t iallgather(void* collComm, void* sendData, int n, Sge* recvParts, std::size_t bytesPerRank,
                        std::size_t windowOffset, std::size_t windowBytes, void*, void** request) noexcept {
  return guard("iallgather", [&]() -> Answer {
    if (collComm == nullptr || request == nullptr)
      return Answer::badArgument("no communicator or no place for the request");
    *request = nullptr;
    Parts parts;
    if (!copyParts(n, recvParts, parts))
      return Answer::badArgument("parts without memory, or " + std::to_string(n) + " parts");
    auto& comm = *static_cast<CollComm*>(collComm);
    return comm.post(
        [&](collective::Request** inner) {
          return comm.communicator().allGather(sendData, parts.span(), bytesPerRank, windowOffset, windowBytes, inner);
        },
        request);
  });
}

template <class Sge>
ncclResult_t ireducescatter(void* collComm, int n, Sge* sendParts, void* recvData, std::size_t bytesPerRank,
                            std::size_t windowOffset, std::size_t windowBytes, ncclDataType_t type, ncclRedOp_t op,
                            void*, void** request) noexcept {
  return guard("ireducescatter", [&]() -> Answer {
    if (collComm == nullptr || request == nullptr)
      return Answer::badArgument("no communicator or no place for the request");
    *request = nullptr;
    const auto dtype = dtypeOf(type);
    if (!dtype || op != ncclSum) return unsupported(type, op);
    Parts parts;
    if (!copyParts(n, sendParts, parts))
      return Answer::badArgument("parts without memory, or " + std::to_string(n) + " parts");
    auto& comm = *static_cast<CollComm*>(collComm);
    return comm.post(
        [&](collective::Request** inner) {
          return comm.communicator().reduceScatter(parts.span(), recvData, bytesPerRank, windowOffset, windowBytes,
                                                   *dtype, inner);
        },
        request);
  });
}

// Host memory is visible once an operation is done; NULL means that there is nothing to wait for.
ncclResult_t iflush(void*, void*, int, void*, void** request) noexcept {
  if (request != nullptr) *request = nullptr;
  return ncclSuccess;
}

ncclResult_t test(void* request, int* done, int* bytes) noexcept {
  return guard("collnet test", [&]() -> Answer {
    if (done == nullptr) return Answer::badArgument("no place for the answer");
    return CollComm::test(request, done, bytes);
  });
}

// See makeNet. All-gather and reduce-scatter are filled wherever the slot exists: NCCL's adapters for v8 to v11 call
// them unasked.
template <class Coll>
constexpr Coll makeColl() {
  Coll coll{};
  coll.name = kPluginName;
  coll.init = init;
  coll.devices = devices;
  coll.getProperties = getProperties;
  coll.listen = listen;
  coll.connect = connect;
  coll.reduceSupport = reduceSupport;
  coll.regMr = regMr;
  coll.regMrDmaBuf = regMrDmaBuf;
  coll.deregMr = deregMr;
  coll.iallreduce = iallreduce;
  if constexpr (requires { coll.iallgather; }) {
    coll.iallgather = iallgather;
    coll.ireducescatter = ireducescatter;
  }
  coll.iflush = iflush;
  coll.test = test;
  coll.closeColl = closeColl;
  coll.closeListen = closeListen;
  if constexpr (requires { coll.finalize; }) coll.finalize = finalize;
  return coll;
}

}  // namespace
}  // namespace cgx::plugin::coll

// One line a version; see net_plugin.cc for the form.
#define CGX_EXPORT extern "C" [[gnu::visibility("default")]] constinit const
CGX_EXPORT ncclCollNet_v6_t ncclCollNetPlugin_v6 = cgx::plugin::coll::makeColl<ncclCollNet_v6_t>();
CGX_EXPORT ncclCollNet_v7_t ncclCollNetPlugin_v7 = cgx::plugin::coll::makeColl<ncclCollNet_v7_t>();
CGX_EXPORT ncclCollNet_v8_t ncclCollNetPlugin_v8 = cgx::plugin::coll::makeColl<ncclCollNet_v8_t>();
CGX_EXPORT ncclCollNet_v9_t ncclCollNetPlugin_v9 = cgx::plugin::coll::makeColl<ncclCollNet_v9_t>();
CGX_EXPORT ncclCollNet_v10_t ncclCollNetPlugin_v10 = cgx::plugin::coll::makeColl<ncclCollNet_v10_t>();
CGX_EXPORT ncclCollNet_v11_t ncclCollNetPlugin_v11 = cgx::plugin::coll::makeColl<ncclCollNet_v11_t>();
CGX_EXPORT ncclCollNet_v12_t ncclCollNetPlugin_v12 = cgx::plugin::coll::makeColl<ncclCollNet_v12_t>();
