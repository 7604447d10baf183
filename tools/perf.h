// `cgx perf`: all-reduces through the plugin, timed and checked. Decides who runs where, then runs one rank.
#pragma once

#include <string>
#include <vector>

#include "perf_options.h"

namespace cgx::tool {

/// `arguments`: argv of this process, to start local ranks with. Returns the exit status.
int perf(const PerfOptions& options, const std::vector<std::string>& arguments, const Lookup& lookup);

}  // namespace cgx::tool
