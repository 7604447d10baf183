// `cgx report`: the statistics files of a job's processes (docs/statistics.md) as one summary, on the terminal and as a
// page.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace cgx::tool {

struct RunReportOptions {
  std::vector<std::string> files;
  std::string output;  // the page; empty: none
};
void addRunReportFlags(CLI::App& command, RunReportOptions* options);

/// 0; 2: a file cannot be read or is not one of ours, or the page cannot be written.
int report(const RunReportOptions& options);

}  // namespace cgx::tool
