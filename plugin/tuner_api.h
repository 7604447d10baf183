// NCCL's tuner plugin ABI, versions 2 to 6, restated from its layout and pinned. Knows layouts and numbers only; shares
// the basic types with nccl_types.h. Source: src/include/plugin/tuner/tuner_v2.h ... v6.h and nccl_common.h,
// NCCL 2.30.7.
#pragma once

#include "plugin/nccl_types.h"

enum ncclFunc_t : int {
  ncclFuncBroadcast = 0,
  ncclFuncReduce = 1,
  ncclFuncAllGather = 2,
  ncclFuncReduceScatter = 3,
  ncclFuncAllReduce = 4,
};

// v2 (NCCL 2.21): the tuner names algorithm and protocol itself.
struct ncclTuner_v2_t {
  const char* name;
  ncclResult_t (*init)(std::size_t nRanks, std::size_t nNodes, ncclDebugLogger_t log, void** context);
  ncclResult_t (*getCollInfo)(void* context, ncclFunc_t collType, std::size_t nBytes, int collNetSupport,
                              int nvlsSupport, int numPipeOps, int* algorithm, int* protocol, int* nChannels);
  ncclResult_t (*destroy)(void* context);
};

// v3 (2.22): it rewrites NCCL's cost table. The type float** hides a plain array of numAlgo x numProto floats.
struct ncclTuner_v3_t {
  const char* name;
  ncclResult_t (*init)(std::size_t nRanks, std::size_t nNodes, ncclDebugLogger_t log, void** context);
  ncclResult_t (*getCollInfo)(void* context, ncclFunc_t collType, std::size_t nBytes, int numPipeOps,
                              float** collCostTable, int numAlgo, int numProto, int* nChannels);
  ncclResult_t (*destroy)(void* context);
};

// v4 (2.24): whether the buffers are registered.
struct ncclTuner_v4_t {
  const char* name;
  ncclResult_t (*init)(std::size_t nRanks, std::size_t nNodes, ncclDebugLogger_t log, void** context);
  ncclResult_t (*getCollInfo)(void* context, ncclFunc_t collType, std::size_t nBytes, int numPipeOps,
                              float** collCostTable, int numAlgo, int numProto, int regBuff, int* nChannels);
  ncclResult_t (*destroy)(void* context);
};

struct ncclNvlDomainInfo_v5_t {
  int nNvlDomains;
  int minRanksPerNvlDomain;
  int maxRanksPerNvlDomain;
};

struct ncclTunerConstants_v5_t {
  double baseLatencies[7][3];  // microseconds, by algorithm and protocol
  double hwLatencies[3][7][3];
  double llMaxBws[4][3];  // GB/s, by GPU generation and number of nodes
  double perChMaxRingLL128Bws[4][3];
  double perChMaxTreeLL128Bws[4][3];
  double perChMaxTreeBws[4][3];
  double perChMaxNVLSTreeBws[4][3];
};

// v5: init as in net v11, the context first.
struct ncclTuner_v5_t {
  const char* name;
  ncclResult_t (*init)(void** ctx, std::uint64_t commId, std::size_t nRanks, std::size_t nNodes, ncclDebugLogger_t log,
                       ncclNvlDomainInfo_v5_t* nvlDomainInfo, ncclTunerConstants_v5_t* constants);
  ncclResult_t (*getCollInfo)(void* context, ncclFunc_t collType, std::size_t nBytes, int numPipeOps,
                              float** collCostTable, int numAlgo, int numProto, int regBuff, int* nChannels);
  ncclResult_t (*finalize)(void* context);
};

// v6: NCCL asks for the chunk's size, too.
struct ncclTuner_v6_t {
  const char* name;
  ncclResult_t (*init)(void** ctx, std::uint64_t commId, std::size_t nRanks, std::size_t nNodes, ncclDebugLogger_t log,
                       ncclNvlDomainInfo_v5_t* nvlDomainInfo, ncclTunerConstants_v5_t* constants);
  ncclResult_t (*getCollInfo)(void* context, ncclFunc_t collType, std::size_t nBytes, int numPipeOps,
                              float** collCostTable, int numAlgo, int numProto, int regBuff, int* nChannels);
  ncclResult_t (*finalize)(void* context);
  ncclResult_t (*getChunkSize)(void* context, ncclFunc_t collType, std::size_t nBytes, int algo, int proto,
                               int nChannels, std::size_t* chunkSize);
};

// ---- golden numbers, x86-64 and aarch64; taken from NCCL 2.30.7

static_assert(sizeof(ncclTuner_v2_t) == 4 * sizeof(void*) && sizeof(ncclTuner_v3_t) == 4 * sizeof(void*));
static_assert(sizeof(ncclTuner_v4_t) == 4 * sizeof(void*) && sizeof(ncclTuner_v5_t) == 4 * sizeof(void*));
static_assert(sizeof(ncclTuner_v6_t) == 5 * sizeof(void*) && offsetof(ncclTuner_v6_t, getChunkSize) == 32);
static_assert(sizeof(ncclNvlDomainInfo_v5_t) == 12);
static_assert(sizeof(ncclTunerConstants_v5_t) == 1152);
CGX_PIN(ncclTunerConstants_v5_t, hwLatencies, 168);
CGX_PIN(ncclTunerConstants_v5_t, llMaxBws, 672);
CGX_PIN(ncclTunerConstants_v5_t, perChMaxRingLL128Bws, 768);
CGX_PIN(ncclTunerConstants_v5_t, perChMaxNVLSTreeBws, 1056);
