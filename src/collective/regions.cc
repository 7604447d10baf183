#include "regions.h"

#include <algorithm>
#include <functional>

namespace cgx::collective {

Region* Regions::add(void* data, std::size_t bytes, bool* isNewStaging) {
  const std::lock_guard lock(mutex_);
  *isNewStaging = false;
  auto* begin = static_cast<std::byte*>(data);
  Region* const candidate = candidate_;
  candidate_ = nullptr;
  for (Region& region : regions_) {
    if (region.data != begin || region.bytes != bytes) continue;
    ++region.uses;
    if (&region == candidate) {
      region.staging = *isNewStaging = true;
      stagingData_ = begin;
      stagingBytes_ = bytes;
    }
    return &region;
  }
  Region& region = regions_.emplace_back(Region{begin, bytes, false, 1});
  if (!seenAny_ && data != nullptr && bytes != 0) candidate_ = &region;
  seenAny_ = true;
  return &region;
}

bool Regions::remove(Region* region, Region* copy, bool* first) {
  const std::lock_guard lock(mutex_);
  candidate_ = nullptr;
  const auto found = std::find_if(regions_.begin(), regions_.end(), [&](const Region& r) { return &r == region; });
  if (found == regions_.end()) return false;
  *copy = *found;
  *first = found->staging && !stagingGone_;
  if (found->staging) stagingGone_ = true;
  if (--found->uses == 0) regions_.erase(found);
  return true;
}

Status Regions::inStaging(const void* p, std::size_t bytes, bool* inside) {
  const std::lock_guard lock(mutex_);
  const auto* at = static_cast<const std::byte*>(p);
  const std::less<> before;
  *inside = stagingBytes_ != 0 && !before(at, stagingData_) && before(at, stagingData_ + stagingBytes_);
  if (!*inside) return {};
  if (stagingGone_) return Status::invalid("an operation on staging memory that has been deregistered");
  if (bytes > static_cast<std::size_t>(stagingData_ + stagingBytes_ - at)) {
    return Status::invalid("an operation that begins in staging memory and ends outside");
  }
  return {};
}

}  // namespace cgx::collective
