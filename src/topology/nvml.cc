// How the GPUs of this host are connected, by NVIDIA's management library, found at run time. Only plain integers cross
// its interface, so nothing of its header is restated but numbers.
#include <dlfcn.h>

#include <memory>
#include <vector>

#include "cgx/topology.h"

namespace cgx::topology {
namespace {

using Device = void*;
constexpr int kSuccess = 0;
constexpr unsigned kLinks = 18;  // NVML_NVLINK_MAX_LINKS
constexpr int kP2pRead = 0;      // NVML_P2P_CAPS_INDEX_READ
constexpr int kP2pStatusOk = 0;  // NVML_P2P_STATUS_OK

struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned, Device*) = nullptr;
  int (*nvlink)(Device, unsigned, int*) = nullptr;
  int (*p2p)(Device, Device, int, int*) = nullptr;

  bool complete() const { return init && shutdown && count && device && nvlink && p2p; }
};

template <class Function>
void find(void* library, const char* name, Function** out) {
  *out = reinterpret_cast<Function*>(::dlsym(library, name));
}

Nvml load(void* library) {
  Nvml nvml;
  find(library, "nvmlInit_v2", &nvml.init);
  find(library, "nvmlShutdown", &nvml.shutdown);
  find(library, "nvmlDeviceGetCount_v2", &nvml.count);
  find(library, "nvmlDeviceGetHandleByIndex_v2", &nvml.device);
  find(library, "nvmlDeviceGetNvLinkState", &nvml.nvlink);
  find(library, "nvmlDeviceGetP2PStatus", &nvml.p2p);
  return nvml;
}

bool hasNvlink(const Nvml& nvml, Device device) {
  for (unsigned link = 0; link < kLinks; ++link) {
    int active = 0;
    if (nvml.nvlink(device, link, &active) == kSuccess && active == 1) return true;
  }
  return false;
}

bool reach(const Nvml& nvml, Device a, Device b) {
  int status = -1;
  return nvml.p2p(a, b, kP2pRead, &status) == kSuccess && status == kP2pStatusOk;
}

activation::Box ask(const Nvml& nvml) {
  activation::Box box;
  unsigned count = 0;
  if (nvml.count(&count) != kSuccess) count = 0;
  std::vector<Device> devices;
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    if (nvml.device(i, &device) == kSuccess) devices.push_back(device);
  }
  box.gpus = static_cast<int>(devices.size());
  for (const Device device : devices) {
    box.nvlink = box.nvlink || hasNvlink(nvml, device);
    for (const Device other : devices) box.p2p = box.p2p || (other != device && reach(nvml, device, other));
  }
  return box;
}

}  // namespace

activation::Box box() {
  struct Close {
    void operator()(void* library) const noexcept { ::dlclose(library); }
  };
  const std::unique_ptr<void, Close> library(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
  if (library) {
    const Nvml nvml = load(library.get());
    if (nvml.complete() && nvml.init() == kSuccess) {
      const activation::Box found = ask(nvml);
      nvml.shutdown();
      return found;
    }
  }
  activation::Box unknown;
  unknown.gpus = static_cast<int>(read().gpus.size());
  unknown.known = unknown.gpus == 0;
  return unknown;
}

}  // namespace cgx::topology
