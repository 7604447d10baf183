// What the ranks add up: one row of the table is one message, its values known for every rank. Gradients from files or
// synthetic ones. Knows no plugin and no network, so that the checker can ask for any rank's values.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cgx/codec.h"
#include "cgx/status.h"

namespace cgx::tool {

/// Values of one message. Reading is deterministic: the same call gives the same values in every process.
class Input {
 public:
  virtual ~Input() = default;
  /// Values [first, first + out.size()) of `rank`, before conversion to the element type of the message.
  virtual Status read(int rank, std::size_t first, std::span<float> out) const = 0;
};

struct Row {
  std::string name;  // "transformer/step0400", or empty for synthetic values
  std::size_t count = 0;
  codec::DType dtype = codec::DType::F32;
  std::unique_ptr<Input> input;
};

/// One row for each directory below `directory` (itself included) that holds rank<k>.npy files; each must hold exactly
/// `ranks` of them, numbered from 0 and equally long. `dtype` null: the type of the files.
Result<std::vector<Row>> gradientRows(const std::string& directory, int ranks, const codec::DType* dtype);

/// One row for each size of "first:last:xFactor", "first:last:+step" or a single size, in bytes with K, M, G suffixes
/// of 1024. Sizes are rounded down to whole elements, at least one.
Result<std::vector<Row>> syntheticRows(const std::string& sizes, codec::DType dtype);

/// Values [first, first + count) of `rank`, rounded to the element type of the row.
Status readElements(const Row& row, int rank, std::size_t first, std::span<std::byte> out);

}  // namespace cgx::tool
