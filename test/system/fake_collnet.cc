// A collnet plugin (v12 only) for the tool's own tests: exact all-reduces through a file in shared memory, and the
// defects that `cgx perf` must report, chosen by FAKE_COLLNET. Knows no compression and no network.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <string>

#include "cgx/observe.h"
#include "plugin/collnet_api.h"
#include "plugin/net_api.h"
#include "tools/numbers.h"

namespace {

using cgx::codec::DType;
constexpr std::size_t kSlotBytes = 16 << 20;

struct Shared {
  std::atomic<std::uint64_t> written;  // ranks, over all operations, whose input is in its slot
  std::atomic<std::uint64_t> read;     // ranks, over all operations, that have their sum
};

struct Comm {
  Shared* shared = nullptr;
  std::string name;
  std::size_t mapped = 0;
  int rank = 0;
  std::uint64_t ranks = 1;
  std::uint64_t operation = 0;
  CgxCounters counters{};
  // the operation in flight
  bool busy = false;
  bool copied = false;
  const void* send = nullptr;
  std::byte* recv = nullptr;
  std::size_t count = 0;
  DType dtype = DType::F32;

  std::byte* slot(std::uint64_t of) const { return reinterpret_cast<std::byte*>(shared) + 4096 + of * kSlotBytes; }
  std::size_t bytes() const { return count * cgx::codec::bytesOf(dtype); }
};

bool defect(const char* name) {
  const char* chosen = std::getenv("FAKE_COLLNET");
  return chosen != nullptr && std::strcmp(chosen, name) == 0;
}

ncclResult_t netInit(void**, std::uint64_t, ncclNetCommConfig_t*, ncclDebugLogger_t, ncclProfilerCallback_t) {
  return ncclSuccess;
}
ncclResult_t collInit(void**, std::uint64_t, ncclDebugLogger_t) { return ncclSuccess; }
ncclResult_t finalize(void*) { return ncclSuccess; }

ncclResult_t devices(int* count) {
  *count = 1;
  return ncclSuccess;
}

ncclResult_t getProperties(int, ncclNetProperties_v12_t* properties) {
  static char name[] = "fake0";
  *properties = {};
  properties->name = name;
  return ncclSuccess;
}

ncclResult_t listen(void*, int, void* handle, void** listenComm) {
  std::random_device random;
  const std::string name = "/cgx-fake-" + std::to_string(random()) + "-" + std::to_string(random());
  std::memcpy(handle, name.c_str(), name.size() + 1);
  *listenComm = new int(0);
  return ncclSuccess;
}

ncclResult_t closeListen(void* listenComm) {
  delete static_cast<int*>(listenComm);
  return ncclSuccess;
}

ncclResult_t connect(void* handles[], int nranks, int rank, void*, void** collComm) {
  if (defect("refuse")) return ncclSystemError;
  Comm* comm = new Comm;
  comm->rank = rank;
  comm->ranks = static_cast<std::uint64_t>(nranks);
  comm->name = static_cast<const char*>(handles[0]);  // rank 0's handle names the file
  comm->mapped = 4096 + comm->ranks * kSlotBytes;
  const int fd = ::shm_open(comm->name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(comm->mapped)) != 0) return ncclSystemError;
  void* memory = ::mmap(nullptr, comm->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (memory == MAP_FAILED) return ncclSystemError;
  comm->shared = static_cast<Shared*>(memory);  // a new file is all zeros, which is what the counters start from
  *collComm = comm;
  return ncclSuccess;
}

ncclResult_t closeColl(void* collComm) {
  Comm* comm = static_cast<Comm*>(collComm);
  ::shm_unlink(comm->name.c_str());
  ::munmap(comm->shared, comm->mapped);
  delete comm;
  return ncclSuccess;
}

ncclResult_t regMr(void*, void* data, std::size_t, int, void** mhandle) {
  *mhandle = data;
  return ncclSuccess;
}
ncclResult_t deregMr(void*, void*) { return ncclSuccess; }

ncclResult_t iallreduce(void* collComm, void* send, void* recv, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                        void*, void*, void** request) {
  Comm* comm = static_cast<Comm*>(collComm);
  *request = nullptr;
  if (defect("die") && comm->rank == 2 && comm->operation == 3) std::abort();
  if (defect("vanish") && comm->rank == 2 && comm->operation == 3) ::_exit(0);
  if (defect("error") && comm->rank == 1 && comm->operation == 3) return ncclRemoteError;
  if (comm->shared->read.load() < comm->ranks * comm->operation)
    return ncclSuccess;  // slots are still being read: ask again
  comm->send = send;
  comm->recv = static_cast<std::byte*>(recv);
  comm->count = count;
  comm->dtype = type == ncclFloat32 ? DType::F32 : type == ncclFloat16 ? DType::F16 : DType::BF16;
  if (comm->bytes() > kSlotBytes) return ncclInvalidUsage;
  std::memcpy(comm->slot(static_cast<std::uint64_t>(comm->rank)), send, comm->bytes());
  comm->shared->written.fetch_add(1);
  ++comm->operation;
  *request = comm;
  return ncclSuccess;
}

void sum(Comm* comm) {
  for (std::size_t i = 0; i < comm->count; ++i) {
    float value = cgx::tool::elementToFloat(comm->dtype, comm->slot(0), i);
    for (std::uint64_t rank = 1; rank < comm->ranks; ++rank)
      value += cgx::tool::elementToFloat(comm->dtype, comm->slot(rank), i);
    if (defect("wrong") && i == 17) value += 1e9F;
    cgx::tool::floatToElement(comm->dtype, value, comm->recv, i);
  }
  if (defect("differ") && comm->rank == 1) comm->recv[0] ^= std::byte{1};
}

ncclResult_t test(void* request, int* done, int* size) {
  Comm* comm = static_cast<Comm*>(request);
  *done = 0;
  if (comm->shared->written.load() < comm->ranks * comm->operation) return ncclSuccess;
  sum(comm);
  comm->shared->read.fetch_add(1);
  *done = 1;
  *size = static_cast<int>(comm->bytes()) - (defect("short") ? 4 : 0);
  // Pretends to compress by four unless it is to be exact; rank 1 is the busiest.
  const char* bits = std::getenv("CGX_BITS");
  const bool exact = bits != nullptr && std::strcmp(bits, "32") == 0;
  comm->counters.wireBytes += (exact ? comm->bytes() : comm->bytes() / 4) + (comm->rank == 1 ? 64 : 0);
  ++comm->counters.operations;
  return ncclSuccess;
}

constexpr ncclCollNet_v12_t makeCollNet() {
  ncclCollNet_v12_t table{};
  table.name = "fake";
  table.init = collInit;
  table.devices = devices;
  table.getProperties = getProperties;
  table.listen = listen;
  table.connect = connect;
  table.regMr = regMr;
  table.deregMr = deregMr;
  table.iallreduce = iallreduce;
  table.test = test;
  table.closeColl = closeColl;
  table.closeListen = closeListen;
  table.finalize = finalize;
  return table;
}

constexpr ncclNet_v12_t makeNet() {
  ncclNet_v12_t table{};
  table.name = "fake";
  table.init = netInit;
  table.devices = devices;
  table.getProperties = getProperties;
  table.finalize = finalize;
  return table;
}

}  // namespace

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))
FAKE_EXPORT const ncclCollNet_v12_t ncclCollNetPlugin_v12;
FAKE_EXPORT const ncclNet_v12_t ncclNetPlugin_v12;
const ncclCollNet_v12_t ncclCollNetPlugin_v12 = makeCollNet();
const ncclNet_v12_t ncclNetPlugin_v12 = makeNet();

FAKE_EXPORT int cgxCounters(void* collComm, CgxCounters* out) {
  *out = static_cast<Comm*>(collComm)->counters;
  return 0;
}
