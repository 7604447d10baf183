// One process's statistics file (docs/statistics.md) as numbers. Trusts nothing in it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cgx/status.h"

namespace cgx::tool {

/// What is added up over communicators and ranks; named as in the files. A sample of the series has no tiles.
struct RunSums {
  std::uint64_t operations = 0;
  std::uint64_t smallOperations = 0;
  std::uint64_t inputBytes = 0;
  std::uint64_t exactBytes = 0;
  std::uint64_t wireBytes = 0;
  std::uint64_t codedTiles = 0;
  std::uint64_t zeroTiles = 0;
  std::uint64_t rawTiles = 0;
  std::uint64_t exactTiles = 0;
  std::uint64_t nonFiniteTiles = 0;
  std::uint64_t wholeTiles = 0;
  std::uint64_t encodeNs = 0;
  std::uint64_t reduceNs = 0;
  std::uint64_t decodeNs = 0;
  std::uint64_t wireNs = 0;
  std::uint64_t sampledTiles = 0;
  double errorSquares = 0;
  double valueSquares = 0;

  RunSums& operator+=(const RunSums& other);
  double codecSeconds() const;
  /// Of one quantisation, by the sampled tiles; NaN without any.
  double nmse() const;
};

/// All-reduces of about one size.
struct RunSize {
  std::uint64_t operations = 0;
  std::uint64_t inputBytes = 0;
  std::uint64_t wireBytes = 0;
  std::uint64_t ns = 0;
  double exactBytes = 0;  // by the number of ranks of the communicators

  RunSize& operator+=(const RunSize& other);
};
/// Key of a size: the most bytes in it; this one: everything above the others.
inline constexpr std::uint64_t kAboveAll = ~std::uint64_t{0};

/// Communicators of one shape.
struct RunGroup {
  std::uint64_t communicators = 0;
  RunSums sums;
};

struct RunSample {
  std::uint64_t milliseconds = 0;
  RunSums sums;
};

/// One process's file.
struct RunFile {
  std::string path;
  std::string host;
  std::uint64_t pid = 0;
  std::uint64_t rank = 0;
  std::uint64_t unixSeconds = 0;
  std::uint64_t milliseconds = 0;
  std::uint64_t unlisted = 0;  // communicators that closed and are missing from the sums
  RunSums sums;
  std::map<std::uint64_t, RunSize> sizes;                              // by upToBytes
  std::map<std::pair<std::uint64_t, std::uint64_t>, RunGroup> groups;  // by ranks and bits
  std::vector<RunSample> series;  // nothing in it goes back; the last one is the end
};

/// An error says where in `text` and what; `path` is for messages only.
Result<RunFile> parseRunFile(const std::string& path, std::string_view text);
Result<RunFile> readRunFile(const std::string& path);

/// `text` without what would steer a terminal, and not longer than 256 characters.
std::string printable(std::string_view text);

}  // namespace cgx::tool
