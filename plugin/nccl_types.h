// NCCL's plugin types, restated from their layout and spelled as in NCCL, so that a reader finds them there: results,
// data types, logger and device properties, versions 6 to 12. Knows layouts and numbers only; stands alone, needs no
// nccl.h, and is for tests and tools too.
#pragma once

#include <cstddef>
#include <cstdint>

// ---- what the host and every kind of plugin share

enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
};

enum ncclDataType_t : int {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12,
};

enum ncclRedOp_t : int { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4, ncclNumOps = 5 };

enum ncclDebugLogLevel : int {
  NCCL_LOG_NONE = 0,
  NCCL_LOG_VERSION = 1,
  NCCL_LOG_WARN = 2,
  NCCL_LOG_INFO = 3,
  NCCL_LOG_ABORT = 4,
  NCCL_LOG_TRACE = 5,
};

// Bits of the logger's `flags`; only those that we set.
inline constexpr unsigned long NCCL_INIT = 0x1;
inline constexpr unsigned long NCCL_COLL = 0x2;
inline constexpr unsigned long NCCL_NET = 0x10;
inline constexpr unsigned long NCCL_ENV = 0x80;

using ncclDebugLogger_t = void (*)(ncclDebugLogLevel level, unsigned long flags, const char* file, int line,
                                   const char* format, ...);
using ncclProfilerCallback_t = ncclResult_t (*)(void** eventHandle, int type, void* parent, std::int64_t pluginId,
                                                void* data);

inline constexpr int NCCL_NET_HANDLE_MAXSIZE = 128;
inline constexpr int NCCL_NET_MAX_REQUESTS_V6 = 8;
inline constexpr int NCCL_NET_MAX_REQUESTS = 32;
inline constexpr int NCCL_NET_OPTIONAL_RECV_COMPLETION = 0x1;  // what *request may hold on entry to irecv
inline constexpr int NCCL_NET_TRAFFIC_CLASS_UNDEF = -1;
inline constexpr int NCCL_NET_ID_UNDEF = -1;
inline constexpr std::size_t NCCL_MAX_NET_SIZE_BYTES = std::size_t{1} << 40;  // most that maxP2pBytes may say

// Bits of ptrSupport, and the values of regMr's type.
inline constexpr int NCCL_PTR_HOST = 0x1;
inline constexpr int NCCL_PTR_CUDA = 0x2;
inline constexpr int NCCL_PTR_DMABUF = 0x4;

// ---- properties

enum ncclNetDeviceType : int { NCCL_NET_DEVICE_HOST = 0, NCCL_NET_DEVICE_UNPACK = 1 };

struct ncclNetDeviceHandle_t {
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
  void* handle;
  std::size_t size;
  int needsProxyProgress;
};

// The number of physical devices that a virtual one may merge grew from 4 to 8 in v12.
template <int kMaxDevs>
struct ncclNetVDevicePropsOf {
  int ndevs;
  int devs[kMaxDevs];
};
using ncclNetVDeviceProps_v9_t = ncclNetVDevicePropsOf<4>;
using ncclNetVDeviceProps_v10_t = ncclNetVDevicePropsOf<4>;
using ncclNetVDeviceProps_v11_t = ncclNetVDevicePropsOf<4>;
using ncclNetVDeviceProps_v12_t = ncclNetVDevicePropsOf<8>;

struct ncclNetProperties_v6_t {
  char* name;
  char* pciPath;
  std::uint64_t guid;
  int ptrSupport;
  int speed;  // Mb/s
  int port;
  float latency;  // us
  int maxComms;
  int maxRecvs;
};

struct ncclNetProperties_v7_t {
  char* name;
  char* pciPath;
  std::uint64_t guid;
  int ptrSupport;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
};

struct ncclNetProperties_v8_t {
  char* name;
  char* pciPath;
  std::uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
};

struct ncclNetProperties_v9_t {
  char* name;
  char* pciPath;
  std::uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
  ncclNetVDeviceProps_v9_t vProps;
  std::size_t maxP2pBytes;
  std::size_t maxCollBytes;
};
using ncclNetProperties_v10_t = ncclNetProperties_v9_t;

struct ncclNetProperties_v11_t {
  char* name;
  char* pciPath;
  std::uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
  ncclNetVDeviceProps_v11_t vProps;
  std::size_t maxP2pBytes;
  std::size_t maxCollBytes;
  int maxMultiRequestSize;
};

struct ncclNetProperties_v12_t {
  char* name;
  char* pciPath;
  std::uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
  ncclNetVDeviceProps_v12_t vProps;
  std::size_t maxP2pBytes;
  std::size_t maxCollBytes;
  int maxMultiRequestSize;
  std::int16_t railId;
  std::int16_t planeId;
};

