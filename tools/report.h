// Results on paper: the table on stdout, the JSON file, the progress line. Knows numbers and columns only.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cgx/codec.h"
#include "cgx/status.h"

namespace cgx::tool {

struct RowResult {
  std::string name;
  std::size_t bytes = 0;
  std::size_t count = 0;
  codec::DType dtype = codec::DType::F32;
  int bits = 0;
  int ranks = 0;
  double timeUs = 0;
  std::optional<std::size_t> wireBytes;  // of the busiest rank; nothing when the plugin does not tell
  std::optional<double> ratio;
  double nmse = 0;
  bool identical = false;
  std::size_t broken = 0;  // elements outside the error bound
  std::string firstBroken;

  double algbwGBps() const { return static_cast<double>(bytes) / timeUs * 1e-3; }
  double busbwGBps() const { return algbwGBps() * 2 * (ranks - 1) / ranks; }
  bool good() const { return identical && broken == 0; }
};

void printTableHead(bool named);
void printTableRow(const RowResult& row);

/// {"results": [...]}, numbers that are not known as null.
Status writeJson(const std::string& path, const std::vector<RowResult>& rows);

/// One line on stderr that is written over, on a terminal; elsewhere a line every now and then. Silent in the first 5 s
/// without one.
class Progress {
 public:
  explicit Progress(bool enabled);
  void show(const std::string& text);
  /// Removes the line, so that something else can be printed.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  bool enabled_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point started_ = Clock::now();
  Clock::time_point last_{};
};

}  // namespace cgx::tool
