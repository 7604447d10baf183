// Limits and memory of this host, and the plugins that its loader finds under NCCL's names. Finds; does not judge.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "doctor/variables.h"

namespace cgx::tool::doctor {

/// A plugin that NCCL opens beside the net plugin: what its variable says, else the default name.
struct OtherPlugin {
  Variable named;      // the variable; "none" means none
  std::string opened;  // full path; empty: none is found
  bool ours = false;
  std::string calls;  // what it calls itself; may be empty
};

/// `kind`: "net", "tuner", "env" or "profiler": NCCL tries the word itself, then libnccl-<kind>-<word>.so; with no word
/// libnccl-<kind>.so. `symbol` is what its table is called without the version.
OtherPlugin findPlugin(const std::string& kind, const std::string& symbol, const Variable& named);

/// Bytes; nothing: cannot be told.
struct HostMemory {
  std::optional<std::uint64_t> available;   // without swapping, and within the control group's limit
  std::optional<std::uint64_t> sharedSize;  // of /dev/shm; nothing: there is none
  std::optional<std::uint64_t> sharedFree;
  std::uint64_t lockable = 0;  // soft limit of a process; UINT64_MAX: none
};
HostMemory hostMemory(const std::string& root);

}  // namespace cgx::tool::doctor
