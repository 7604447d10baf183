// NCCL's collnet plugin ABI, versions 6 to 12, restated from its layout: one collective call a step on a group of
// ranks. Knows layouts and numbers only; shares the basic types with nccl_types.h.
#pragma once

#include "plugin/nccl_types.h"

struct ncclNetSGE_v8_t {
  void* mhandle;
  void* address;
  std::uint32_t size;
};
struct ncclNetSGE_v9_t {
  void* mhandle;
  void* address;
  std::size_t size;
};

// v6 and v7 differ in their properties only.
template <class Props>
struct ncclCollNetOfV6_t {
  const char* name;
  ncclResult_t (*init)(ncclDebugLogger_t log);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*getProperties)(int dev, Props* props);
  ncclResult_t (*listen)(int dev, void* handle, void** listenComm);
  ncclResult_t (*connect)(void* handles[], int nranks, int rank, void* listenComm, void** collComm);
  ncclResult_t (*reduceSupport)(ncclDataType_t dataType, ncclRedOp_t redOp, int* supported);
  ncclResult_t (*regMr)(void* collComm, void* data, int size, int type, void** mhandle);
  ncclResult_t (*regMrDmaBuf)(void* collComm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                              void** mhandle);
  ncclResult_t (*deregMr)(void* collComm, void* mhandle);
  ncclResult_t (*iallreduce)(void* collComm, void* sendData, void* recvData, int count, ncclDataType_t dataType,
                             ncclRedOp_t redOp, void* sendMhandle, void* recvMhandle, void** request);
  ncclResult_t (*iflush)(void* collComm, void* data, int size, void* mhandle, void** request);
  ncclResult_t (*test)(void* request, int* done, int* size);
  ncclResult_t (*closeColl)(void* collComm);
  ncclResult_t (*closeListen)(void* listenComm);
};
using ncclCollNet_v6_t = ncclCollNetOfV6_t<ncclNetProperties_v6_t>;
using ncclCollNet_v7_t = ncclCollNetOfV6_t<ncclNetProperties_v7_t>;

// v8: all-gather and reduce-scatter of a window. The concatenation of all ranks' bytesPerRank is the virtual buffer;
// one call moves [windowOffset, windowOffset + windowBytes) of it.
struct ncclCollNet_v8_t {
  const char* name;
  ncclResult_t (*init)(ncclDebugLogger_t log);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v8_t* props);
  ncclResult_t (*listen)(int dev, void* handle, void** listenComm);
  ncclResult_t (*connect)(void* handles[], int nranks, int rank, void* listenComm, void** collComm);
  ncclResult_t (*reduceSupport)(ncclDataType_t dataType, ncclRedOp_t redOp, int* supported);
  ncclResult_t (*regMr)(void* collComm, void* data, std::size_t size, int type, void** mhandle);
  ncclResult_t (*regMrDmaBuf)(void* collComm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                              void** mhandle);
  ncclResult_t (*deregMr)(void* collComm, void* mhandle);
  ncclResult_t (*iallreduce)(void* collComm, void* sendData, void* recvData, int count, ncclDataType_t dataType,
                             ncclRedOp_t redOp, void* sendMhandle, void* recvMhandle, void** request);
  ncclResult_t (*iallgather)(void* collComm, void* sendData, int nRecvParts, ncclNetSGE_v8_t* recvParts,
                             std::size_t bytesPerRank, std::size_t windowOffset, std::size_t windowBytes,
                             void* sendMhandle, void** request);
  ncclResult_t (*ireducescatter)(void* collComm, int nSendParts, ncclNetSGE_v8_t* sendParts, void* recvData,
                                 std::size_t bytesPerRank, std::size_t windowOffset, std::size_t windowBytes,
                                 ncclDataType_t dataType, ncclRedOp_t redOp, void* recvMhandle, void** request);
  ncclResult_t (*iflush)(void* collComm, void* data, int size, void* mhandle, void** request);
  ncclResult_t (*test)(void* request, int* done, int* size);
  ncclResult_t (*closeColl)(void* collComm);
  ncclResult_t (*closeListen)(void* listenComm);
};

