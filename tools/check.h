// Judges a result against the inputs of all ranks: NMSE against the exact fp64 sum, and every element against the
// mode's error bound. Knows no plugin; works through the message in pieces, so that large ones need little memory.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "cgx/settings.h"
#include "cgx/status.h"
#include "input.h"

namespace cgx::tool {

struct Mode {
  int bits = 4;  // 1..8, or codec::kExactBits: then the result must be the fp32 sum in rank order, to the bit
  Rounding rounding = Rounding::Nearest;
};

struct Verdict {
  double nmse =
      0;  // over elements whose exact sum the type can hold; NaN when all of those are zero but the result is not
  std::size_t broken = 0;   // elements outside the bound
  std::string firstBroken;  // "element 17 is 3, the exact sum is 1" or empty
};

/// `result`: row.count elements as they came out. `progress` is told the share done, now and then.
Result<Verdict> check(const Row& row, int ranks, Mode mode, const std::byte* result,
                      const std::function<void(double)>& progress);

}  // namespace cgx::tool
