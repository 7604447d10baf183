// The collnet half of the reference plugin: every rank sends what it gave to every other, each adds in rank order. The
// calls themselves move the mesh forward.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "broken/reference.h"
#include "broken/reference_mesh.h"
#include "plugin/collnet_api.h"
#include "support/nccl_host/numbers.h"

namespace cgx::broken {
namespace {

std::size_t requestLimit() { return is(Defect::TooFewRequests) ? 2 : 32; }
constexpr std::size_t kBucket = 512;

// ---- connecting

ncclResult_t connect(void* handles[], int ranks, int rank, void* listenComm, void** collComm) {
  auto* listener = static_cast<Listener*>(listenComm);
  *collComm = nullptr;
  if (is(Defect::ConnectNeverCompletes) && rank == 0) usleep(3600u * 1000 * 1000);
  auto* comm = new Comm;
  comm->rank = rank;
  comm->ranks = ranks;
  comm->peers.resize(static_cast<std::size_t>(ranks));
  bool good = meet(*comm, handles, *listener, Clock::now() + std::chrono::milliseconds(1500));
  if (is(Defect::ConnectNotUnanimous) && rank == ranks - 1) good = false;
  if (!good) {
    destroy(comm);
    close(listener->fd);  // NCCL will not call closeListen
    delete listener;
    return ncclRemoteError;
  }
  *collComm = comm;
  return ncclSuccess;
}

// ---- numbers

bool lossy() {
  return is(Defect::Quantises) || is(Defect::DegradesDataNextToPadding) || is(Defect::RanksDifferInRounding);
}

/// 8 bits over the largest magnitude of each 512 elements.
void quantise(ncclDataType_t dtype, std::vector<std::byte>& data) {
  const std::size_t count = data.size() / host::bytesOf(dtype);
  for (std::size_t begin = 0; begin < count; begin += kBucket) {
    const std::size_t end = std::min(count, begin + kBucket);
    double largest = 0;
    bool finite = true;
    for (std::size_t i = begin; i < end; ++i) {
      const double x = std::fabs(host::load(dtype, data.data(), i));
      finite = finite && std::isfinite(x);
      largest = std::max(largest, x);
    }
    if (!finite || largest == 0) continue;
    for (std::size_t i = begin; i < end; ++i) {
      const double x = host::load(dtype, data.data(), i);
      host::store(dtype, data.data(), i, static_cast<float>(std::nearbyint(x / largest * 127) / 127 * largest));
    }
  }
}

void sumInRankOrder(Operation& op, std::size_t skip, std::size_t count, std::byte* out) {
  for (std::size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (std::size_t r = 0; r < op.theirs.size(); ++r) {
      const auto x = static_cast<float>(host::load(op.dtype, op.theirs[r].data(), skip + i));
      sum = r == 0 ? x : sum + x;
    }
    host::store(op.dtype, out, i, sum);
  }
}

void combineAllReduce(Operation& op) {
  sumInRankOrder(op, 0, op.count, op.out);
  const std::size_t bytes = op.count * host::bytesOf(op.dtype);
  if (is(Defect::WrongSum) && op.count > 2000) host::store(op.dtype, op.out, 5, 1234.0F);
  if (is(Defect::RanksDifferInOneBit) && op.comm->rank == 1 && bytes > 0) op.out[0] ^= std::byte{1};
  if (is(Defect::WritesOutsideBuffer)) op.out[bytes] = std::byte{0};
}

void combineGather(Operation& op) {
  for (std::size_t r = 0; r < op.theirs.size(); ++r) {
    const std::size_t begin = std::max(op.windowOffset, r * op.perRank);
    if (!op.theirs[r].empty())
      std::memcpy(op.out + (begin - op.windowOffset), op.theirs[r].data(), op.theirs[r].size());
  }
}

void combineScatter(Operation& op) {
  const auto rank = static_cast<std::size_t>(op.comm->rank);
  const std::size_t begin = std::max(op.windowOffset, rank * op.perRank);
  const std::size_t end = std::min(op.windowOffset + op.windowBytes, (rank + 1) * op.perRank);
  if (end <= begin) return;
  const std::size_t width = host::bytesOf(op.dtype);
  sumInRankOrder(op, (begin - op.windowOffset) / width, (end - begin) / width, op.out);
}

// ---- calls

Operation* post(Comm& comm, const void* data, std::size_t bytes, void** request) {
  *request = nullptr;
  if (comm.lost || comm.operations.size() >= requestLimit()) return nullptr;
  auto op = std::make_unique<Operation>();
  const auto n = static_cast<std::size_t>(comm.ranks);
  op->comm = &comm;
  op->sequence = comm.next++;
  const auto* first = static_cast<const std::byte*>(data);
  op->mine.assign(first, first + bytes);
  op->theirs.resize(n);
  op->arrived.resize(n);
  op->headerSent.resize(n);
  op->dataSent.resize(n);
  *request = op.get();
  comm.operations.push_back(std::move(op));
  return comm.operations.back().get();
}

template <class Size>
ncclResult_t iallreduce(void* opaque, void* send, void* recv, Size count, ncclDataType_t dtype, ncclRedOp_t, void*,
                        void*, void** request) {
  auto& comm = *static_cast<Comm*>(opaque);
  if (is(Defect::RankCrashed) && comm.rank == 1 && comm.next == 2) __builtin_trap();
  const std::size_t bytes = static_cast<std::size_t>(count) * host::bytesOf(dtype);
  Operation* op = post(comm, send, bytes, request);
  if (!op) return comm.lost ? ncclRemoteError : ncclSuccess;
  op->count = static_cast<std::size_t>(count);
  op->dtype = dtype;
  op->out = static_cast<std::byte*>(recv);
  op->reported = bytes;
  op->combine = combineAllReduce;
  auto& own = op->theirs[static_cast<std::size_t>(comm.rank)];
  own = op->mine;
  if (is(Defect::NotReproducible) && comm.rank == 0 && bytes > 0) {
    own[0] = static_cast<std::byte>(Clock::now().time_since_epoch().count());
    op->mine = own;
  }
  if (lossy()) quantise(dtype, op->mine);
  if (!is(Defect::RanksDifferInRounding) || comm.rank != 1) own = op->mine;
  auto* sent = static_cast<std::byte*>(send);
  const bool inStaging = sent >= comm.staging && sent < comm.staging + comm.stagingBytes;
  if (is(Defect::Quantises) && inStaging) std::memset(send, 0, bytes);
  if (is(Defect::WritesUserSendBuffer) && !inStaging && bytes > 0) *sent = std::byte{1};
  progress(comm);
  return ncclSuccess;
}

template <class Piece>
ncclResult_t iallgather(void* opaque, void* send, int, Piece* parts, std::size_t perRank, std::size_t windowOffset,
                        std::size_t windowBytes, void*, void** request) {
  auto& comm = *static_cast<Comm*>(opaque);
  const std::size_t mine = perRank * static_cast<std::size_t>(comm.rank);
  const std::size_t begin = std::max(windowOffset, mine);
  const std::size_t end = std::min(windowOffset + windowBytes, mine + perRank);
  Operation* op = post(comm, send, end > begin ? end - begin : 0, request);
  if (!op) return comm.lost ? ncclRemoteError : ncclSuccess;
  op->theirs[static_cast<std::size_t>(comm.rank)] = op->mine;
  op->perRank = perRank;
  op->windowOffset = windowOffset;
  op->windowBytes = windowBytes;
  op->out = static_cast<std::byte*>(parts[0].address);
  op->reported = windowBytes;
  op->combine = combineGather;
  return ncclSuccess;
}

template <class Piece>
ncclResult_t ireducescatter(void* opaque, int, Piece* parts, void* recv, std::size_t perRank, std::size_t windowOffset,
                            std::size_t windowBytes, ncclDataType_t dtype, ncclRedOp_t, void*, void** request) {
  auto& comm = *static_cast<Comm*>(opaque);
  Operation* op = post(comm, parts[0].address, windowBytes, request);
  if (!op) return comm.lost ? ncclRemoteError : ncclSuccess;
  op->theirs[static_cast<std::size_t>(comm.rank)] = op->mine;
  op->dtype = dtype;
  op->perRank = perRank;
  op->windowOffset = windowOffset;
  op->windowBytes = windowBytes;
  op->out = static_cast<std::byte*>(recv);
  op->reported = windowBytes;
  op->combine = combineScatter;
  return ncclSuccess;
}

ncclResult_t test(void* opaque, int* done, int* size) {
  auto* op = static_cast<Operation*>(opaque);
  Comm& comm = *op->comm;
  sleepIfBlocking();
  *done = 0;
  progress(comm);
  if (!complete(*op)) return comm.lost ? ncclRemoteError : ncclSuccess;
  op->combine(*op);
  if (size) *size = static_cast<int>(op->reported) + (is(Defect::WrongTestSize) ? 4 : 0);
  *done = 1;
  std::erase_if(comm.operations, [op](const auto& o) { return o.get() == op; });
  return ncclSuccess;
}

ncclResult_t devices(int* count) {
  *count = 1;
  return ncclSuccess;
}
template <class Props>
ncclResult_t getProperties(int dev, Props* out) {
  return fillProps(dev, out);
}
ncclResult_t init(ncclDebugLogger_t) {
  leakSomething();
  return ncclSuccess;
}
ncclResult_t init(void** ctx, std::uint64_t, ncclDebugLogger_t log) {
  *ctx = ctx;
  return init(log);
}
ncclResult_t listen(int, void* handle, void** listenComm) { return listenOnLoopback(handle, listenComm); }
ncclResult_t listen(void*, int, void* handle, void** listenComm) { return listenOnLoopback(handle, listenComm); }
ncclResult_t reduceSupport(ncclDataType_t dtype, ncclRedOp_t op, int* supported) {
  *supported = op == ncclSum && (dtype == ncclFloat32 || dtype == ncclFloat16 || dtype == ncclBfloat16);
  if (is(Defect::ReduceSupportDiffers) && getenv("REFERENCE_DIFFERS") && dtype == ncclInt8) *supported = 1;
  return ncclSuccess;
}
template <class Size>
ncclResult_t regMr(void* opaque, void* data, Size size, int, void** mhandle) {
  auto& comm = *static_cast<Comm*>(opaque);
  if (!comm.staging && comm.previousRegistration == data) {
    comm.staging = static_cast<std::byte*>(data);
    comm.stagingBytes = static_cast<std::size_t>(size);
    if (is(Defect::Quantises)) std::memset(data, 0, static_cast<std::size_t>(size));
  }
  comm.previousRegistration = data;
  *mhandle = opaque;
  return ncclSuccess;
}
ncclResult_t regMrDmaBuf(void*, void*, std::size_t, int, std::uint64_t, int, void**) { return ncclInternalError; }
ncclResult_t deregMr(void*, void*) { return ncclSuccess; }
ncclResult_t iflush(void*, void*, int, void*, void** request) {
  *request = nullptr;
  return ncclSuccess;
}
ncclResult_t closeColl(void* opaque) {
  auto* comm = static_cast<Comm*>(opaque);
  sleepIfCloseBlocks();
  if (is(Defect::TouchesStagingAfterDereg) && comm->staging) comm->staging[100] = std::byte{1};
  destroy(comm);
  return ncclSuccess;
}
ncclResult_t closeListen(void* listenComm) {
  auto* listener = static_cast<Listener*>(listenComm);
  close(listener->fd);
  delete listener;
  return ncclSuccess;
}
ncclResult_t finalize(void*) { return ncclSuccess; }

template <class CollNet>
CollNet makeCollNet() {
  CollNet coll{};
  coll.name = "reference";
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
  coll.iflush = iflush;
  coll.test = test;
  coll.closeColl = closeColl;
  coll.closeListen = closeListen;
  if constexpr (requires { coll.iallgather; }) {
    coll.iallgather = iallgather;
    coll.ireducescatter = ireducescatter;
  }
  if constexpr (requires { coll.finalize; }) coll.finalize = finalize;
  return coll;
}

}  // namespace
}  // namespace cgx::broken

