// `cgx report`: the statistics files of a job's processes (docs/statistics.md) as one summary. Trusts nothing in them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cgx/status.h"

namespace cgx::tool {

struct RunReportOptions {
  std::vector<std::string> files;
};
void addRunReportFlags(CLI::App& command, RunReportOptions* options);

/// What is added up over communicators and ranks; named as in the files.
struct RunSums {
  std::uint64_t operations = 0;
  std::uint64_t smallOperations = 0;
  std::uint64_t exactBytes = 0;
  std::uint64_t wireBytes = 0;
  std::uint64_t codedTiles = 0;
  std::uint64_t zeroTiles = 0;
  std::uint64_t rawTiles = 0;
  std::uint64_t exactTiles = 0;
  std::uint64_t wholeTiles = 0;
  std::uint64_t encodeNs = 0;
  std::uint64_t reduceNs = 0;
  std::uint64_t decodeNs = 0;
  std::uint64_t wireNs = 0;
};
struct RunSize {
  std::uint64_t operations = 0;
  std::uint64_t inputBytes = 0;
  std::uint64_t wireBytes = 0;
  std::uint64_t ns = 0;
};

/// One process's file.
struct RunFile {
  std::string path;
  std::string host;
  std::uint64_t pid = 0;
  std::uint64_t rank = 0;
  std::uint64_t milliseconds = 0;
  std::uint64_t unlisted = 0;  // communicators that closed and are missing from the sums
  RunSums sums;
  std::map<std::uint64_t, RunSize> sizes;  // by upToBytes; what is above all is at the end
};

/// An error says where in `text` and what; `path` is for messages only.
Result<RunFile> parseRunFile(const std::string& path, std::string_view text);
/// The summary. Code::Invalid: no files, or one process twice.
Result<std::string> runReport(std::vector<RunFile> files);
/// 0; 2: a file cannot be read or is not one of ours.
int report(const RunReportOptions& options);

}  // namespace cgx::tool
