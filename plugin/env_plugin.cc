// NCCL's environment plugin: every NCCL_* look-up of NCCL 2.28.7 and later comes through here, in whatever job finds us
// as libnccl-env.so. Passes the environment through but for what activation decides. Never an error: a job must not
// suffer for our being installed.
#include "plugin/activate.h"
#include "plugin/env_api.h"
#include "plugin/host.h"

namespace cgx::plugin::env {
namespace {

ncclResult_t init(std::uint8_t major, std::uint8_t minor, std::uint8_t patch, const char*) noexcept {
  try {
    announceNccl({major, minor, patch});
  } catch (...) {  // out of memory: then nothing is decided, and all passes through
  }
  return ncclSuccess;
}

// The logger is not used: NCCL says itself which variable has which value, and net's init says the rest.
ncclResult_t init(std::uint8_t major, std::uint8_t minor, std::uint8_t patch, const char* suffix,
                  ncclDebugLogger_t) noexcept {
  return init(major, minor, patch, suffix);
}

// What was handed out stays valid until the library goes: NCCL may still be asked for variables at exit.
ncclResult_t finalize() noexcept { return ncclSuccess; }

const char* getEnv(const char* name) noexcept {
  if (name == nullptr) return nullptr;
  try {
    return answerFor(name);
  } catch (...) {
    return environment(name);
  }
}

template <class Env>
constexpr Env makeEnv() {
  Env env{};
  env.name = kPluginName;
  env.init = init;
  env.finalize = finalize;
  env.getEnv = getEnv;
  return env;
}

}  // namespace
}  // namespace cgx::plugin::env

#define CGX_EXPORT extern "C" [[gnu::visibility("default")]] constinit const
CGX_EXPORT ncclEnv_v1_t ncclEnvPlugin_v1 = cgx::plugin::env::makeEnv<ncclEnv_v1_t>();
CGX_EXPORT ncclEnv_v2_t ncclEnvPlugin_v2 = cgx::plugin::env::makeEnv<ncclEnv_v2_t>();
