// One plugin in one process: dlopen as NCCL does it, the counted users, the log, and what must be gone after dlclose.
// Knows no ranks.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "support/nccl_host/abi.h"
#include "support/nccl_host/violations.h"

namespace cgx::host {

/// What a process has that a plugin could leave behind.
struct Census {
  std::set<int> threads;
  std::set<std::string> descriptors;  // "7 -> socket:[123]"
  std::set<std::string> files;        // mapped files

  static Census take();
};

/// Findings for what `now` has and `before` has not.
std::vector<Finding> leaks(const Census& before, const Census& now);

using LogSink = std::function<void(int level, const std::string& message)>;

/// The plugin as the ranks of one process share it: opened by the first user, closed by the last.
class Library {
 public:
  Library(std::string path, int abi, LogSink log);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// False with findings when it cannot be loaded; true makes net() and collNet() valid until release().
  bool acquire(std::vector<Finding>* findings);
  /// The last release closes it.
  void release();
  bool open() const { return handle_ != nullptr; }

  NetAbi* net() const { return net_.get(); }
  CollNetAbi* collNet() const { return collNet_.get(); }  // nullptr: the plugin exports none
  const std::string& path() const { return path_; }

  /// Hands the log to `sink`; the logger's signature has no room for a context, so there is one sink a process.
  static ncclDebugLogger_t logger() noexcept;

 private:
  std::string path_;
  int abi_;
  std::mutex mutex_;
  int users_ = 0;
  void* handle_ = nullptr;
  std::unique_ptr<NetAbi> net_;
  std::unique_ptr<CollNetAbi> collNet_;
};

}  // namespace cgx::host
