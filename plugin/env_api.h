// NCCL's environment plugin, restated and pinned: v1 since NCCL 2.28.7, v2 since 2.30. Knows the layout only.
#pragma once

#include "plugin/nccl_types.h"

struct ncclEnv_v1_t {
  const char* name;
  ncclResult_t (*init)(std::uint8_t ncclMajor, std::uint8_t ncclMinor, std::uint8_t ncclPatch, const char* suffix);
  ncclResult_t (*finalize)();
  const char* (*getEnv)(const char* name);
};

struct ncclEnv_v2_t {
  const char* name;
  ncclResult_t (*init)(std::uint8_t ncclMajor, std::uint8_t ncclMinor, std::uint8_t ncclPatch, const char* suffix,
                       ncclDebugLogger_t logFunction);
  ncclResult_t (*finalize)();
  const char* (*getEnv)(const char* name);
};

static_assert(sizeof(ncclEnv_v1_t) == 4 * sizeof(void*) && offsetof(ncclEnv_v1_t, getEnv) == 3 * sizeof(void*));
static_assert(sizeof(ncclEnv_v2_t) == 4 * sizeof(void*) && offsetof(ncclEnv_v2_t, getEnv) == 3 * sizeof(void*));
