#include "plugin_library.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <climits>
#include <filesystem>
#include <utility>

namespace cgx::tool {
namespace {

constexpr const char* kFileName = "libnccl-net-cgx.so";
constexpr int kNewest = 20;  // versions that are looked for in a listing; the newest that exists today is 12
constexpr int kOldest = 2;

std::filesystem::path programDirectory() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  return length > 0 ? std::filesystem::path(std::string(path, static_cast<std::size_t>(length))).parent_path() : ".";
}

}  // namespace

std::vector<std::string> pluginCandidates() {
  const std::filesystem::path here = programDirectory();
  std::vector<std::string> paths;
  // In a build tree beside each other, installed as bin and lib.
  for (const char* folder : {".", "../lib", "../lib64"})
    paths.push_back((here / folder / kFileName).lexically_normal().string());
  return paths;
}

std::string defaultPluginPath() {
  for (const std::string& path : pluginCandidates())
    if (std::filesystem::exists(path)) return path;
  return {};
}

Result<PluginLibrary> PluginLibrary::open(const std::string& path) {
  PluginLibrary library;
  library.path_ = path.empty() ? defaultPluginPath() : path;
  if (library.path_.empty()) {
    std::string looked;
    for (const std::string& candidate : pluginCandidates()) looked += (looked.empty() ? "" : ", ") + candidate;
    return Status::invalid("no plugin found (looked for " + looked + "); name one with --plugin");
  }
  if (path.find('/') != std::string::npos && !std::filesystem::exists(path))
    return Status::invalid("--plugin " + path + ": no such file");
  library.handle_ = ::dlopen(library.path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle_ == nullptr)
    return Status(Code::System, std::string("the plugin cannot be loaded: ") + ::dlerror());
  return library;
}

PluginLibrary::PluginLibrary(PluginLibrary&& other) noexcept { *this = std::move(other); }

PluginLibrary& PluginLibrary::operator=(PluginLibrary&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(handle_, other.handle_);
  return *this;
}

PluginLibrary::~PluginLibrary() {
  if (handle_ != nullptr) ::dlclose(handle_);
}

std::string PluginLibrary::file() const { return fileOf(handle_); }

void* PluginLibrary::symbol(const std::string& name) const { return ::dlsym(handle_, name.c_str()); }

std::vector<int> PluginLibrary::versions(const char* prefix) const {
  std::vector<int> found;
  for (int version = kNewest; version >= kOldest; --version)
    if (symbol(prefix + std::to_string(version)) != nullptr) found.push_back(version);
  return found;
}

const ncclNet_v12_t* PluginLibrary::net() const {
  return static_cast<const ncclNet_v12_t*>(symbol("ncclNetPlugin_v12"));
}

const ncclCollNet_v12_t* PluginLibrary::collNet() const {
  return static_cast<const ncclCollNet_v12_t*>(symbol("ncclCollNetPlugin_v12"));
}

CgxCountersFunction PluginLibrary::counters() const {
  return reinterpret_cast<CgxCountersFunction>(symbol("cgxCounters"));
}

std::string fileOf(void* handle) {
  const link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 || map == nullptr) return {};
  return map->l_name;
}

std::string resultText(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "success";
    case ncclUnhandledCudaError:
      return "unhandled CUDA error (1)";
    case ncclSystemError:
      return "system error (2)";
    case ncclInternalError:
      return "internal error (3)";
    case ncclInvalidArgument:
      return "invalid argument (4)";
    case ncclInvalidUsage:
      return "invalid usage (5)";
    case ncclRemoteError:
      return "remote error (6)";
  }
  return "result " + std::to_string(static_cast<int>(result));
}

}  // namespace cgx::tool