// v9: 64-bit sizes everywhere, virtual devices. v10 has the same shape; the number keeps the two types apart.
template <int kVersion>
struct ncclCollNetOfV9_t {
  const char* name;
  ncclResult_t (*init)(ncclDebugLogger_t log);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v9_t* props);
  ncclResult_t (*listen)(int dev, void* handle, void** listenComm);
  ncclResult_t (*connect)(void* handles[], int nranks, int rank, void* listenComm, void** collComm);
  ncclResult_t (*reduceSupport)(ncclDataType_t dataType, ncclRedOp_t redOp, int* supported);
  ncclResult_t (*regMr)(void* collComm, void* data, std::size_t size, int type, void** mhandle);
  ncclResult_t (*regMrDmaBuf)(void* collComm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                              void** mhandle);
  ncclResult_t (*deregMr)(void* collComm, void* mhandle);
  ncclResult_t (*iallreduce)(void* collComm, void* sendData, void* recvData, std::size_t count, ncclDataType_t dataType,
                             ncclRedOp_t redOp, void* sendMhandle, void* recvMhandle, void** request);
  ncclResult_t (*iallgather)(void* collComm, void* sendData, int nRecvParts, ncclNetSGE_v9_t* recvParts,
                             std::size_t bytesPerRank, std::size_t windowOffset, std::size_t windowBytes,
                             void* sendMhandle, void** request);
  ncclResult_t (*ireducescatter)(void* collComm, int nSendParts, ncclNetSGE_v9_t* sendParts, void* recvData,
                                 std::size_t bytesPerRank, std::size_t windowOffset, std::size_t windowBytes,
                                 ncclDataType_t dataType, ncclRedOp_t redOp, void* recvMhandle, void** request);
  ncclResult_t (*iflush)(void* collComm, void* data, int size, void* mhandle, void** request);
  ncclResult_t (*test)(void* request, int* done, int* size);
  ncclResult_t (*closeColl)(void* collComm);
  ncclResult_t (*closeListen)(void* listenComm);
  ncclResult_t (*makeVDevice)(int* dev, ncclNetVDeviceProps_v9_t* props);
};
using ncclCollNet_v9_t = ncclCollNetOfV9_t<9>;
using ncclCollNet_v10_t = ncclCollNetOfV9_t<10>;

// v11: a context for each communicator. v12 is v11 with more properties and wider virtual devices.
template <class Props, class VDeviceProps>
struct ncclCollNetOfV11_t {
  const char* name;
  ncclResult_t (*init)(void** ctx, std::uint64_t commId, ncclDebugLogger_t log);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*getProperties)(int dev, Props* props);
  ncclResult_t (*listen)(void* ctx, int dev, void* handle, void** listenComm);
  ncclResult_t (*connect)(void* handles[], int nranks, int rank, void* listenComm, void** collComm);
  ncclResult_t (*reduceSupport)(ncclDataType_t dataType, ncclRedOp_t redOp, int* supported);
  ncclResult_t (*regMr)(void* collComm, void* data, std::size_t size, int type, void** mhandle);
  ncclResult_t (*regMrDmaBuf)(void* collComm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                              void** mhandle);
  ncclResult_t (*deregMr)(void* collComm, void* mhandle);
  ncclResult_t (*iallreduce)(void* collComm, void* sendData, void* recvData, std::size_t count, ncclDataType_t dataType,
                             ncclRedOp_t redOp, void* sendMhandle, void* recvMhandle, void** request);
  ncclResult_t (*iallgather)(void* collComm, void* sendData, int nRecvParts, ncclNetSGE_v9_t* recvParts,
                             std::size_t bytesPerRank, std::size_t windowOffset, std::size_t windowBytes,
                             void* sendMhandle, void** request);
  ncclResult_t (*ireducescatter)(void* collComm, int nSendParts, ncclNetSGE_v9_t* sendParts, void* recvData,
                                 std::size_t bytesPerRank, std::size_t windowOffset, std::size_t windowBytes,
                                 ncclDataType_t dataType, ncclRedOp_t redOp, void* recvMhandle, void** request);
  ncclResult_t (*iflush)(void* collComm, void* data, int size, void* mhandle, void** request);
  ncclResult_t (*test)(void* request, int* done, int* size);
  ncclResult_t (*closeColl)(void* collComm);
  ncclResult_t (*closeListen)(void* listenComm);
  ncclResult_t (*makeVDevice)(int* dev, VDeviceProps* props);
  ncclResult_t (*finalize)(void* ctx);
};
using ncclCollNet_v11_t = ncclCollNetOfV11_t<ncclNetProperties_v11_t, ncclNetVDeviceProps_v11_t>;
using ncclCollNet_v12_t = ncclCollNetOfV11_t<ncclNetProperties_v12_t, ncclNetVDeviceProps_v12_t>;

// Golden numbers, as in nccl_types.h.
static_assert(sizeof(ncclNetSGE_v8_t) == 24 && sizeof(ncclNetSGE_v9_t) == 24);
static_assert(sizeof(ncclCollNet_v6_t) == 15 * 8 && sizeof(ncclCollNet_v7_t) == 15 * 8);
static_assert(sizeof(ncclCollNet_v8_t) == 17 * 8);
static_assert(sizeof(ncclCollNet_v9_t) == 18 * 8 && sizeof(ncclCollNet_v10_t) == 18 * 8);
static_assert(sizeof(ncclCollNet_v11_t) == 19 * 8 && sizeof(ncclCollNet_v12_t) == 19 * 8);
CGX_PIN(ncclCollNet_v6_t, iallreduce, 10 * 8);
CGX_PIN(ncclCollNet_v8_t, ireducescatter, 12 * 8);
CGX_PIN(ncclCollNet_v9_t, makeVDevice, 17 * 8);
CGX_PIN(ncclCollNet_v12_t, connect, 5 * 8);
CGX_PIN(ncclCollNet_v12_t, finalize, 18 * 8);