using cgx::broken::makeCollNet;
extern "C" CGX_REFERENCE_EXPORT const ncclCollNet_v6_t ncclCollNetPlugin_v6 = makeCollNet<ncclCollNet_v6_t>();
extern "C" CGX_REFERENCE_EXPORT const ncclCollNet_v7_t ncclCollNetPlugin_v7 = makeCollNet<ncclCollNet_v7_t>();
extern "C" CGX_REFERENCE_EXPORT const ncclCollNet_v8_t ncclCollNetPlugin_v8 = makeCollNet<ncclCollNet_v8_t>();
extern "C" CGX_REFERENCE_EXPORT const ncclCollNet_v9_t ncclCollNetPlugin_v9 = makeCollNet<ncclCollNet_v9_t>();
extern "C" CGX_REFERENCE_EXPORT const ncclCollNet_v10_t ncclCollNetPlugin_v10 = makeCollNet<ncclCollNet_v10_t>();
extern "C" CGX_REFERENCE_EXPORT const ncclCollNet_v11_t ncclCollNetPlugin_v11 = makeCollNet<ncclCollNet_v11_t>();
extern "C" CGX_REFERENCE_EXPORT const ncclCollNet_v12_t ncclCollNetPlugin_v12 = makeCollNet<ncclCollNet_v12_t>();
