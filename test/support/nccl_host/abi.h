// A plugin's tables behind one interface without versions: what NCCL's own adapters make of v6 .. v12.
// Knows signatures only; who calls what and when is in net_peer.h and coll_comm.h.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "plugin/nccl_types.h"

namespace cgx::host {

inline constexpr int kOldestAbi = 6;
inline constexpr int kNewestAbi = 12;

/// Device properties of any version; what a version lacks has the value that NCCL assumes for it.
struct DeviceProps {
  std::string name;
  std::string pciPath;  // empty: nullptr
  std::uint64_t guid = 0;
  int ptrSupport = 0;
  int regIsGlobal = 0;
  int forceFlush = 0;
  int speedMbps = 0;
  int port = 0;
  float latencyUs = 0;
  int maxComms = 0;
  int maxRecvs = 0;
  int netDeviceType = 0;
  int virtualDevices = 1;
  std::size_t maxP2pBytes = 0;
  std::size_t maxCollBytes = 0;
};

/// A piece of an all-gather's output or a reduce-scatter's input.
struct Piece {
  void* mhandle = nullptr;
  void* address = nullptr;
  std::size_t size = 0;
};

/// Calls go straight to the plugin's functions. Before v11 init runs once a process and finalize is no call, as in
/// NCCL.
class NetAbi {
 public:
  virtual ~NetAbi() = default;
  virtual int version() const = 0;
  virtual const char* name() const = 0;
  virtual std::string missing() const = 0;  // functions NCCL needs that are null, comma-separated
  virtual int maxRequests() const = 0;      // that NCCL keeps outstanding on a comm

  virtual ncclResult_t init(void** ctx, std::uint64_t commId, ncclDebugLogger_t log) = 0;
  virtual ncclResult_t finalize(void* ctx) = 0;
  virtual ncclResult_t devices(int* count) = 0;
  virtual ncclResult_t getProperties(int dev, DeviceProps* props) = 0;
  virtual ncclResult_t listen(void* ctx, int dev, void* handle, void** listenComm) = 0;
  virtual ncclResult_t connect(void* ctx, int dev, void* handle, void** sendComm) = 0;
  virtual ncclResult_t accept(void* listenComm, void** recvComm) = 0;
  virtual ncclResult_t regMr(void* comm, void* data, std::size_t size, void** mhandle) = 0;
  virtual ncclResult_t deregMr(void* comm, void* mhandle) = 0;
  virtual ncclResult_t isend(void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) = 0;
  virtual ncclResult_t irecv(void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                             void** request) = 0;
  virtual ncclResult_t iflush(void* comm, int n, void** data, int* sizes, void** mhandles, void** request) = 0;
  virtual ncclResult_t test(void* request, int* done, int* sizes) = 0;
  virtual ncclResult_t closeSend(void* comm) = 0;
  virtual ncclResult_t closeRecv(void* comm) = 0;
  virtual ncclResult_t closeListen(void* listenComm) = 0;
  virtual ncclResult_t setAttributes(void* ctx) = 0;  // v11-: what an all-reduce over a ring would say; else nothing
};

class CollNetAbi {
 public:
  virtual ~CollNetAbi() = default;
  virtual int version() const = 0;
  virtual const char* name() const = 0;
  virtual std::string missing() const = 0;
  virtual bool hasGatherScatter() const = 0;  // v8-

  virtual ncclResult_t init(void** ctx, std::uint64_t commId, ncclDebugLogger_t log) = 0;
  virtual ncclResult_t finalize(void* ctx) = 0;
  virtual ncclResult_t devices(int* count) = 0;
  virtual ncclResult_t getProperties(int dev, DeviceProps* props) = 0;
  virtual ncclResult_t listen(void* ctx, int dev, void* handle, void** listenComm) = 0;
  virtual ncclResult_t connect(void* handles[], int ranks, int rank, void* listenComm, void** comm) = 0;
  virtual ncclResult_t reduceSupport(int dtype, int op, int* supported) = 0;
  virtual ncclResult_t regMr(void* comm, void* data, std::size_t size, void** mhandle) = 0;
  virtual ncclResult_t deregMr(void* comm, void* mhandle) = 0;
  virtual ncclResult_t iallreduce(void* comm, void* send, void* recv, std::size_t count, ncclDataType_t dtype,
                                  ncclRedOp_t op, void* sendHandle, void* recvHandle, void** request) = 0;
  virtual ncclResult_t iallgather(void* comm, void* send, std::span<const Piece> recv, std::size_t bytesPerRank,
                                  std::size_t windowOffset, std::size_t windowBytes, void* sendHandle,
                                  void** request) = 0;
  virtual ncclResult_t ireducescatter(void* comm, std::span<const Piece> send, void* recv, std::size_t bytesPerRank,
                                      std::size_t windowOffset, std::size_t windowBytes, ncclDataType_t dtype,
                                      ncclRedOp_t op, void* recvHandle, void** request) = 0;
  virtual ncclResult_t iflush(void* comm, void* data, int size, void* mhandle, void** request) = 0;
  virtual ncclResult_t test(void* request, int* done, int* size) = 0;
  virtual ncclResult_t closeColl(void* comm) = 0;
  virtual ncclResult_t closeListen(void* listenComm) = 0;
};

/// The table of exactly that version, or nullptr when the library does not export it. `library` is from dlopen.
std::unique_ptr<NetAbi> findNet(void* library, int version);
std::unique_ptr<CollNetAbi> findCollNet(void* library, int version);

}  // namespace cgx::host
