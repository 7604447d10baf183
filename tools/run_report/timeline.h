// A run over time: what the ranks' series say, in equal spans of time.
#pragma once

#include <vector>

#include "run_report/run.h"

namespace cgx::tool {

/// One value a span; NaN where there is none.
using Values = std::vector<double>;

/// Each rank's time begins when its first communicator was connected. Between two samples a rank counts as steady.
struct Timeline {
  double seconds = 0;  // of the run
  Values middles;      // of the spans, in seconds
  // Ratio of a span, over the ranks that sent in it.
  Values lowest;
  Values median;
  Values highest;
  Values slowest;  // the rank with most time in the codec
  Values nmse;     // of all ranks' samples in the span
  // A second, on average over the ranks.
  Values encode;  // seconds
  Values reduce;
  Values decode;
  Values wire;
  Values operations;
  Values inputBytes;
  Values wireBytes;
};

/// As many spans as the series allow, at most `most`.
Timeline timelineOf(const WholeRun& run, std::size_t most);

}  // namespace cgx::tool
