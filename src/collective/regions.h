// Which memory NCCL has registered, and which of it is its own staging. Knows nothing of operations.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>

#include "cgx/status.h"

namespace cgx::collective {

struct Region {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool staging = false;
  std::size_t uses = 0;  // registrations that are not yet taken back
};

/// NCCL registers one and the same staging region 2 x nChannels times right after connect, before anything else; any
/// other region is the user's and must never be written outside an operation's output. So the first region becomes
/// staging when its second registration follows at once. Thread safe.
class Regions {
 public:
  /// *cleared: the region has just turned out to be staging, and the caller must zero it before the first operation.
  Region* add(void* data, std::size_t bytes, bool* isNewStaging);
  /// nullptr: not one of ours. *last: nothing refers to it any more and it is gone; *first: the first registration of
  /// it taken back.
  bool remove(Region* region, Region* copy, bool* first);
  /// Whether [p, p + bytes) lies in live staging; Code::Invalid when it lies in staging that has been taken back.
  Status inStaging(const void* p, std::size_t bytes, bool* inside);

 private:
  std::mutex mutex_;
  std::list<Region> regions_;
  Region* candidate_ = nullptr;  // the first region, until something else than its second registration happens
  bool seenAny_ = false;
  std::byte* stagingData_ = nullptr;
  std::size_t stagingBytes_ = 0;
  bool stagingGone_ = false;
};

}  // namespace cgx::collective
