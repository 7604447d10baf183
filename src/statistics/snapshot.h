// What a process's communicators have done, at one moment: what statistics are written from. Numbers only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cgx/collective.h"

namespace cgx::statistics {

/// One communicator.
struct Record {
  std::uint64_t id = 0;  // how many collnet communicators the process had before
  int rank = 0;          // in the communicator
  int ranks = 1;
  int bits = 4;  // 1-8, or 32: exact
  bool open = true;
  collective::Counters counters;
};

/// Of all communicators of the process since the library was loaded.
struct Sums {
  std::uint64_t operations = 0;
  std::uint64_t inputBytes = 0;
  std::uint64_t exactBytes = 0;  // what the same operations had sent without compression
  std::uint64_t wireBytes = 0;
  std::uint64_t encodeNs = 0;
  std::uint64_t reduceNs = 0;
  std::uint64_t decodeNs = 0;
  std::uint64_t wireNs = 0;
  std::uint64_t sampledTiles = 0;
  double errorSquares = 0;
  double valueSquares = 0;
};

struct Sample {
  std::uint64_t milliseconds = 0;  // since the first communicator
  Sums sums;
};

struct Snapshot {
  std::string host;
  long pid = 0;
  int rank = 0;                    // of the process in its job; unknown: in its first communicator
  std::uint64_t unixSeconds = 0;   // when it was taken
  std::uint64_t milliseconds = 0;  // since the first communicator
  std::uint64_t unlisted = 0;      // closed communicators that `records` has no room for; `sums` has them
  Sums sums;
  std::vector<Record> records;
  std::vector<Sample> series;
};

/// Bytes that a rank had sent in exact mode by the best algorithm: an all-reduce 2 (ranks - 1) / ranks of its input,
/// the others half of that of their window. Headers are not counted.
std::uint64_t exactBytesOf(const Record& record) noexcept;
void add(Sums& sums, const Record& record) noexcept;

}  // namespace cgx::statistics
