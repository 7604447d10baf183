// One rank of `cgx perf`, from the rendezvous to the last row. Knows the order of things; the parts are elsewhere.
#pragma once

#include "cgx/status.h"
#include "input.h"
#include "perf_options.h"
#include "placement.h"

namespace cgx::tool {

/// The rows that the options ask for.
Result<std::vector<Row>> rowsOf(const PerfOptions& options, int ranks);

/// Returns the exit status. Sets CGX_* variables; no thread may exist yet.
int runRank(const PerfOptions& options, const Placement& placement);

}  // namespace cgx::tool
