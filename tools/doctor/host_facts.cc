#include "doctor/host_facts.h"

#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <vector>

#include "plugin_library.h"
#include "text_files.h"

namespace cgx::tool::doctor {
namespace {

constexpr int kNewest = 20;  // versions of a table that are looked for

/// The name is the first member of every version of NCCL's net, tuner and env tables.
std::string nameIn(void* library, const std::string& symbol) {
  for (int version = kNewest; version > 0; --version)
    if (void* table = ::dlsym(library, (symbol + "_v" + std::to_string(version)).c_str()); table != nullptr) {
      const char* const name = *static_cast<const char* const*>(table);
      return name == nullptr ? "" : name;
    }
  return {};
}

std::vector<std::string> namesFor(const std::string& kind, const std::string& word) {
  if (word.empty()) return {"libnccl-" + kind + ".so"};
  std::vector<std::string> names{word};
  const bool file = word.find('/') != std::string::npos || (word.starts_with("lib") && word.ends_with(".so"));
  if (!file) names.push_back("libnccl-" + kind + "-" + word + ".so");
  return names;
}

std::optional<std::uint64_t> number(std::string_view text) {
  const std::size_t start = text.find_first_of("0123456789");
  std::uint64_t value = 0;
  if (start == std::string_view::npos) return std::nullopt;
  const auto result = std::from_chars(text.data() + start, text.data() + text.size(), value);
  return result.ec == std::errc{} ? std::optional(value) : std::nullopt;
}

/// The number in the line of `text` that starts with `word`.
std::optional<std::uint64_t> lineNumber(const std::string& text, std::string_view word) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(word)) return number(std::string_view(line).substr(word.size()));
  return std::nullopt;
}

/// What the control group at `folder` may still take; its page cache can be dropped.
std::optional<std::uint64_t> leftInGroup(const std::string& folder) {
  const auto limit = number(readText(folder + "/memory.max"));  // without a limit it says "max"
  const auto used = number(readText(folder + "/memory.current"));
  if (!limit || !used) return std::nullopt;
  const std::uint64_t cache = lineNumber(readText(folder + "/memory.stat"), "inactive_file ").value_or(0);
  const std::uint64_t held = *used > cache ? *used - cache : 0;
  return *limit > held ? *limit - held : 0;
}

std::optional<std::uint64_t> memoryAvailable(const std::string& root) {
  std::optional<std::uint64_t> least = lineNumber(readText(root + "/proc/meminfo"), "MemAvailable:");
  if (least) *least *= 1024;
  // "0::/slurm/job7": in a container the own group is the root, whose limit is in the top folder.
  std::string group = readText(root + "/proc/self/cgroup");
  const std::size_t start = group.find("0::/");
  group = start == std::string::npos ? "" : group.substr(start + 3, group.find('\n', start) - start - 3);
  for (;;) {
    if (group == "/") group.clear();
    if (const auto left = leftInGroup(root + "/sys/fs/cgroup" + group)) least = least ? std::min(*least, *left) : left;
    if (group.empty()) return least;
    group.erase(group.rfind('/'));
  }
}

}  // namespace

OtherPlugin findPlugin(const std::string& kind, const std::string& symbol, const Variable& named) {
  OtherPlugin found;
  found.named = named;
  if (named.value == "none") return found;
  for (const std::string& name : namesFor(kind, named.value)) {
    void* library = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) continue;
    found.opened = fileOf(library);
    if (found.opened.empty()) found.opened = name;
    found.ours = ::dlsym(library, "cgxCounters") != nullptr;
    found.calls = nameIn(library, symbol);
    ::dlclose(library);
    return found;
  }
  return found;
}

HostMemory hostMemory(const std::string& root) {
  HostMemory memory;
  memory.available = memoryAvailable(root);
  struct statvfs shared {};
  if (::statvfs((root + "/dev/shm").c_str(), &shared) == 0) {
    memory.sharedSize = std::uint64_t{shared.f_blocks} * shared.f_frsize;
    memory.sharedFree = std::uint64_t{shared.f_bavail} * shared.f_frsize;
  }
  rlimit locked{};
  if (::getrlimit(RLIMIT_MEMLOCK, &locked) == 0)
    memory.lockable = locked.rlim_cur == RLIM_INFINITY ? UINT64_MAX : locked.rlim_cur;
  return memory;
}

}  // namespace cgx::tool::doctor
