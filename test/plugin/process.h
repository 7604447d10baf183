// What a process holds, as /proc shows it: threads, descriptors, mappings, heap. For tests that compare before and
// after.
#pragma once

#include <malloc.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "support/tasks.h"

namespace cgx::test {

inline int countEntries(const char* path) {
  const std::filesystem::directory_iterator entries(path);
  return static_cast<int>(std::distance(begin(entries), end(entries)));
}
inline int threads() { return static_cast<int>(liveThreads().size()); }
inline int descriptors() { return countEntries("/proc/self/fd"); }
inline std::size_t heapBytes() { return mallinfo2().uordblks; }

inline bool isMapped(const std::string& file) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(file) != std::string::npos) return true;
  return false;
}

inline int mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

/// Resident memory in KiB.
inline long residentKiB() {
  std::ifstream statm("/proc/self/statm");
  long size = 0;
  long resident = 0;
  statm >> size >> resident;
  return resident * 4;
}

/// For what another thread is about to give up.
inline bool becomes(int (*count)(), int expected) {
  for (int i = 0; i < 1000; ++i) {
    if (count() == expected) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}
inline bool threadsBecome(int expected) { return becomes(&threads, expected); }
inline bool descriptorsBecome(int expected) { return becomes(&descriptors, expected); }

}  // namespace cgx::test
