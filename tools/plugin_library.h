// A plugin file as NCCL would load it: found, opened, asked for its tables. Knows symbols; drives nothing.
#pragma once

#include <string>
#include <vector>

#include "cgx/observe.h"
#include "cgx/status.h"
#include "plugin/collnet_api.h"
#include "plugin/net_api.h"

namespace cgx::tool {

class PluginLibrary {
 public:
  /// Errors say what the loader said, and where a plugin was looked for when `path` is empty.
  static Result<PluginLibrary> open(const std::string& path);
  PluginLibrary(PluginLibrary&& other) noexcept;
  PluginLibrary& operator=(PluginLibrary&& other) noexcept;
  ~PluginLibrary();  // dlclose

  const std::string& path() const { return path_; }
  std::string file() const;  // that the loader found for it
  /// Versions whose table the file exports, newest first: of "ncclNetPlugin_v" or "ncclCollNetPlugin_v".
  std::vector<int> versions(const char* prefix) const;
  const ncclNet_v12_t* net() const;          // nullptr: not exported
  const ncclCollNet_v12_t* collNet() const;  // nullptr: not exported
  CgxCountersFunction counters() const;      // nullptr: not exported (another plugin than ours)

 private:
  PluginLibrary() = default;
  void* symbol(const std::string& name) const;

  std::string path_;
  void* handle_ = nullptr;
};

/// The file behind a handle of dlopen; empty: cannot be told.
std::string fileOf(void* handle);

/// The plugin next to this program, in ../lib, or where it was built; empty when there is none.
std::string defaultPluginPath();
/// Where defaultPluginPath looks, for messages.
std::vector<std::string> pluginCandidates();

/// "system error (2)".
std::string resultText(ncclResult_t result);

}  // namespace cgx::tool
