// Samples over a run of any length in bounded memory: when it is full, every second one goes and the next ones are
// taken half as often.
#pragma once

#include <cstddef>
#include <vector>

#include "snapshot.h"

namespace cgx::statistics {

class Series {
 public:
  static constexpr std::size_t kMost = 512;

  /// Offers a sample; it may be passed over.
  void offer(const Sample& sample);
  const std::vector<Sample>& samples() const noexcept { return samples_; }

 private:
  std::vector<Sample> samples_;
  std::size_t stride_ = 1;  // of the samples offered, one in so many is taken
  std::size_t offered_ = 0;
};

}  // namespace cgx::statistics
