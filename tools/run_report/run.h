// All ranks of a job together, and what the reports say of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "run_report/run_file.h"

namespace cgx::tool {

struct WholeRun {
  std::vector<RunFile> files;  // by rank; at least one
  RunSums all;
  std::map<std::uint64_t, RunSize> sizes;
  std::map<std::pair<std::uint64_t, std::uint64_t>, RunGroup> groups;  // by ranks and bits
  std::size_t slowest = 0;                                             // of `files`: most time in the codec
  std::size_t hosts = 0;
  std::uint64_t milliseconds = 0;  // of the longest
  std::uint64_t unlisted = 0;
};

/// Code::Invalid: no files, or one process twice.
Result<WholeRun> gatherRun(std::vector<RunFile> files);

/// Raw tiles that the codes cannot hold, not those of operations that travel exact.
std::uint64_t unfitTiles(const RunSums& sums);
/// Two decimals; "-" where nothing was sent.
std::string ratioText(double exactBytes, double wireBytes);
/// Three digits; "-" without a sample.
std::string nmseText(const RunSums& sums);

/// For terminals.
std::string runText(const WholeRun& run);
/// One page that needs nothing else: no script, no other file, no network. HTML that is well-formed XML as well.
std::string runHtml(const WholeRun& run);

}  // namespace cgx::tool