struct ncclNetCommConfig_t {  // v10-
  int trafficClass;
};

struct ncclNetCommAttr_t {  // v11-
  std::int32_t maxConcurrentPeers;
  std::int32_t minConcurrentPeers;
  std::int32_t maxFlowsPerPeer;
  std::int32_t minFlowsPerPeer;
};
struct ncclNetAttr_t {  // v11-
  ncclNetCommAttr_t sendCommAttr;
  ncclNetCommAttr_t recvCommAttr;
  std::uint32_t op;
  std::uint32_t algo;
  std::uint32_t proto;
};

// ---- golden numbers, x86-64 and aarch64; taken from NCCL 2.30.7

static_assert(sizeof(void*) == 8 && sizeof(int) == 4 && sizeof(unsigned long) == 8, "LP64 only");
static_assert(sizeof(ncclNetDeviceHandle_t) == 32 && offsetof(ncclNetDeviceHandle_t, needsProxyProgress) == 24);
static_assert(sizeof(ncclNetVDeviceProps_v11_t) == 20 && sizeof(ncclNetVDeviceProps_v12_t) == 36);
static_assert(sizeof(ncclNetAttr_t) == 44 && offsetof(ncclNetAttr_t, op) == 32);

#define CGX_PIN(type, field, offset) static_assert(offsetof(type, field) == (offset))
static_assert(sizeof(ncclNetProperties_v6_t) == 48);
CGX_PIN(ncclNetProperties_v6_t, ptrSupport, 24);
CGX_PIN(ncclNetProperties_v6_t, speed, 28);
CGX_PIN(ncclNetProperties_v6_t, latency, 36);
CGX_PIN(ncclNetProperties_v6_t, maxComms, 40);
CGX_PIN(ncclNetProperties_v6_t, maxRecvs, 44);
static_assert(sizeof(ncclNetProperties_v7_t) == 56);
CGX_PIN(ncclNetProperties_v7_t, speed, 28);
CGX_PIN(ncclNetProperties_v7_t, maxRecvs, 44);
CGX_PIN(ncclNetProperties_v7_t, netDeviceType, 48);
static_assert(sizeof(ncclNetProperties_v8_t) == 64);
CGX_PIN(ncclNetProperties_v8_t, regIsGlobal, 28);
CGX_PIN(ncclNetProperties_v8_t, speed, 32);
CGX_PIN(ncclNetProperties_v8_t, latency, 40);
CGX_PIN(ncclNetProperties_v8_t, maxRecvs, 48);
CGX_PIN(ncclNetProperties_v8_t, netDeviceType, 52);
static_assert(sizeof(ncclNetProperties_v9_t) == 104);
CGX_PIN(ncclNetProperties_v9_t, forceFlush, 32);
CGX_PIN(ncclNetProperties_v9_t, speed, 36);
CGX_PIN(ncclNetProperties_v9_t, latency, 44);
CGX_PIN(ncclNetProperties_v9_t, maxRecvs, 52);
CGX_PIN(ncclNetProperties_v9_t, netDeviceType, 56);
CGX_PIN(ncclNetProperties_v9_t, vProps, 64);
CGX_PIN(ncclNetProperties_v9_t, maxP2pBytes, 88);
CGX_PIN(ncclNetProperties_v9_t, maxCollBytes, 96);
static_assert(sizeof(ncclNetProperties_v11_t) == 112);
CGX_PIN(ncclNetProperties_v11_t, speed, 36);
CGX_PIN(ncclNetProperties_v11_t, vProps, 64);
CGX_PIN(ncclNetProperties_v11_t, maxP2pBytes, 88);
CGX_PIN(ncclNetProperties_v11_t, maxCollBytes, 96);
CGX_PIN(ncclNetProperties_v11_t, maxMultiRequestSize, 104);
static_assert(sizeof(ncclNetProperties_v12_t) == 128);
CGX_PIN(ncclNetProperties_v12_t, speed, 36);
CGX_PIN(ncclNetProperties_v12_t, vProps, 64);
CGX_PIN(ncclNetProperties_v12_t, maxP2pBytes, 104);
CGX_PIN(ncclNetProperties_v12_t, maxCollBytes, 112);
CGX_PIN(ncclNetProperties_v12_t, maxMultiRequestSize, 120);
CGX_PIN(ncclNetProperties_v12_t, railId, 124);
CGX_PIN(ncclNetProperties_v12_t, planeId, 126);
