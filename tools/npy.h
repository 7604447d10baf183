// One flat array in NumPy's .npy format, read in pieces. Knows the header's grammar as far as '<f4' and '<f2' need it;
// refuses the rest by name.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "cgx/codec.h"
#include "cgx/status.h"

namespace cgx::tool {

/// An open file; closed by the destructor.
class NpyFile {
 public:
  /// Errors name the file and what is wrong with it: magic, version, element type, order, length.
  static Result<NpyFile> open(const std::string& path);
  NpyFile(NpyFile&& other) noexcept;
  NpyFile& operator=(NpyFile&& other) noexcept;
  ~NpyFile();

  codec::DType dtype() const { return dtype_; }  // F32 or F16
  std::size_t count() const { return count_; }   // elements, all dimensions together
  /// Copies elements [first, first + bytes / element size) as they are in the file.
  Status read(std::size_t first, std::span<std::byte> out) const;

 private:
  NpyFile() = default;
  Status readHeader();

  std::string path_;
  int fd_ = -1;
  codec::DType dtype_ = codec::DType::F32;
  std::size_t count_ = 0;
  std::size_t dataOffset_ = 0;  // bytes
};

}  // namespace cgx::tool
