#include "series.h"

namespace cgx::statistics {

void Series::offer(const Sample& sample) {
  if (offered_++ % stride_ != 0) return;
  if (samples_.size() == kMost) {
    for (std::size_t i = 0; i < kMost / 2; ++i) samples_[i] = samples_[2 * i];
    samples_.resize(kMost / 2);
    stride_ *= 2;
  }
  samples_.push_back(sample);
}

}  // namespace cgx::statistics
