// The threads of this process, for tests that compare before and after.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace cgx::test {

/// False for a thread that is on its way out, and for one that is gone: pthread_join returns a moment before the kernel
/// takes the thread off the list, and on a busy machine that moment is long.
inline bool lives(const std::filesystem::path& task) {
  constexpr unsigned kExiting = 4;  // PF_EXITING, which is set before the joiner is woken
  std::ifstream file(task / "stat");
  const std::string line{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name = line.rfind(')');  // it may hold spaces and brackets
  if (name == std::string::npos) return false;
  std::istringstream fields(line.substr(name + 1));
  std::string skipped;
  for (int i = 0; i < 6; ++i) fields >> skipped;  // state, parent, group, session, terminal and its group
  unsigned flags = kExiting;
  fields >> flags;
  return (flags & kExiting) == 0;
}

inline std::set<int> liveThreads() {
  std::set<int> threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    if (lives(task.path())) threads.insert(std::atoi(task.path().filename().c_str()));
  return threads;
}

}  // namespace cgx::test
